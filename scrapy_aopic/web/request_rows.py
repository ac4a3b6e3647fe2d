"""Stored requests as bytes, read and written without Scrapy, so that a job folder can be read without it.

Most requests have only a URL: they are stored as lines with the URL, the names of callback and errback, the depth and the
``Referer`` that Scrapy's middlewares give each link, and whether the spider requested it on purpose rather than as a
link. Others are MessagePack of the attributes that differ from their defaults. Tuples, sets, dates and decimals in
``meta`` and ``cb_kwargs`` keep their types. :mod:`.request_codec` converts between these bytes and requests.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

import msgspec

from scrapy_aopic.exceptions import ANY_ERROR

from .origins import origin_of

PURPOSE = "_aopic_purpose"
"""Key of ``Request.meta`` of what the spider asks for on purpose; links, which are most, do without."""

SLOT = "download_slot"
"""Key of ``Request.meta`` that names the download slot; the downloader sets it if the user does not."""

SEEDED = "seed"
"""Value under that key of a seed, also if ``start()`` yields it; of what callbacks request on purpose it is ``True``."""

SEEDED_LINE = "s"
"""The same as the last line of a request."""

IN_MEMORY = b"\xc1"
"""First byte of what stands for a request that could not be written; MessagePack never uses it."""

_CODE_BYTES = 8  # behind the first byte
_PURPOSE_BYTES = 4
_IN_MEMORY_BYTES = 1 + _CODE_BYTES + _PURPOSE_BYTES  # before the URL
_ON_PURPOSE = 0x80  # in the first of them behind the code

_DEEPEST = 1 << 31
"""A depth that no link has."""

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
    (bytearray, bytes, bytearray),
    (dict, lambda value: list(value.items()), dict),  # with a key that is one of the above
]

_PLAIN = frozenset((type(None), bool, int, float, str, bytes))


def stand_in(url: str, number: int, *, waits: bool = True, purpose: bytes = b"") -> bytes:
    """The bytes to store for a request for *url* that cannot be serialised; *number* is unique in this process.

    Args:
        waits: Whether it is a link or a seed, see :func:`waits_for`.
        purpose: See :func:`purpose_of`; empty for one that no other request has.
    """
    code = number if waits else number | _ON_PURPOSE << 8 * (_CODE_BYTES - 1)
    purpose = purpose or purpose_named("", "", {"": number})
    return IN_MEMORY + code.to_bytes(_CODE_BYTES, "big") + purpose + url.encode()


def purpose_named(callback: str, errback: str, cb_kwargs: Mapping[str, Any]) -> bytes:
    """A digest of what a request is for; *callback* and *errback* are names, ``""`` for none.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: If *cb_kwargs* cannot be written.
    """
    named = "" if callback == "parse" else callback, errback, sorted(cb_kwargs.items())
    return blake2b(_encode(_plain([*named])), digest_size=_PURPOSE_BYTES).digest()


def purpose_of(data: bytes) -> bytes:
    """What the request written as *data* is for: a digest of its callback, errback and ``cb_kwargs``; empty if it cannot be read."""
    if data[:1] == IN_MEMORY:
        return data[1 + _CODE_BYTES : _IN_MEMORY_BYTES]
    try:
        values = values_of(data)
        return purpose_named(
            values.get("callback", ""), values.get("errback", ""), values.get("cb_kwargs", {})
        )
    except ANY_ERROR:
        return b""


def purpose_line(value: object) -> str:
    """The last line of a request with *value* under :data:`PURPOSE`."""
    return SEEDED_LINE if value == SEEDED else "1"


def encode_url(url: str) -> bytes:
    """Bytes of a request for nothing but *url*, in normal form, which is a seed."""
    return f"{url}\n\n\n\n\n{SEEDED_LINE}".encode()


def tail_of(callback: str, errback: str, depth: int, referer: str, *, is_on_purpose: bool) -> str:
    """The bytes after the URL of a request that has only a URL.

    Args:
        callback, errback: Their names, ``""`` for none.
        depth: ``meta["depth"]``, 0 for none.
        referer: The only header, ``""`` for none.
    """
    return f"\n{callback}\n{errback}\n{depth or ''}\n{referer}\n{'1' if is_on_purpose else ''}".rstrip("\n")


def is_packed(data: bytes) -> bool:
    """Whether *data* is MessagePack, and no lines of text."""
    return data[0] >= _FIRST_OF_MAP


def pack_values(values: dict[str, Any]) -> bytes:
    """Bytes of a request that is more than a URL, by its arguments that differ from their defaults.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: If one of them cannot be written.
    """
    return _encode(_plain(values))


def url_of(data: bytes) -> str:
    """URL of the request written as *data*, without making it; ``""`` if it cannot be read."""
    return url_and_depth(data)[0]


def url_and_depth(data: bytes) -> tuple[str, int | None]:
    """URL of the request written as *data*, and its depth, which is ``None`` if it is not kept; see :func:`url_of`."""
    try:
        if data[:1] == IN_MEMORY:
            return data[_IN_MEMORY_BYTES:].decode(), None
        values = values_of(data)
        url, depth = str(values["url"]), values.get("meta", {}).get("depth", 0)
    except ANY_ERROR:
        return "", None
    return url, depth if type(
        depth
    ) is int and 0 <= depth <= _DEEPEST else None  # a spider may have set it to anything


def is_patient(meta: Mapping[str, Any], errback: object) -> bool:
    """Whether a request with *meta* and *errback* waits for its host: a link or a seed whose failure has no errback."""
    return bool(meta.get(PURPOSE, SEEDED) == SEEDED and not errback)


def directory_of(data: bytes) -> bytes:
    """The directory that the request written as *data* is for: the path of its URL from the first to the last slash.

    Empty for the root of a host, which is no directory but where all are in, and if there is no such URL.
    """
    is_line = bool(data) and not is_packed(data)
    url = data.partition(b"\n")[0] if is_line else url_of(data).encode("utf-8", "surrogatepass")
    path = url.partition(b"?")[0].partition(b"#")[0]
    begin = path.find(b"/", path.find(b"://") + 3)
    return path[begin + 1 : path.rfind(b"/")] if begin >= 0 else b""


# Numbers in a row are one, so that the days of a calendar are of the same make as its months. Begins with a set of characters,
# as whatever does not is passed over quickly.
_VARIES = re.compile(rb"[0-9a-f](?:[0-9a-f]{7,}|(?<=\d)\d*)(?:[/.,_-]+(?:[0-9a-f]{8,}|\d+))*/?")


def group_of(data: bytes) -> bytes:
    """What the URL of the request written as *data* has in common with others of its make: its path without numbers, and not its query.

    Empty if it has neither of them, or if there is no such URL.
    """
    is_line = bool(data) and not is_packed(data)
    url = data.partition(b"\n")[0] if is_line else url_of(data).encode("utf-8", "surrogatepass")
    path, mark, _ = url.partition(b"#")[0].partition(b"?")
    begin = path.find(b"/", path.find(b"://") + 3)
    group, n = _VARIES.subn(b"*", path[begin:]) if begin >= 0 else (b"", 0)
    return group + mark if n or mark else b""


def waits_for(data: bytes) -> tuple[str, bool]:
    """Name of the origin that the request written as *data* is for, and whether it waits while that is silent.

    Links and seeds do. Requests that the spider makes on purpose, or with an errback, fail instead, so that it learns of it.
    """
    if data[:1] == IN_MEMORY:
        url, is_link = url_of(data), not data[1] & _ON_PURPOSE
    else:
        try:
            values = values_of(data)
        except ANY_ERROR:  # it is set aside when it is to be made
            return "", True
        url = str(values.get("url", ""))
        is_link = is_patient(values.get("meta", {}), values.get("errback"))
    try:
        parts = urlsplit(url)
        return origin_of(parts.scheme, parts.netloc), is_link
    except ValueError:
        return "", is_link


def values_of(data: bytes) -> dict[str, Any]:
    """The arguments of a request, by name, that are written as *data*."""
    if not is_packed(data):
        lines = zip(_LINES, data.decode().split("\n"), strict=False)
        plain: dict[str, Any] = {name: line for name, line in lines if line}
        if "depth" in plain:
            plain["meta"] = {"depth": int(plain.pop("depth"))}
        if "referer" in plain:
            plain["headers"] = {b"Referer": [plain.pop("referer").encode()]}
        if purpose := plain.pop("purpose", ""):
            plain["meta"] = {**plain.get("meta", {}), PURPOSE: SEEDED if purpose == SEEDED_LINE else True}
        return plain
    values: dict[str, Any] = _decode(data)
    return values


def _plain(value: Any) -> Any:
    """*value* as what MessagePack has: it would write a tuple as a list, a date as a text, and an object as a dictionary."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [*map(_plain, value)]
    if kind is dict and _PLAIN.issuperset(map(type, value)):
        return {key: each if type(each) in _PLAIN else _plain(each) for key, each in value.items()}
    for code, (extension, pack, _) in enumerate(_EXTENSIONS):
        if kind is extension:
            with _Nested():
                return msgspec.msgpack.Ext(code, _encode(_plain(pack(value))))
    if isinstance(value, str):  # a subclass
        return str(value)
    raise TypeError(f"{kind.__qualname__} {value!r}")


def _unpack_other(code: int, data: memoryview) -> Any:
    with _Nested():
        return _EXTENSIONS[code][2](_decode(data))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ext_hook=_unpack_other).decode


class _Nested:
    """Bounds how deep extensions are inside one another."""

    _depth = 0

    def __enter__(self) -> None:
        if _Nested._depth >= _MAX_NESTING:
            raise ValueError(f"more than {_MAX_NESTING} tuples, sets or the like are inside one another")
        _Nested._depth += 1

    def __exit__(self, *_: object) -> None:
        _Nested._depth -= 1
