"""Commands that are killed, given twice at once, or cut off from their server: nothing is lost, nothing is there twice."""

from __future__ import annotations

import sys

import pytest
from support import redis_server

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("redis")
pytest.importorskip("hiredis")

from support.command_faults import CASES, WAYS, find_wrong

SHORT = [("import-redis", "killed"), ("export", "twice"), ("seed-server", "cut")]
ALL = [(name, way) for name, case in CASES.items() for way in WAYS if way != "cut" or case.speaks_to_server]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(("name", "way"), SHORT)
def test_some_steps_of_a_command_are_taken_once(name, way, tmp_path):
    n, wrong = find_wrong(tmp_path, name, way, **({"last": 3} if way != "cut" else {"each": 3}))
    assert (n > 1, wrong) == (True, [])


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(("name", "way"), ALL)
def test_whatever_step_a_command_does_not_take_it_can_be_given_again(name, way, tmp_path):
    n, wrong = find_wrong(tmp_path, name, way)
    assert (n > 1, wrong) == (True, [])
