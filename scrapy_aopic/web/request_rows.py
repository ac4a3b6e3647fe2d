"""Stored requests as bytes, read and written without Scrapy: what a job folder can be read with.

Most requests are for nothing but a URL: they are lines of it, of the names of callback and errback, of the depth and
the ``Referer`` that Scrapy's middlewares give each link, and of whether it is no link but asked for on purpose. Others
are MessagePack of the attributes that differ from their defaults. Tuples, sets, dates and decimals in ``meta`` and
``cb_kwargs`` come back as what they were. :mod:`.request_codec` makes them of requests, and requests of them.
"""

from __future__ import annotations

import datetime
import decimal
from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from collections.abc import Callable

PURPOSE = "_aopic_purpose"
"""Key of ``Request.meta`` of what the spider asks for on purpose; links, which are most, do without."""

UNREADABLE = "unreadable"
"""Outcome, with the reason after a colon, of a page whose request cannot be made; a request that can revives it."""

IN_MEMORY = b"\xc1"
"""First byte of what stands for a request that could not be written; MessagePack never uses it."""

_IN_MEMORY_BYTES = 9  # before the URL

_LINES = ("url", "callback", "errback", "depth", "referer", "purpose")
_FIRST_OF_MAP = 0x80  # a MessagePack map begins with this byte or a larger one, a URL with a letter

_MAX_NESTING = 64
"""Tuples, sets and the like inside one another: each takes 10 kB of the C stack, which ends the process when it is full."""

_EXTENSIONS: list[tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (tuple, list, tuple),
    (set, list, set),
    (frozenset, list, frozenset),
    (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    (
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda v: datetime.timedelta(*v),
    ),
    (decimal.Decimal, str, decimal.Decimal),
    (complex, lambda value: [value.real, value.imag], lambda value: complex(*value)),
]


def stand_in(url: str, number: int) -> bytes:
    """What is stored for a request for *url* that cannot be written; *number* distinguishes it from others of this process."""
    return IN_MEMORY + number.to_bytes(_IN_MEMORY_BYTES - 1, "big") + url.encode()


def encode_url(url: str) -> bytes:
    """Bytes of a request for nothing but *url*, in normal form, that is asked for on purpose."""
    return f"{url}\n\n\n\n\n1".encode()


def tail_of(callback: str, errback: str, depth: int, referer: str, *, is_on_purpose: bool) -> str:
    """What is written after the URL of a request for nothing but that.

    Args:
        callback, errback: Their names, ``""`` for none.
        depth: ``meta["depth"]``, 0 for none.
        referer: The only header, ``""`` for none.
    """
    return f"\n{callback}\n{errback}\n{depth or ''}\n{referer}\n{'1' if is_on_purpose else ''}".rstrip("\n")


def pack_values(values: dict[str, Any]) -> bytes:
    """Bytes of a request that is more than a URL, by its arguments that differ from their defaults.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: If one of them cannot be written.
    """
    data: bytes = msgpack.packb(values, default=_pack_other, strict_types=True)
    return data


def url_of(data: bytes) -> str:
    """URL of the request written as *data*, without making it; ``""`` if it cannot be read."""
    try:
        if data[:1] == IN_MEMORY:
            return data[_IN_MEMORY_BYTES:].decode()
        return str(values_of(data)["url"])
    except Exception:  # noqa: BLE001
        return ""


def values_of(data: bytes) -> dict[str, Any]:
    """The arguments of a request, by name, that are written as *data*."""
    if data[0] < _FIRST_OF_MAP:
        lines = zip(_LINES, data.decode().split("\n"), strict=False)
        plain: dict[str, Any] = {name: line for name, line in lines if line}
        if "depth" in plain:
            plain["meta"] = {"depth": int(plain.pop("depth"))}
        if "referer" in plain:
            plain["headers"] = {b"Referer": [plain.pop("referer").encode()]}
        if plain.pop("purpose", ""):
            plain["meta"] = {**plain.get("meta", {}), PURPOSE: True}
        return plain
    values: dict[str, Any] = msgpack.unpackb(data, ext_hook=_unpack_other, strict_map_key=False)
    return values


def _pack_other(value: Any) -> Any:
    if isinstance(
        value, str
    ):  # msgpack is strict about subclasses; those of plain types are written as these
        return str(value)
    for code, (kind, pack, _) in enumerate(_EXTENSIONS):
        if type(value) is kind:
            with _Nested():
                data = msgpack.packb(pack(value), default=_pack_other, strict_types=True)
            return msgpack.ExtType(code, data)
    raise TypeError(f"{type(value).__qualname__} {value!r}")


def _unpack_other(code: int, data: bytes) -> Any:
    with _Nested():
        return _EXTENSIONS[code][2](msgpack.unpackb(data, ext_hook=_unpack_other, strict_map_key=False))


class _Nested:
    """Bounds how deep extensions are inside one another."""

    _depth = 0

    def __enter__(self) -> None:
        if _Nested._depth >= _MAX_NESTING:
            raise ValueError(f"more than {_MAX_NESTING} tuples, sets or the like are inside one another")
        _Nested._depth += 1

    def __exit__(self, *_: object) -> None:
        _Nested._depth -= 1
