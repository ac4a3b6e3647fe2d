"""A Scrapy request as bytes, and back.

Most requests are for nothing but a URL: they are lines of it, of the names of callback and errback, and of the depth and
the ``Referer`` that Scrapy's middlewares give each link. Others are MessagePack of the attributes that differ from their defaults. Tuples, sets, dates and decimals in ``meta`` and
``cb_kwargs`` come back as what they were; nothing is ever unpickled. A request that cannot be written this way
(a lambda as callback, an object in ``meta``) raises :class:`UnserialisableError`.
"""

from __future__ import annotations

import datetime
import decimal
import inspect
from typing import TYPE_CHECKING, Any

import msgpack
from scrapy import Request, Spider
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from ._engine import OWN_SLOT, SLOT
from .exceptions import AopicError

if TYPE_CHECKING:
    from collections.abc import Callable

TAG = "_aopic"
"""Key of ``Request.meta`` under which the scheduler keeps its own mark; never written."""

DUPLICATE_OF = "aopic_duplicate_of"
"""Key of ``Response.meta`` that holds the URL of the page that had the same text before; never written."""

SITEMAP = "_aopic_sitemap"
"""Key of ``Request.meta`` of a sitemap: the domain whose pages it may name, and whether an index named it."""

UNREADABLE = "unreadable"
"""Outcome, with the reason after a colon, of a page whose request cannot be made; a request that can revives it."""

IN_MEMORY = b"\xc1"
"""First byte of what stands for a request that could not be written; MessagePack never uses it."""

_IN_MEMORY_BYTES = 9  # before the URL

_LINES = ("url", "callback", "errback", "depth", "referer")
_FIRST_OF_MAP = 0x80  # a MessagePack map begins with this byte or a larger one, a URL with a letter

_NOT_WRITTEN = (TAG, OWN_SLOT, DUPLICATE_OF, "download_latency")
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


class UnserialisableError(AopicError, ValueError):
    """A request holds something that only lives in this process."""


class UnreadableError(AopicError, ValueError):
    """Stored bytes are no request of this spider."""


def stand_in(request: Request, number: int) -> bytes:
    """What is stored for a *request* that cannot be written; *number* tells it from others of this process."""
    return IN_MEMORY + number.to_bytes(_IN_MEMORY_BYTES - 1, "big") + request.url.encode()


def encode(request: Request, spider: Spider) -> bytes:
    """Bytes of *request*, whose callback and errback must be methods of *spider*.

    Raises:
        UnserialisableError: If it holds what cannot be written.
    """
    try:
        values = _attributes(request)
        headers: dict[Any, Any] = dict(request.headers)
        meta = {key: value for key, value in request.meta.items() if key not in _NOT_WRITTEN}
        if meta.get(SLOT) is not None and meta[SLOT] == request.meta.get(OWN_SLOT):
            del meta[SLOT]
        callback = _method_name(spider, request.callback) if request.callback is not None else ""
        errback = _method_name(spider, request.errback) if request.errback is not None else ""
        if len(values) == 1 and _is_line(values["url"]) and (rest := _plain(headers, meta)) is not None:
            return f"{values['url']}\n{callback}\n{errback}\n{rest}".rstrip("\n").encode()
        others = {"headers": headers, "meta": meta, "callback": callback, "errback": errback}
        values |= {name: value for name, value in others.items() if value}
        data: bytes = msgpack.packb(values, default=_pack_other, strict_types=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnserialisableError(f"{request} cannot be written to the job folder: {error}") from error
    return data


def _plain(headers: dict[bytes, list[bytes]], meta: dict[str, Any]) -> str | None:
    """Depth and referer as lines; ``None`` if there is more to *headers* and *meta*."""
    depth = referer = ""
    if meta:
        if meta.keys() != {"depth"} or type(meta["depth"]) is not int:
            return None
        depth = str(meta["depth"])
    if headers:
        if headers.keys() != {b"Referer"} or len(headers[b"Referer"]) != 1:
            return None
        referer = headers[b"Referer"][0].decode("latin-1")
        if not _is_line(referer):
            return None
    return f"{depth}\n{referer}"


def _is_line(text: str) -> bool:
    return text.isascii() and text.isprintable() and text != ""


def _attributes(request: Request) -> dict[str, Any]:
    """What tells *request* from others, but for headers, meta, callback and errback."""
    if type(request) is not Request:  # a subclass may have attributes of its own
        omitted = ("callback", "errback", "headers", "meta")
        values = {name: getattr(request, name) for name in request.attributes if name not in omitted}
        return {**values, "_class": global_object_name(type(request))}
    values = {"url": request.url}
    if request.method != "GET":
        values["method"] = request.method
    if request.encoding != "utf-8":
        values["encoding"] = request.encoding
    for name in ("body", "priority", "dont_filter", "flags", "cookies", "cb_kwargs"):
        value = getattr(request, name)
        if value:
            values[name] = value
    return values


def decode(data: bytes, spider: Spider) -> Request:
    """The request written as *data*, with callbacks bound to *spider*.

    Raises:
        UnreadableError: If it cannot be made; the message says why.
    """
    try:
        values = _values(data)
        cls = load_object(values.pop("_class")) if "_class" in values else Request
        for name in ("callback", "errback"):
            if name in values:
                values[name] = getattr(spider, values[name])
        request: Request = cls(**values)
    except Exception as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from error
    return request


def url_of(data: bytes) -> str:
    """URL of the request written as *data*, without making it; ``""`` if it cannot be read."""
    try:
        if data[:1] == IN_MEMORY:
            return data[_IN_MEMORY_BYTES:].decode()
        return str(_values(data)["url"])
    except Exception:  # noqa: BLE001
        return ""


def _values(data: bytes) -> dict[str, Any]:
    """The arguments of a request, by name, that are written as *data*."""
    if data[0] < _FIRST_OF_MAP:
        lines = zip(_LINES, data.decode().split("\n"), strict=False)
        plain: dict[str, Any] = {name: line for name, line in lines if line}
        if "depth" in plain:
            plain["meta"] = {"depth": int(plain.pop("depth"))}
        if "referer" in plain:
            plain["headers"] = {b"Referer": [plain.pop("referer").encode()]}
        return plain
    values: dict[str, Any] = msgpack.unpackb(data, ext_hook=_unpack_other, strict_map_key=False)
    return values


def _method_name(spider: Spider, method: Callable[..., Any]) -> str:
    """Name of *method* on *spider*."""
    if getattr(method, "__self__", None) is spider:
        name = str(getattr(method, "__name__", ""))
        if getattr(spider, name, None) == method:
            return name
        for name, member in inspect.getmembers(spider, inspect.ismethod):  # a private name is mangled
            if member == method:
                return name
    raise ValueError(f"{method!r} is no method of the spider {spider.name!r}")


def _pack_other(value: Any) -> Any:
    if isinstance(
        value, str
    ):  # msgpack is strict about subclasses; those of plain types are written as these
        return str(value)
    for code, (kind, pack, _) in enumerate(_EXTENSIONS):
        if type(value) is kind:
            return msgpack.ExtType(code, msgpack.packb(pack(value), default=_pack_other, strict_types=True))
    raise TypeError(f"{type(value).__qualname__} {value!r}")


def _unpack_other(code: int, data: bytes) -> Any:
    return _EXTENSIONS[code][2](msgpack.unpackb(data, ext_hook=_unpack_other, strict_map_key=False))
