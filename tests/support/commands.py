"""``scrapy aopic`` as a user runs it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scrapy.cmdline import execute
from scrapy.settings import Settings

from . import processes


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def run_here(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and errors of the command with these *arguments*, in this process."""
    with pytest.raises(SystemExit) as ended:
        execute(["scrapy", "aopic", *map(str, arguments)], Settings())
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def run_aopic(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the command with these *arguments* says in *folder*, whatever that is; a traceback is never a part of it.

    Its process can import what this one can.
    """
    line = [sys.executable, "-m", "scrapy", "aopic", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = processes.run_and_read(line, cwd=folder, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def said(folder: Path, *arguments: object) -> str:
    """What the command prints, which has to succeed."""
    done = run_aopic(*arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
