"""Runs the notebooks of the docs again and keeps what they show: python docs/run_notebooks.py [NOTEBOOK ...]

It needs ``pip install --editable '.[all]' --group docs``. What a notebook writes is gone afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).with_name("notebooks").glob("*.ipynb"))

for path in map(Path, sys.argv[1:] or NOTEBOOKS):
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        NotebookClient(notebook, record_timing=False, resources={"metadata": {"path": folder}}).execute()
    notebook.metadata.language_info = {"name": "python"}  # without the versions of this machine
    nbformat.write(notebook, path)
