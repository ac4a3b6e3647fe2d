"""What is released: the wheel has what users need and stays small, and its page on a package index leads to public addresses."""

from __future__ import annotations

import email
import re
import subprocess
import sys
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from scrapy_aopic.version import ADDRESS

pytest.importorskip("hatchling")
pytest.importorskip("hatch_fancy_pypi_readme")

ROOT = Path(__file__).parents[1]

MOST_BYTES = 1_100_000
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


def test_the_wheel_stays_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"scrapy_aopic"}
    assert [name for name in names if name.endswith((".pyc", ".md", ".png", ".orig"))] == []
    assert "scrapy_aopic/py.typed" in names


def test_every_address_of_the_project_is_below_one(metadata: Message) -> None:
    addresses = [each.partition(", ")[2] for each in metadata.get_all("Project-URL", [])]
    assert len(addresses) == 5
    assert [address for address in addresses if not address.startswith(ADDRESS)] == []


def test_the_page_on_a_package_index_has_no_link_that_leads_into_the_repository(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text)
    assert len(links) > 10
    assert [link for pair in links if not re.match("https://|#", link := "".join(pair))] == []


def test_all_is_every_extra(metadata: Message) -> None:
    needed: dict[str, set[str]] = {name: set() for name in metadata.get_all("Provides-Extra", [])}
    for line in metadata.get_all("Requires-Dist", []):
        if found := re.search(r"extra == '(\w+)'", line):
            needed[found[1]].add(re.split(r"[<>=;]", line)[0])
    everything = needed.pop("all")
    assert set().union(*needed.values()) == everything
