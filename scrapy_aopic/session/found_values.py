"""What a visit has found, as callbacks and items get it."""

from __future__ import annotations

from datetime import datetime, timezone

from scrapy_aopic.core.revisits.found import NAMES, Found


def values_of(found: Found) -> dict[str, str | None]:
    """The values by :data:`~scrapy_aopic.core.revisits.found.NAMES`: a word, two times in ISO 8601 and a digest; ``None`` for what is not known."""
    times = (
        datetime.fromtimestamp(instant, timezone.utc).isoformat(timespec="milliseconds") if instant else None
        for instant in (found.first_seen, found.last_changed)
    )
    return dict(zip(NAMES, (found.what or None, *times, found.previous_digest.hex() or None), strict=True))
