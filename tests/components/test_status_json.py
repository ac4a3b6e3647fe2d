"""``scrapy aopic status --json`` has one shape for every kind of job: what it writes of each is kept in ``tests/golden/status``.

To write these files anew: ``AOPIC_WRITE_GOLDEN=1 python -m pytest tests/components/test_status_json.py``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from support import redis_server
from support.commands import run_here
from support.crawls import on_server
from support.small_web import Follow, crawl
from support.stored_jobs import make_job

from scrapy_aopic.copies.backing_up import backup
from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.place.stored_control import change_control
from scrapy_aopic.storage import Address
from scrapy_aopic.view.history import FILE_NAME

GOLDEN = Path(__file__).parents[1] / "golden" / "status"

PAGES: dict[str, Any] = {
    "http://a.test/": ["/1", "/none", "http://b.test/", "http://c.test/"],
    "http://a.test/1": ["/"],
    "http://b.test/": ["http://a.test/"],
    "http://c.test/": [],
}

VARIES = {
    "at",
    "created_at",
    "counted_since",
    "size_bytes",
    "seconds",
    "not_before",
    "bytes",
    "name",
    "url",
    "sent",
    "worker",
}
"""Figures of which only the type is kept: those of time, and where things are."""

COUNTS = {"durations", "due_in", "front_queues", "ready_queues", "flight_queues", "waits"}
"""Distributions over time and cash, of which only the type is kept."""


BY_REASON = {"outcomes", "deferred", "refused", "dropped"}
"""Counts in the order in which their reasons came up."""

OF_TYPES = {"ledger", "slow", "failing", "waiting"}
"""What depends on the order in which pages came, and on which host was slowest."""


def types(value: Any) -> Any:
    """*value* with the types of figures instead of these."""
    if isinstance(value, dict):
        return {key: types(each) for key, each in value.items()}
    return value if value is None else f"<{type(value).__name__}>"


def normal(value: Any, name: str = "") -> Any:
    """*value* without what varies from run to run; of a list the first row."""
    if name in OF_TYPES and not isinstance(value, int):
        return types(value) if isinstance(value, dict) else [types(each) for each in value[:1]]
    if isinstance(value, dict) and name not in COUNTS:
        rows = sorted(value.items()) if name in BY_REASON else value.items()
        return {key: normal(each, key) for key, each in rows}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [normal(value[0], name)] if name != "each" else [normal(each, name) for each in value]
    if name in COUNTS or name in VARIES or isinstance(value, float):
        return value if value in (None, "", 0, [], {}) else f"<{type(value).__name__}>"
    return value


def check(kind: str, capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Compare what is written of a *kind* of job with what was once."""
    capsys.readouterr()
    code, out, _ = run_here(capsys, "status", "--json", *arguments)
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    text = json.dumps(normal(found), indent=1) + "\n"
    text = re.sub(r"at home in [^,]+", "at home in MACHINE", text.replace(str(arguments[0]), "JOB"))
    path = GOLDEN / f"{kind}.json"
    if os.environ.get("AOPIC_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    return found


def test_a_job_in_a_folder_that_was_not_crawled(tmp_path, capsys):
    make_job(tmp_path / "job", "sqlite", 10)
    counted = check("folder", capsys, tmp_path / "job")
    assert check("folder-totals", capsys, tmp_path / "job", "--totals") == {**counted, "counted": None}


def test_a_job_in_a_folder_with_a_history_and_what_an_operator_asks(tmp_path, capsys):
    make_job(tmp_path / "job", "sqlite", 10)
    row = "-10.0,politeness,1.5,2000.0,200,600,0.25,0.01"
    columns = "at,verdict.limit,rate.pages,rate.bytes,machine.memory,machine.memory_limit,machine.cpu,machine.loop_lag"
    (tmp_path / "job" / FILE_NAME).write_text(f"{columns}\n{row}\n")
    change_control(FolderPlace(tmp_path / "job"), lambda _: Control().paused(1.0).limited(connections=3))
    check("folder-with-history", capsys, tmp_path / "job")


def test_all_kinds_have_one_shape():
    def shape(value: Any) -> Any:
        return {key: shape(each) for key, each in value.items()} if isinstance(value, dict) else None

    shapes = [shape(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(GOLDEN.glob("*.json"))]
    assert len(shapes) == 7

    def merge(one: Any, other: Any) -> Any:
        """Both, of which either may lack what is ``None``."""
        if one is None or other is None or not one or not other:
            return one or other
        assert one.keys() == other.keys()
        return {key: merge(one[key], other[key]) for key in one}

    merged = shapes[0]
    for each in shapes:
        each["outcomes"] = each["deferred"] = each["refused"] = each["dropped"] = None
        if each["counted"] is not None:
            each["counted"]["outcomes"] = None
        merged = merge(merged, each)


needs_server = pytest.mark.skipif(redis_server.find_server() is None, reason=redis_server.WHY_NOT)


@pytest.mark.slow
@needs_server
@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("kind", ["server", "shards", "folders"])
async def test_a_job_on_a_server(serve, server, tmp_path, capsys, kind):
    serve(PAGES)
    extras: dict[str, dict[str, Any]] = {
        "server": {},
        "shards": {"AOPIC_SHARDS": 2},
        "folders": {"AOPIC_SHARDS": "1x2", "AOPIC_STORE": "sqlite", "JOBDIR": tmp_path / "disk"},
    }
    await crawl(Follow, on_server(server.url, 1, **extras[kind]))
    address = Address("aopic:follow", server.url)
    if kind == "folders":
        (tmp_path / "disk").rename(tmp_path / "elsewhere")
    check(kind, capsys, address)
    if kind == "shards":
        backup(ServerPlace(address), tmp_path / "copy")
        check("copy-in-shards", capsys, tmp_path / "copy")
