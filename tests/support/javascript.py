"""JavaScript for tests: Node.js if it is installed, else QuickJS-ng from PyPI (``pip install quickjs-ng``)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NODE = shutil.which("node") or shutil.which("nodejs")


def call(scripts: list[Path], function: str, argument: object) -> Any:
    """What *function*, which *scripts* define, makes of *argument*; both travel as JSON."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in scripts)
    text = json.dumps(argument)
    if NODE is not None:
        program = f"{source}\n;process.stdout.write(JSON.stringify({function}(JSON.parse(require('fs').readFileSync(0))))"
        done = subprocess.run(  # from a file, as a command line may be too short for it
            [NODE, "-e", f"{program});"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)
    quickjs = pytest.importorskip(
        "quickjs", reason="neither Node.js nor QuickJS-ng (pip install quickjs-ng) is installed"
    )
    context = quickjs.Context()
    context.eval(source)
    context.eval(f"function callWithText(text) {{ return JSON.stringify({function}(JSON.parse(text))); }}")
    return json.loads(context.get("callWithText")(text))
