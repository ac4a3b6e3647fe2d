"""What the docs give as proof, in a form that takes seconds: the command as it stands there, and then options that make it small.

Where an option is given twice, the last one counts, so that the options of the docs are read, too. Files that are not in the
repository are made up: graphs, sites of HTML pages, robots.txt and the like, under the names that the docs give them.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import record

SMALL = {
    "bench": "--most 20 --repeats 1 --sizes 1000 --pages 20",
    "caches.py": "--seeds 2",
    "calls.py": "--links 6",
    "capacity.py": "--shards 2 --hosts 4 --pages 2 --links 3",
    "capacity.py --topic": "--shards 2 --hosts 4 --pages 2 --links 3 --topic graded",
    "content.py": "",
    "dashboard.py": "--repeats 1 --pages 20 --hosts 20",
    "directories.py": "--sets 1 --seeds 2 --fetches 30 --stores sqlite --repeats 1",
    "disks.py": "--shards 2 --workers 1 --hosts 6 --pages 2 --links 3",
    "faults.py": "freeze --times 1",
    "focus_webs/pictures.py": "",
    "focused.py": "--sets 1 --fetches 30 --examples 5 --most 20",
    "focused_cpu.py": "--pages 20 --turns 1",
    "focused_live.py": "--pages 20 --turns 1 --seconds 10 --only contextual",
    "focused_memory.py": "--pages 60 --hosts 20 --most 100 --only aopic",
    "focused_workers.py": "--pages 30 --turns 1 --workers 1 --shards 2 --seconds 10",
    "freshness.py": "--budgets 0.2 --policies cash --rng 1 --before 1 --during 1 --jobs 1",
    "estimates.py": "--rng 1 --visits 1 --before 1 --after 1",
    "fuzz.py": "--urls 500",
    "growth.py": "robots --seconds 0.02",
    "kill.py": "--kills 1 --after 2 --pages 40 --factor 1",
    "large_job.py": "--pages 1000 --hosts 20",
    "learning.py": "--pages 10 --turns 1 --only focused",
    "links.py": "--pages 5",
    "log_cuts.py": "--pages 24 --shards 2 --workers 1 --every 50 --resumed 1",
    "marked_pages.py": "--sets 1 --seeds 2",
    "order.py demo": "--pages 30",
    "order.py graphs": "--only none",
    "politeness.py audit": "--kills 1 --after 2 --size 0.02",
    "politeness.py backlog": "--seconds 6",
    "politeness.py stalls": "--seconds 3",
    "politeness.py use": "--cases 1",
    "real_pages.py": "--most 5",
    "result_pages.py": "--most 24 --samples 5",
    "revisits.py": "--pages 20 --visits 1 --rng 1",
    "robots.py": "--hosts 100",
    "same_crawl.py": "--pages 5",
    "scraped.py": "--seconds 3",
    "shards.py": "--shards 2 --workers 1 --fetches 50 --sets 1 --seeds 2",
    "sieve.py": "--sizes 2000 --pages 100 --merges 1",
    "soak.py": "--pages 300 --hosts 50 --every 0.04",
    "stuffed_farm.py": "--pages 20 --seconds 5 --focus 0.9",
    "tab_memory.py": "--minutes 0.05",
    "theft.py": "--sets 1 --copies 1 --mirrors 0 --attacks copy --sites 3",
    "traps.py": "--sets 1 --seeds 2 --entries 1 --kinds chain --on domains --sizes 10 --fetches 50",
    "traps.py --loopback": "--honest 20 --links 20 --sets 1 --seeds 2 --entries 1 --kinds chain --on real-host --fetches 50 --factors 0 --gap 0",
    "workers.py": "--shards 2 --workers 1 --hosts 6 --pages 2 --links 3 --rounds 1",
    "simulate": "--seeds 2 --seed-sets 1",
}
"""What makes each script small; a new one of the docs has to be here."""

ELSEWHERE = {
    "docs/generate.py": "tests/docs/test_docs.py",
    "damage.py": "tests/crash/test_damage.py",
    "hostile_web": "tests/crash/test_hostile_web.py",
    "kills.py": "tests/crash/test_kills.py",
    "power.py": "tests/crash/test_power.py",
    "races.py": "tests/crash/test_races.py",
}
"""Scripts that other tests run in a small form of their own."""

NOT_OF_THE_DOCS = {
    "mutants.py": "core --each 1",
    "pictures.py": "",
    "record.py": "make order",
}
"""Scripts that no page of the docs gives as proof, with options that they take."""

JUDGES_TIME = {"politeness.py backlog", "politeness.py stalls", "soak.py"}
"""Those that end with 1 if the machine was too busy, or the crawl too short to be steady."""

QUICK = {"content.py", "focus_webs/pictures.py", "links.py", "shards.py", "traps.py"}
"""Those whose first command every run takes; the others take more than some tenths of a second of CPU time."""


class Proof(NamedTuple):
    """A command of the docs, and what it is of."""

    command: str
    page: str


def all_proofs() -> list[Proof]:
    """Each command once, with the first page that gives it."""
    found: dict[str, str] = {}
    for page in record.pages():
        for _, command in record.commands(page.read_text(encoding="utf-8")):
            if "tests/conformance" not in command:  # which take files of others
                found.setdefault(command, page.name)
    return [Proof(*each) for each in found.items() if script_of(each[0]) not in ELSEWHERE]


def script_of(command: str) -> str:
    """The key of :data:`SMALL` for *command*."""
    words = shlex.split(python_of(command))
    if words[0] == "-m":
        return "simulate"
    script = words[0].removeprefix("benchmarks/")
    part = " ".join([script, *words[1:2]])
    return part if part in SMALL else script


def python_of(command: str) -> str:
    """*command*, which may be one of make, as ``python`` is given it."""
    if command.startswith("scrapy "):
        return f"-m {command}"
    if command.startswith("make "):
        target, *given = shlex.split(command)[1:]
        recipe = re.search(
            rf"^{target}:.*\n(?:\t.*\n)*?\t\$\(BIN\)/(python benchmarks/.*)\n", MAKEFILE, re.MULTILINE
        )
        assert recipe is not None, f"make {target} runs no benchmark"
        parts = given[0].partition("=")[2] if given else ""
        command = recipe[1].replace("$(PARTS)", parts)
    return command.removeprefix("python ")


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def small(command: str) -> list[str]:
    """The words that ``python`` is given for the small form of *command*."""
    words = shlex.split(python_of(command))
    if words[0] != "-m":
        words[0] = str(ROOT / words[0])
    return [*words, *shlex.split(SMALL[script_of(command)])]


# -- what is not in the repository


def make_all(folder: Path) -> None:
    """All files that commands of the docs name, in *folder*."""
    for name in ("cnr-2000", "webkb-1997", "wb-cs-stanford", "wikispeedia", "doc-sites", "GRAPH"):
        make_graph(folder, name)
    make_sites(folder / "DIR" / "sites")
    for name in ("FOLDER", "FOLDER_OF_PAGES"):
        make_sites(folder / name)
    (folder / "tests" / "test_data").mkdir(parents=True)
    (folder / "tests" / "test_data" / "some.txt").write_text("User-agent: *\nDisallow: /private\n")
    (folder / "html5lib-tests").mkdir()
    (folder / "html5lib-tests" / "some.dat").write_text(
        "#data\n<p><a href=x>one</p>\n#errors\n#document\n| <html>\n"
    )
    outcome = {"mean": 0.5, "ranked": 0.25, "curve": [0.5] * 20}
    (folder / "dial.json").write_text(json.dumps({"topic": {"focus 0.9": [outcome], "focus 0": [outcome]}}))
    (code,) = re.findall(
        r"# myproject/order.py\n(.*?)```", (ROOT / "docs" / "order.md").read_text("utf-8"), re.DOTALL
    )
    (folder / "myproject").mkdir()
    (folder / "myproject" / "order.py").write_text(code)


def make_graph(folder: Path, name: str, *, pages: int = 300, hosts: int = 60) -> None:
    """A graph of some hosts with the files that go with it, the same in every run."""
    dice = random.Random(name)
    links = [sorted({dice.randrange(pages) for _ in range(4)} - {page}) for page in range(pages)]
    indptr = np.cumsum([0, *map(len, links)]).astype(np.int32)
    indices = np.array([link for each in links for link in each], np.int32)
    np.savez(folder / f"{name}.npz", indptr=indptr, indices=indices)
    np.save(folder / f"{name}.pseudo_host.npy", np.arange(pages, dtype=np.int32) % hosts)
    urls = "".join(f"http://www.d{page % hosts}.com/{page}\n" for page in range(pages))
    (folder / f"{name}.urls.gz").write_bytes(gzip.compress(urls.encode()))


def make_sites(folder: Path, *, sites: int = 3, pages: int = 24) -> None:
    """Sites of HTML pages about what ``benchmarks/focused.py`` looks for."""
    dice = random.Random(1)
    topical = [
        "authentication",
        "encryption",
        "password",
        "kerberos",
        "ssl",
        "certificate",
        "cipher",
        "token",
        "element",
        "xml",
        "dtd",
        "stylesheet",
    ]
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
