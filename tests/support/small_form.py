"""Runs a command of the docs in this process, and the processes of Python that it starts by forking this one.

``python small_form.py COMMAND`` does what ``COMMAND`` does, where that is ``python SCRIPT ...`` or ``python -m MODULE ...``
without the ``python``; ``python small_form.py --parse FILE`` takes each line of FILE as such a
command, does no more than to start it and to read its options, and prints as JSON what was wrong with each.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

_PATH = list(sys.path[1:])

_run = subprocess.run
_AS_FORKED = {"capture_output", "check", "cwd", "env", "stderr", "stdout", "text"}


class Parsed(BaseException):
    """The options have been read."""


def be(words: list[str]) -> None:
    """Do as ``python`` with *words*."""
    first = words[0]
    is_module = first == "-m"
    sys.argv[:] = words[1:] if is_module else words
    sys.path[:] = [str(Path.cwd()) if is_module else str(Path(first).parent), *_PATH]
    if is_module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


def forked(line: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
    """What ``subprocess.run`` gives; a Python of ours that says what it has to say to files is forked off."""
    is_ours = isinstance(line, list) and line[0] == sys.executable and str(line[1]).endswith((".py", "bench"))
    if not is_ours or options.keys() - _AS_FORKED or not options.get("text"):
        return _run(line, **options)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            code = 1
            try:
                if options.get("capture_output") or options.get("stdout") is not None:
                    os.dup2(out.fileno(), 1)
                if options.get("capture_output") or options.get("stderr") is not None:
                    os.dup2(err.fileno(), 2)
                os.chdir(options.get("cwd") or ".")
                given = options.get("env")
                if given is not None:
                    os.environ.clear()
                    os.environ.update(given)
                be([str(word) for word in line[1:]])
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:  # noqa: BLE001 - as the interpreter does
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read())
    done = subprocess.CompletedProcess(line, os.waitstatus_to_exitcode(status), *said)
    if options.get("check"):
        done.check_returncode()
    return done


def parse(words: list[str]) -> str:
    """Start *words* and read its options; returns what is wrong."""
    real = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        real(parser, *args, **kwargs)
        raise Parsed

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign, assignment]
    try:
        be(words)
    except Parsed:
        return ""
    except SystemExit as end:
        return f"it ended with {end.code} before its options were read"
    except BaseException:  # noqa: BLE001 - told to who asked
        return traceback.format_exc()
    finally:
        argparse.ArgumentParser.parse_args = real  # type: ignore[method-assign]
    return "it ended without options"


if __name__ == "__main__":
    if sys.argv[1] == "--parse":
        commands = [shlex.split(line) for line in Path(sys.argv[2]).read_text("utf-8").splitlines()]
        sys.stdout.write(json.dumps([parse(words) for words in commands]) + "\n")
    else:
        subprocess.run = forked  # type: ignore[assignment]
        be(sys.argv[1:])
