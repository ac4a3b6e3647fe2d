"""Names the case at which a test that loops over a table has failed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Say *what* case it was if the block fails, also if it should have raised an error and has not."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"in the case {what!r}") from error
