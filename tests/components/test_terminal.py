"""What commands show where standard output is a terminal: colours, tables that fit, a screen that is written over."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from scrapy.cmdline import execute
from scrapy.settings import Settings
from support.commands import Terminal
from support.stored_jobs import make_job

from scrapy_aopic.view.output import Colour, painted, write
from scrapy_aopic.view.text_report import Column, cut, format_table

COLOURS = re.compile(r"\x1b\[\d*m")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output, as a terminal of 60 columns and 12 lines."""
    for name, value in {"COLUMNS": "60", "LINES": "12", "TERM": "xterm", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    return Terminal()


def aopic(*arguments: object, shown: io.StringIO) -> int:
    """The exit code of the command, whose standard output is *shown*."""
    with redirect_stdout(shown), pytest.raises(SystemExit) as ended:
        execute(["scrapy", "aopic", *map(str, arguments)], Settings())
    return int(ended.value.code or 0)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    make_job(tmp_path / "job", "sqlite", 200)
    return tmp_path / "job"


def test_a_table_is_coloured_and_fits_a_terminal(terminal, job):
    assert aopic("hosts", job, "--queued", "-n", 3, shown=terminal) == 0
    text = terminal.getvalue()
    assert "\x1b[32mready" in text
    assert all(len(COLOURS.sub("", line)) <= 60 for line in text.splitlines())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_forbidden(terminal, job, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert aopic("status", job, "--totals", shown=terminal) == 0
    assert "fetched" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


def test_what_is_no_terminal_gets_all_columns_in_one_colour(job, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    shown = io.StringIO()
    assert aopic("top", job, shown=shown) == 0
    text = shown.getvalue()
    assert text.splitlines()[0].split() == ["importance", "cash", "history", "visits", "state", "page"]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "command", [("top",), ("top", "--hosts"), ("status", "--totals"), ("hosts", "--queued"), ("hosts",)]
)
def test_a_job_is_watched_on_one_screen(terminal, job, monkeypatch, command):
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("scrapy_aopic.commands.common.sleep", sleep)
    assert aopic(*command, job, "--watch", shown=terminal) == 130
    assert slept == [2.0] * 3
    _, *screens = terminal.getvalue().split("\x1b[H")
    assert len(screens) == 3
    for screen in screens:
        assert 2 < screen.count("\n") < 12
        assert screen.count("\x1b[K") == screen.count(
            "\n"
        )  # what was there before is gone, to the end of each line
        assert "\x1b[J" in screen  # and below
    if command[0] == "top":
        assert "Ended. 200 pages wait." in screens[0].splitlines()[0]


@pytest.mark.parametrize(
    ("seconds", "wrong"), [("0", "above 0"), ("1e9", "at most a day"), ("job", "JOBDIR comes before --watch")]
)
def test_a_wrong_time_to_wait_is_refused(job, capsys, seconds, wrong):
    assert aopic("top", job, "--watch", seconds, shown=io.StringIO()) == 2
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize("name", ["\x1b[31mred", "\ufdd2red", "\x9b31mred"])
def test_a_name_colours_no_other_line(terminal, name):
    with redirect_stdout(terminal):
        write(f"{name}\n{painted('waits', Colour.WAITING)}\nplain")
    first, waits, plain = terminal.getvalue().splitlines()
    assert COLOURS.split(first)[-1] == "" or "\x1b" not in first
    assert waits.startswith("\x1b[33mwaits\x1b[0m")
    assert plain == "plain"


def test_columns_go_and_the_last_is_cut_until_a_table_fits():
    url = f"http://a.example/{'x' * 60}/end.html"
    columns = [
        Column("n", ["1"]),
        Column("first", ["11111111"], goes=1),
        Column("second", ["22222222"], goes=2),
        Column("", [""]),
        Column("page", [url], is_left=True),
    ]
    heads = {width: format_table(columns, width).split("\n")[0].split() for width in (None, 80, 68, 40, 10)}
    assert heads[None] == heads[80] == ["n", "first", "second", "page"]
    assert heads[68] == ["n", "second", "page"]
    assert heads[40] == heads[10] == ["n", "page"]
    for width in (80, 68, 40, 10):
        assert max(map(len, format_table(columns, width).split("\n"))) <= width
    assert format_table(columns, None).endswith(url)
    assert cut(url, 30) == "http://a.exampl…xxxxx/end.html"
