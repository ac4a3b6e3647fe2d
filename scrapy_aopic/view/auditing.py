"""Whether everything in the store of a job holds, its requests included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.audit import Audit, audit
from scrapy_aopic.web.stored_requests import RequestReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.ports import Store


def audit_store(store: Store, progress: Callable[[int], object] = lambda _: None) -> Audit:
    """Check every invariant of the job in *store*, and read its requests.

    Args:
        progress: Called with the number of further pages that were looked at.

    Raises:
        StorageError: If the store cannot be read, was written in another format, or its totals are damaged.
    """
    return audit(store, progress=progress, wrong_request=RequestReader.of(store))
