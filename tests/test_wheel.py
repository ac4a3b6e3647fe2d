"""What is released: the wheel has what users need and stays small, and its page on a package index leads nowhere that is not there."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("hatchling")
pytest.importorskip("hatch_fancy_pypi_readme")

ROOT = Path(__file__).parents[1]

MOST_BYTES = 1_330_000
"""Of the wheel; docs/decisions.md says what it consists of."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_stays_small(wheel):
    assert wheel.stat().st_size < MOST_BYTES


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"scrapy_aopic"}
    assert [name for name in names if name.endswith((".pyc", ".png", ".orig"))] == []
    pages = {name.rpartition("/")[2] for name in names if name.endswith(".md")}
    index, inside = (
        set(re.findall(r"\]\(([\w-]+\.md)", (ROOT / "docs" / name).read_text("utf-8")))
        for name in ("index.md", "inside.md")
    )
    assert pages == {"index.md", *index} - {"inside.md"} - inside
    assert "scrapy_aopic/py.typed" in names


@pytest.mark.slow
def test_the_wheel_alone_serves_and_crawls_the_demo_web(wheel, tmp_path):
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import sys, scrapy.cmdline, scrapy_aopic; print(scrapy_aopic.__file__); scrapy.cmdline.execute()"
    done = subprocess.run(  # not forked off one that has imported the checkout
        [sys.executable, "-c", code, "aopic", "demo", "--seconds", "2", "-o", "items.csv"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert "every invariant holds" in done.stdout
    assert "scrapy aopic why crawls/demo http" in done.stdout
    assert len((tmp_path / "items.csv").read_text(encoding="utf-8").splitlines()) > 5
    assert list((tmp_path / "site").rglob("example/demo_web/grammar.py"))


def test_no_address_leads_nowhere_until_there_is_a_public_one(wheel, metadata):
    assert "scrapy-aopic.example" not in str(metadata)
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text)
    assert [link for pair in links if not re.match("https://|#", link := "".join(pair))] == []
    pages = set(re.findall(r"scrapy aopic docs ([\w-]+)", text))
    with ZipFile(wheel) as archive:
        there = {Path(name).stem for name in archive.namelist() if name.endswith(".md")}
    assert {"how-it-works"} < pages <= there


def test_all_is_every_extra(metadata):
    needed: dict[str, set[str]] = {name: set() for name in metadata.get_all("Provides-Extra", [])}
    for line in metadata.get_all("Requires-Dist", []):
        if found := re.search(r"extra == '(\w+)'", line):
            needed[found[1]].add(re.split(r"[<>=;]", line)[0])
    everything = needed.pop("all")
    assert set().union(*needed.values()) == everything
