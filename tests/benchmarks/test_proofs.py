"""What the docs give as proof: every command can be run, runs small to its end, and stands with its day before its tables.

The commands are read from the pages, so a new one is tested from the start: it needs a small form in ``support/proofs.py``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import processes, prometheus
from support.chromium import CHROMIUM, DRIVER
from support.proofs import (
    ELSEWHERE,
    JUDGES_TIME,
    NOT_OF_THE_DOCS,
    QUICK,
    SMALL,
    Proof,
    all_proofs,
    make_all,
    python_of,
    record,
    script_of,
    small,
)
from support.redis_server import WHY_NOT, find_server

ROOT = Path(__file__).parents[2]
SMALL_FORM = ROOT / "tests" / "support" / "small_form.py"
ENVIRONMENT = {
    **os.environ,
    "MPLBACKEND": "agg",
    "OPENBLAS_NUM_THREADS": "1",  # a process with other threads cannot be forked
    "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}.",
}
NO_BROWSER = "" if CHROMIUM and DRIVER and find_spec("selenium") else "needs a browser"
NO_PROMETHEUS = "" if prometheus.PROMETHEUS else "needs Prometheus"
NO_SERVER = "" if find_server() is not None else WHY_NOT
NO_STRACE = "" if shutil.which("strace") else "needs strace"
LACKS = {
    "capacity.py": NO_SERVER,
    "disks.py": NO_SERVER,
    "faults.py": NO_SERVER,
    "focused_workers.py": NO_SERVER,
    "log_cuts.py": NO_SERVER,
    "power.py": NO_STRACE,
    "real_pages.py": NO_SERVER,
    "result_pages.py": "" if find_spec("sklearn") else "needs scikit-learn",
    "scraped.py": NO_PROMETHEUS,
    "tab_memory.py": NO_BROWSER,
    "workers.py": NO_SERVER,
}
"""Scripts that cannot run here, with the reason."""

PROOFS = all_proofs()


def forms() -> list[object]:
    """The tests of all commands; those that take long, and the second one of a script, are for long runs."""
    found, had = [], set()
    for proof in PROOFS:
        script = script_of(proof.command)
        lacking = LACKS.get(script.partition(" ")[0], "")
        marks = [pytest.mark.skipif(bool(lacking), reason=lacking)]
        marks.append(pytest.mark.slow if script in QUICK and script not in had else pytest.mark.long)
        had.add(script)
        found.append(pytest.param(proof, id=f"{proof.page}: {proof.command}", marks=marks))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_all(folder)
    return folder


def run(words: list[str], place: Path, codes: tuple[int, ...] = (0,)) -> str:
    """What ``python`` says to the *words*, and that it ended with one of the *codes*."""
    line = [sys.executable, str(SMALL_FORM), *words]
    done = processes.run(line, cwd=place, env=ENVIRONMENT, capture_output=True, text=True, timeout=550)
    assert done.returncode in codes, f"{shlex.join(words)}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("proof", forms())
def test_the_small_form_of_a_command_runs_to_its_end(proof: Proof, made: Path, tmp_path: Path) -> None:
    place = shutil.copytree(made, tmp_path / "place")
    words = small(proof.command)
    with ExitStack() as stack:
        if script_of(proof.command) == "kill.py":  # the docs start the web in another terminal
            sys.path.append(str(ROOT / "example_project"))
            from demo_web import DemoWeb, served

            (place / "crawls").mkdir()
            (place / "crawls" / "seeds.txt").write_text("\n".join(DemoWeb().seeds))
            words += ["--proxy", stack.enter_context(served(log=place / "crawls" / "web.tsv"))]
        run(words, place, (0, 1) if script_of(proof.command) in JUDGES_TIME else (0,))


def test_every_command_starts_and_takes_its_options(made: Path) -> None:
    """All of them in one process, up to the moment at which the options have been read."""
    chosen = [
        proof
        for proof in PROOFS
        if not python_of(proof.command).startswith("-m") and not LACKS.get(script_of(proof.command))
    ]
    (made / "commands").write_text("\n".join(shlex.join(small(proof.command)) for proof in chosen))
    wrong = json.loads(run(["--parse", "commands"], made).splitlines()[-1])
    assert {proof: why for proof, why in zip(chosen, wrong, strict=True) if why} == {}


def test_every_script_is_of_the_docs_or_said_not_to_be():
    """What nobody runs any more goes away."""
    scripts = {
        path.relative_to(ROOT / "benchmarks").as_posix()
        for path in (ROOT / "benchmarks").rglob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    of_the_docs = {script_of(proof.command).partition(" ")[0] for proof in PROOFS}
    assert scripts - of_the_docs == (NOT_OF_THE_DOCS.keys() | ELSEWHERE.keys()) - {
        "docs/generate.py",
        "hostile_web",
    }


@pytest.mark.slow
def test_the_calls_of_a_page_are_counted(tmp_path: Path):
    found = run([str(ROOT / "benchmarks" / "calls.py"), *SMALL["calls.py"].split()], tmp_path)
    *parts, whole = (int(line.split()[0]) for line in found.splitlines())
    assert sum(parts) == whole > 0


def test_what_other_tests_run_is_there():
    for script, test in ELSEWHERE.items():
        assert Path(script).name.removesuffix(".py") in (ROOT / test).read_text("utf-8"), (script, test)


def test_every_small_form_is_of_a_command_of_the_docs():
    assert SMALL.keys() == {script_of(proof.command) for proof in PROOFS}


# -- the lines before tables


def test_every_table_of_figures_has_a_line_with_its_command_and_day():
    """``benchmarks/record.py`` makes it: it runs the command, and puts the day and the commit into the pages."""
    without = [
        f"{table.page.name}:{table.line}"
        for page in record.pages()
        for table in record.tables(page)
        if table.has_figures and table.commands and not table.records
    ]
    assert without == []


def test_the_lines_before_tables_name_commands_of_their_pages():
    for page in record.pages():
        text = page.read_text(encoding="utf-8")
        given = {command for _, command in record.commands(text)}
        for line in re.findall("<!-- .* · .* -->", text):
            found = record.RECORD.fullmatch(line)
            assert found is not None, f"{page.name}: {line} is not as benchmarks/record.py writes it"
            assert found["command"] in given, f"{page.name}: {found['command']} is no command of the page"
            assert record.plain(found["command"]) == found["command"], (
                f"{page.name}: {line} names a folder of a machine"
            )


def test_a_line_is_exchanged_wherever_the_command_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    before = "<!-- python benchmarks/theft.py --sets 3 · 2020-01-01 · commit 0000000 -->"
    page.write_text(f"{before}\n{before.replace('3', '4')}\n")
    monkeypatch.setattr(record, "pages", lambda: [page])
    command = record.plain(
        f"{sys.executable} /home/somebody/benchmarks/theft.py --sets 3".replace(sys.executable, "python")
    )
    assert record.note(command) == 1
    first, second = page.read_text().splitlines()
    assert first == record.line_of("python benchmarks/theft.py --sets 3") != before
    assert second == before.replace("3", "4")


def test_a_table_is_exchanged_that_the_command_alone_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    page, line = tmp_path / "page.md", "<!-- python -c 1 · 2020-01-01 · commit 0000000 -->"
    other = line.replace("-c 1", "-c 2")
    old = ["| a | b |", "|---|---|", "| 1 | 2 |", "| 3 | 4 |"]
    page.write_text("\n".join([line, *old, "", line, other, *old, "", line, "| c |", "|---|", "| 5 |", ""]))
    monkeypatch.setattr(record, "pages", lambda: [page])
    new = "| a | b |\n|---|---|\n| 6 | 7 |"
    record.run(
        [sys.executable, "-c", "import sys; print('text', *sys.argv[1:], sep='\\n\\n')", new], "python -c 1"
    )
    line = record.line_of("python -c 1")
    assert page.read_text() == "\n".join(
        [line, new, "", line, other, *old, "", line, "| c |", "|---|", "| 5 |", ""]
    )
    assert "page.md:15 has a head that was not printed" in capfd.readouterr().out


def test_of_results_that_are_there_only_the_default_order_is_crawled_again(tmp_path: Path):
    import order

    kept, others = tmp_path / "kept.jsonl", tmp_path / "others.jsonl"
    words = ["scrapy", "aopic", "simulate", "g.npz", "--policy", "aopic", "--policy", "opic", "--seeds", "2"]
    assert order.with_results(words, kept, others) == [*words, "--json", str(kept)]
    kept.write_text('{"order":"aopic"}\n{"order":"opic"}\n')
    anew = [
        "scrapy",
        "aopic",
        "simulate",
        "g.npz",
        "--seeds",
        "2",
        "--policy",
        "aopic",
        "--beside",
        str(others),
    ]
    assert order.with_results(words, kept, others) == anew
    assert others.read_text() == '{"order":"opic"}\n'


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        (
            "../.venv/bin/python ../benchmarks/kill.py --job /tmp/x/killed",
            "python benchmarks/kill.py --job killed",
        ),
        (
            "python benchmarks/caches.py /data/webkb-1997.npz  # all",
            "python benchmarks/caches.py webkb-1997.npz",
        ),
        ('make bench PARTS="work queue"', "make bench 'PARTS=work queue'"),
    ],
)
def test_a_command_is_written_without_folders_of_a_machine(typed: str, written: str):
    assert record.plain(typed) == written
