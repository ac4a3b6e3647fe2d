"""Callbacks that a command of Scrapy's calls directly, so that no spider middleware sees what they yield."""

from __future__ import annotations

import sys
from functools import wraps
from inspect import (
    getattr_static,
    isasyncgen,
    isasyncgenfunction,
    iscoroutine,
    iscoroutinefunction,
    isfunction,
)
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy import Spider
from scrapy.utils.misc import arg_to_iter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from scrapy.crawler import Crawler

    Expand: TypeAlias = Callable[[object], Iterable[object]]

_COMMANDS = ("scrapy.commands.check", "scrapy.commands.parse")
_CALLERS = ("scrapy.", "twisted.", "asyncio.")


def are_made(crawler: Crawler) -> bool:
    """Whether *crawler* runs for a command that makes such calls: it has put a ``start()`` of its own into the spider."""
    return getattr(crawler.spidercls.start, "__module__", "") in _COMMANDS


def expand_output(spider: Spider, expand: Expand) -> None:
    """Have the callbacks of *spider* yield what *expand* makes of each thing that they yield."""
    for name in (set(dir(type(spider))) - set(dir(Spider))) | {"parse"}:
        function = getattr_static(type(spider), name)
        if isfunction(function):
            setattr(spider, name, MethodType(_expanding(function, expand), spider))


def _expanding(function: Callable[..., Any], expand: Expand) -> Callable[..., Any]:
    """*function*, of the same kind, which yields that if it is called as a callback, and not by another method."""
    if isasyncgenfunction(function):

        @wraps(function)
        async def generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for each in _later(function(*args, **kwargs), expand):
                yield each

        return generator
    if iscoroutinefunction(function):

        @wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            is_callback = _is_of_caller(sys._getframe(1).f_globals)
            found = await function(*args, **kwargs)
            return list(_now(found, expand)) if is_callback else found

        return coroutine

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if not _is_of_caller(sys._getframe(1).f_globals) or iscoroutine(found):
            return found
        return _later(found, expand) if isasyncgen(found) else _now(found, expand)

    return call


def _is_of_caller(names: dict[str, Any]) -> bool:
    """Whether the module with these *names* is one of those that call callbacks."""
    return str(names.get("__name__", "")).startswith(_CALLERS)


def _now(found: Any, expand: Expand) -> Iterator[Any]:
    for each in arg_to_iter(found):
        yield from expand(each)


async def _later(found: AsyncIterator[Any], expand: Expand) -> AsyncIterator[Any]:
    async for each in found:
        for one in expand(each):
            yield one
