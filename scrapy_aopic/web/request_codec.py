"""A Scrapy request as bytes, and back; :mod:`.request_rows` describes the bytes.

A request that cannot be written this way (a lambda as callback, an object in ``meta``) raises
:class:`UnserialisableError`. Bytes from a stranger run no code of theirs: nothing is unpickled or imported, a
class must be a subclass of ``Request`` that the process has loaded, and a callback a method that the spider's own classes
define.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from types import MethodType
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.python import global_object_name

from scrapy_aopic.exceptions import ANY_ERROR, AopicError

from .meta import (
    CONTENT_USAGE,
    COPY_OF,
    DUPLICATE_OF,
    FOUND,
    OWN_SLOT,
    RELEVANCE,
    ROBOTS_MARKS,
    STATED_USAGE,
    TAG,
)
from .request_rows import PURPOSE, SLOT, pack_values, purpose_line, purpose_named, values_of

_NO_CALLBACKS = {name for name in dir(Spider) if name not in ("parse", "_parse")} | {"closed"}
"""Methods that Scrapy calls itself, or spiders call."""

_UNCHANGEABLE = frozenset((type(None), bool, int, float, str, bytes))
"""Types of values that cannot be distinguished from a copy."""

_NOT_WRITTEN = (
    *(TAG, OWN_SLOT, DUPLICATE_OF, COPY_OF, FOUND, RELEVANCE, ROBOTS_MARKS, CONTENT_USAGE, STATED_USAGE),
    "download_latency",
)
_SENT_META = ("proxy", "_auth_proxy", "_scheme_proxy", "download_timeout")
_SENT_HEADERS = (
    "Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cookie", "Proxy-Authorization", "User-Agent",
)  # fmt: skip


_all_but_url = attrgetter(*sorted({*Request.__slots__} - {"__weakref__", "_url", "callback", "errback"}))
_ALL_AT_DEFAULT = _all_but_url(Request("data:,"))
"""Attributes of a request but its URL and its callbacks, as long as none was set, and none looked at that is made then."""

_MOST_LOOKED_AT = 100
"""Values of a request from which on no more are looked at for those that it shares with others."""


class UnserialisableError(AopicError, ValueError):
    """A request holds something that only lives in this process."""


class UnreadableError(AopicError, ValueError):
    """Stored bytes are no request of this spider."""


def encode(request: Request, spider: Spider) -> bytes:
    """Bytes of *request*, whose callback and errback must be methods of *spider*.

    Raises:
        UnserialisableError: If it holds what cannot be written.
    """
    try:
        callback, errback = _names(request, spider)
        data = _lines(request, callback, errback)
        if data is None:
            data = _packed(request, callback, errback)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnserialisableError(f"{request} cannot be written to the job folder: {error}") from error
    return data


def purpose(request: Request, spider: Spider) -> bytes:
    """What *request* is for, as :func:`.request_rows.purpose_of` says of its bytes; empty if it cannot be written."""
    try:
        return purpose_named(*_names(request, spider), request.cb_kwargs)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return b""


def is_plain(request: Request) -> bool:
    """Whether *request* is for nothing but a URL: all but that, callback and errback are at their defaults."""
    if type(request) is not Request:  # a subclass may have attributes of its own
        return False
    # Nearly all of those that are, and nobody has looked at: each look at ``headers`` would make some.
    return _all_but_url(request) == _ALL_AT_DEFAULT or (
        not request.meta
        and request.method == "GET"
        and not request.dont_filter
        and not request.priority
        and not request.headers
        and request.encoding == "utf-8"
        and not request.cb_kwargs
        and not request.body
        and not request.cookies
        and not request.flags
    )


def is_like_its_copy(request: Request) -> bool:
    """Whether *request* cannot be distinguished from one that is made of its bytes, except by identity."""
    return (
        type(request) is Request
        and not request.cookies
        and all(_is_unchangeable(value) for key, value in request.meta.items() if key not in _NOT_WRITTEN)
        and all(map(_is_unchangeable, request.cb_kwargs.values()))
    )


def _is_unchangeable(value: object) -> bool:
    kind = type(value)
    return kind in _UNCHANGEABLE or (kind is tuple and all(map(_is_unchangeable, value)))  # type: ignore[call-overload]


def changeable(request: Request) -> Iterator[tuple[str, object]]:
    """Mutable values in ``meta`` and ``cb_kwargs`` of *request*, which a copy does not share, and where they are.

    Deeply nested values, and those after hundreds of others, are left out.
    """
    found = [
        (f"{name}[{key!r}]", value)
        for name, values in (("meta", request.meta), ("cb_kwargs", request.cb_kwargs))
        for key, value in values.items()
        if key not in _NOT_WRITTEN
    ]
    for where, value in found:  # which grows
        kind = type(value)
        if kind in _UNCHANGEABLE:
            continue
        if kind is not tuple and kind is not frozenset:
            yield where, value
        if isinstance(value, (dict, list, tuple, set, frozenset)) and len(found) < _MOST_LOOKED_AT:
            inside = value.values() if isinstance(value, dict) else value
            found += [(where, each) for each in islice(inside, _MOST_LOOKED_AT)]


def _names(request: Request, spider: Spider) -> tuple[str, str]:
    """Names of the callback and the errback of *request*, ``""`` for none.

    Raises:
        ValueError: If one of them is no callback of *spider*.
    """
    return (
        name_of(spider, request.callback) if request.callback is not None else "",
        name_of(spider, request.errback) if request.errback is not None else "",
    )


def _lines(request: Request, callback: str, errback: str) -> bytes | None:
    """*request* as lines, which most requests are; ``None`` if there is more to it than lines can say."""
    url = request.url
    is_plain = not (
        type(request) is not Request  # a subclass may have attributes of its own
        or request.method != "GET"
        or request.encoding != "utf-8"
        or request.body
        or request.priority
        or request.dont_filter
        or request.flags
        or request.cookies
        or request.cb_kwargs
        or not (url.isascii() and url.isprintable())
    )
    if not is_plain:
        return None
    depth = referer = purpose = ""
    for key, value in request.meta.items():
        if key == "depth" and type(value) is int:
            depth = str(value)
        elif key == PURPOSE:
            purpose = purpose_line(value)
        elif key not in _NOT_WRITTEN and not _is_own_slot(request, key):
            return None
    if request.headers:
        headers: dict[bytes, list[bytes]] = dict(request.headers)
        if headers.keys() != {b"Referer"} or len(headers[b"Referer"]) != 1:
            return None
        referer = headers[b"Referer"][0].decode("latin-1")
        if not (referer and referer.isascii() and referer.isprintable()):
            return None
    return f"{url}\n{callback}\n{errback}\n{depth}\n{referer}\n{purpose}".rstrip("\n").encode()


def _packed(request: Request, callback: str, errback: str) -> bytes:
    """*request* as its attributes that differ from their defaults."""
    meta = {
        key: value
        for key, value in request.meta.items()
        if key not in _NOT_WRITTEN and not _is_own_slot(request, key)
    }
    others = {"headers": dict(request.headers), "meta": meta, "callback": callback, "errback": errback}
    return pack_values(_attributes(request) | {name: value for name, value in others.items() if value})


def _is_own_slot(request: Request, key: str) -> bool:
    """Whether *key* is that of a download slot that the user did not choose."""
    slot = request.meta[key] if key == SLOT else None
    return slot is not None and slot == request.meta.get(OWN_SLOT)


def _attributes(request: Request) -> dict[str, Any]:
    """The attributes of *request* that differ from their defaults, except headers, meta, callback and errback."""
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
        if not data:
            raise ValueError("its row in the store is empty or gone")
        values = values_of(data)
        cls = _loaded(values.pop("_class")) if "_class" in values else Request
        if others := values.keys() - set(cls.attributes):
            raise ValueError(f"{cls.__name__} has no {min(others, key=str)!r}")
        for name in ("callback", "errback"):
            if name in values:
                values[name] = _method(spider, values[name])
        request = cls(**values)
    except ANY_ERROR as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from error
    return request


def forget_transfer(copy: Request, sent: Request, asked: Request) -> None:
    """Take from *copy* what Scrapy's downloader middlewares had added to *sent*, which the spider yielded as *asked*.

    They add it again to each request that goes out, by the settings and the environment of that run; kept, it would
    bring back a proxy that is no more, and write passwords to the disk. What another middleware has changed in the
    copy stays.
    """
    for name in _SENT_META:
        if name in copy.meta and name in sent.meta and copy.meta[name] == sent.meta[name]:
            if name in asked.meta:
                copy.meta[name] = asked.meta[name]
            else:
                del copy.meta[name]
    for name in _SENT_HEADERS:
        values = copy.headers.getlist(name)
        if values and values == sent.headers.getlist(name):
            copy.headers.setlist(name, asked.headers.getlist(name))
            if name not in asked.headers:
                del copy.headers[name]


def _loaded(name: str) -> type[Request]:
    """The subclass of ``Request`` called *name*; none is imported for it, because a module runs code."""
    for cls in _subclasses(Request):
        if global_object_name(cls) == name:
            return cls
    raise ValueError(f"{name!r} is no subclass of Request that the spider's modules have imported")


def _subclasses(cls: type[Request]) -> Iterator[type[Request]]:
    for each in reversed(cls.__subclasses__()):  # of two with one name the later one
        yield each
        yield from _subclasses(each)


def _method(spider: Spider, name: str) -> Callable[..., Any]:
    """The method called *name*, which *spider* has beside those of every spider; nothing is evaluated to find out."""
    if is_callback(spider, name):
        method: Callable[..., Any] = getattr(spider, name)
        if getattr(method, "__self__", None) is spider:
            return method
    raise ValueError(f"the spider {spider.name!r} has no callback {name!r}")


def is_callback(spider: Spider, name: str) -> bool:
    is_method = _has_method(type(spider), name)  # type: ignore[arg-type]  # mypy takes the class for an instance
    return is_method or isinstance(vars(spider).get(name), MethodType)


@lru_cache(1000)
def _has_method(cls: type, name: str) -> bool:
    """Whether *name* is that of a method in *cls*, and no property, and nothing that Scrapy calls itself."""
    if name in _NO_CALLBACKS or (name.startswith("__") and name.endswith("__")):
        return False
    found = inspect.getattr_static(cls, name, None)
    return callable(found) and not isinstance(found, (staticmethod, type))


def name_of(spider: Spider, method: Callable[..., Any]) -> str:
    """Name of *method* on *spider*.

    Raises:
        ValueError: If it is no callback of it.
    """
    if getattr(method, "__self__", None) is spider:
        name = getattr(method, "__name__", "")
        if is_callback(spider, name) and getattr(spider, name) == method:
            return str(name)
        function = getattr(method, "__func__", None)
        for cls in type(spider).__mro__:  # a private name is mangled
            for name, member in vars(cls).items():
                if member is function and is_callback(spider, name) and getattr(spider, name) == method:
                    return name
    raise ValueError(f"{method!r} is no callback of the spider {spider.name!r}")
