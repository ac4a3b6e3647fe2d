"""The documentation as a site: ``make docs`` builds it with Sphinx from the Markdown files and notebooks beside this one.

What these files have is made so that it can also be read as it is, in any viewer of Markdown, so that three things are
done here while they are read: links to files that are no pages become plain words, the lists of ``index.md`` and
``inside.md`` become the menu, and ``api-reference.md`` gets the docstrings of what it promises.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.version import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent

project = "scrapy-aopic"
author = copyright = "the scrapy-aopic authors"  # noqa: A001 - Sphinx's name
release = version = __version__
html_title = f"{project} {release}"
html_theme = "furo"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
root_doc = "index"
exclude_patterns = ["_build"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
]

nb_execution_mode = "off"  # notebooks have what they show; a test runs them
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

autodoc_class_signature = "separated"
autodoc_default_options = {"members": True, "member-order": "bysource", "exclude-members": "__new__"}
napoleon_use_ivar = True  # else each attribute would be described twice
autodoc_typehints = "signature"
autodoc_typehints_format = "short"

# Taken if there is no network: links to Scrapy and Python are then plain names.
_NOTHING = HERE / "_build" / "nothing.inv"
_NOTHING.parent.mkdir(exist_ok=True)
_NOTHING.write_bytes(b"# Sphinx inventory version 2\n# Project: \n# Version: \n# zlib\n" + zlib.compress(b""))
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", (None, str(_NOTHING))),
    "scrapy": ("https://docs.scrapy.org/en/latest", (None, str(_NOTHING))),
}
intersphinx_timeout = 5


def _directive(module: str, name: str) -> str:
    if "." in name:
        return "automethod"
    found = getattr(importlib.import_module(module), name)
    return "autoclass" if inspect.isclass(found) else "autofunction" if callable(found) else "autodata"


def _reference() -> str:
    """Directives that show the docstrings of the names that ``api-reference.md`` promises."""
    rows = re.findall(
        r"^\| `(scrapy_aopic[\w.]*)` \| (.+) \|$",
        (HERE / "api-reference.md").read_text("utf-8"),
        re.MULTILINE,
    )
    lines = []
    for module, names in rows:
        only = re.findall(r"\(only `([\w.]+)`\)", names)
        lines += ["", f"## {module}", "", "```{eval-rst}", f".. currentmodule:: {module}", ""]
        lines += [
            f".. {_directive(module, name)}:: {name}\n" for name in only or re.findall(r"`(\w+)`", names)
        ]
        lines += ["```"]
    return "\n".join([*lines, ""])


def _menu(text: str) -> str:
    """Tables of contents, one for each section that lists pages."""
    found = []
    for title, _, section in (part.partition("\n") for part in text.split("\n## ")[1:]):
        pages = re.findall(r"^- \[[^\]]+\]\(([\w/-]+)\.(?:md|ipynb)\):", section, re.MULTILINE)
        found += ["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"] if pages else []
    return "\n".join([*found, ""])


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    text = source[0]
    if page in ("index", "inside"):
        text += _menu(text)
    if page == "api-reference":
        text += _reference()
    if "/" not in page:  # from a notebook, .. is this folder
        text = re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", text)  # what is no page has no address yet
    text = re.sub(r"\[([^\]]+)\]\((opic/index\.html)\)", r'<a href="\2">\1</a>', text)
    source[0] = text


def _copy_explainer(app: Sphinx, _: Exception | None) -> None:
    if app.builder.format == "html":
        shutil.copytree(HERE / "opic", app.outdir / "opic", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    app.connect("source-read", _read)
    app.connect("build-finished", _copy_explainer)
