"""The benchmarks: one table of all, which the docs follow; each runs in its short form, and each command of the docs takes its options."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import order
import record
from table import HERE, NEEDS, TABLE, script_of

ELSEWHERE = {"damage", "kills", "power"}
"""Those that tests in ``tests/crash`` run in a short form."""

HELPERS = {"made_up", "options", "record", "runner", "table"}
"""Files that are no benchmark."""

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in record.pages()}


def run(*words: str) -> str:
    """What ``python benchmarks`` says to the *words*."""
    line = [sys.executable, str(BENCHMARKS), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_the_table_has_all_benchmarks():
    files = {path.stem for path in BENCHMARKS.glob("*.py")} - {"__main__"}
    assert files - HELPERS == {name for name in TABLE if script_of(name).suffix}
    assert [name for name in TABLE if not script_of(name).exists()] == []


@pytest.mark.parametrize("name", TABLE)
def test_the_page_that_quotes_a_benchmark_names_it(name):
    page = next(path for path in (ROOT / "docs" / TABLE[name].page, ROOT / TABLE[name].page) if path.exists())
    text = page.read_text(encoding="utf-8")
    assert re.search(rf"python benchmarks (?:[a-z]+ )*{name}\b|`benchmarks/{name}(?:\.py)?`", text), page


def test_no_page_names_a_benchmark_that_is_not_there():
    named = {name for text in TEXTS.values() for name in re.findall(r"python benchmarks ([a-z]\w*)", text)}
    assert named - TABLE.keys() == {"record", "short"}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TABLE if name not in ELSEWHERE])
def test_the_short_form_runs_to_its_end(name):
    needs = TABLE[name].needs
    if not NEEDS[needs]():
        pytest.skip(f"needs {needs}")
    run("short", name)


PARSE = """
import argparse, runpy, shlex, sys, traceback
from pathlib import Path
import runner

class Parsed(BaseException):
    pass

real = argparse.ArgumentParser.parse_args
def parse_args(parser, *args, **kwargs):
    real(parser, *args, **kwargs)
    raise Parsed
argparse.ArgumentParser.parse_args = parse_args
for line in sys.stdin.read().splitlines():
    name, *options = shlex.split(line)
    try:
        runner.be(name, options)
    except Parsed:
        continue
    except BaseException:
        traceback.print_exc()
    print(line)
"""


@pytest.mark.slow
def test_every_command_of_the_docs_takes_its_options():
    commands = {command for text in TEXTS.values() for _, command in record.commands(text)}
    ours = sorted(
        command.removeprefix("python benchmarks ")
        for command in commands
        if command.startswith("python benchmarks ") and NEEDS[TABLE[command.split()[2]].needs]()
    )
    assert len(ours) > 20
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        input="\n".join(ours),
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "", done.stderr[-3000:]


# -- the lines before tables


def test_every_table_of_figures_has_a_line_with_its_command_and_day():
    """``python benchmarks record`` makes it: it runs the command, and puts the day and the commit into the pages."""
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
            assert found is not None, f"{page.name}: {line} is not as python benchmarks record writes it"
            assert found["command"] in given, f"{page.name}: {found['command']} is no command of the page"
            assert record.plain(found["command"]) == found["command"], f"{page.name}: {line} names a folder"


def test_a_line_is_exchanged_wherever_the_command_stands(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    before = "<!-- python benchmarks farms --sizes 3 · 2020-01-01 · commit 0000000 -->"
    page.write_text(f"{before}\n{before.replace('3', '4')}\n")
    monkeypatch.setattr(record, "pages", lambda: [page])
    assert record.note(record.plain("/usr/bin/python /home/somebody/benchmarks farms --sizes 3")) == 1
    first, second = page.read_text().splitlines()
    assert first == record.line_of("python benchmarks farms --sizes 3") != before
    assert second == before.replace("3", "4")


def test_a_table_is_exchanged_that_the_command_alone_makes(tmp_path, monkeypatch, capfd):
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


def test_of_results_that_are_there_only_the_default_order_is_crawled_again(tmp_path):
    kept, others = tmp_path / "kept.jsonl", tmp_path / "others.jsonl"
    words = shlex.split("scrapy aopic simulate g.npz --order aopic --order opic --seeds 2")
    assert order.with_results(words, kept, others) == [*words, "--json", str(kept)]
    kept.write_text('{"order":"aopic"}\n{"order":"opic"}\n')
    anew = shlex.split(f"scrapy aopic simulate g.npz --seeds 2 --order aopic --beside {others}")
    assert order.with_results(words, kept, others) == anew
    assert others.read_text() == '{"order":"opic"}\n'


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        (
            "../.venv/bin/python ../benchmarks kills --job /tmp/x/killed",
            "python benchmarks kills --job killed",
        ),
        ("python benchmarks honest /data/webkb-1997.npz  # all", "python benchmarks honest webkb-1997.npz"),
    ],
)
def test_a_command_is_written_without_folders_of_a_machine(typed, written):
    assert record.plain(typed) == written
