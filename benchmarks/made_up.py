"""Made-up graphs, with the files that go with them, and sites of HTML pages: what the short forms of the benchmarks take."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np


def make_all(folder: Path) -> None:
    """All files that short forms name, in *folder*."""
    for name in ("webkb-1997", "wikispeedia"):
        make_graph(folder, name)
    make_sites(folder / "DIR" / "sites")


def make_graph(folder: Path, name: str, *, pages: int = 300, hosts: int = 60) -> None:
    """A graph of some hosts with the files that go with it, the same in every run."""
    dice = random.Random(name)
    links = [sorted({dice.randrange(pages) for _ in range(4)} - {page}) for page in range(pages)]
    indptr = np.cumsum([0, *map(len, links)]).astype(np.int32)
    indices = np.array([link for each in links for link in each], np.int32)
    np.savez(folder / f"{name}.npz", indptr=indptr, indices=indices)
    urls = "".join(f"http://www.d{page % hosts}.com/{page}\n" for page in range(pages))
    (folder / f"{name}.urls.gz").write_bytes(gzip.compress(urls.encode()))


def make_sites(folder: Path, *, sites: int = 3, pages: int = 24) -> None:
    """Sites of HTML pages about what ``benchmarks/focused.py`` looks for."""
    dice = random.Random(1)
    topical = [
        "authentication", "encryption", "password", "kerberos", "ssl", "certificate", "cipher", "token", "element", "xml", "dtd",
        "stylesheet",
    ]  # fmt: skip
    for site in range(sites):
        home = folder / f"site{site}"
        home.mkdir(parents=True)
        for page in range(pages):
            words = [f"word{dice.randrange(500)}" for _ in range(150)]
            if page % 2:
                words += [dice.choice(topical) for _ in range(60)]
            dice.shuffle(words)
            links = "".join(
                f'<a href="{to}.html">{words[to]}</a> ' for to in {(page + 1) % pages, dice.randrange(pages)}
            )
            name = "index" if not page else str(page)
            text = f"<html><head><title>{words[0]}</title></head><body><p>{' '.join(words)}</p>{links}</body></html>"
            (home / f"{name}.html").write_text(text)
