"""What Windows and macOS do not have is not needed: all modules are imported, and a job is crawled, read, copied and salvaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from support import other_system
from support.small_web import check

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="takes away what only Linux has"),
]

HOME = "http://www.example.com/"
PAGES: dict[str, Any] = {HOME: ["/1", "/2"], f"{HOME}1": ["/2"], f"{HOME}2": []}


@pytest.mark.parametrize(
    ("system", "store"),
    [("win32", "rocksdb"), ("darwin", "sqlite"), pytest.param("win32", "sqlite", marks=pytest.mark.long)],
)
def test_a_job_lives_on_another_system(serve, tmp_path, system, store):
    web = serve(PAGES)
    settings = [
        "-s",
        f"AOPIC_STORE={store}",
        "-s",
        "AOPIC_POLITENESS_FACTOR=0",
        "-s",
        "AOPIC_DASHBOARD=127.0.0.1:0",
    ]
    commands = [
        ["crawl", HOME, "--contact", "https://example.org/", "--job", "job", "-o", "items.csv", *settings],
        ["status", "job"],
        ["top", "job"],
        ["control", "job", "block", "other.example"],
        ["export", "job", "--pages", "pages.csv"],
        ["backup", "job", "copy"],
        ["salvage", "copy", "new"],
        ["check", "new"],
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "warn_default_encoding",
            other_system.__file__,
            system,
            *map(json.dumps, commands),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    assert sorted(web.asked) == sorted(PAGES)
    assert check(tmp_path / "job").visited == check(tmp_path / "copy").visited == len(PAGES)
    assert b"\r\r" not in (tmp_path / "items.csv").read_bytes()
