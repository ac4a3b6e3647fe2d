"""The kinds of store in a folder that can be tested here."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

KINDS = ["sqlite"] if find_spec("rocksdict") is None else ["rocksdb", "sqlite"]

needs_rocksdict = pytest.mark.skipif("rocksdb" not in KINDS, reason="needs rocksdict")
each_kind = pytest.mark.parametrize("kind", KINDS)
