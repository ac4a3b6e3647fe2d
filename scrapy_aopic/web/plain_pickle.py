"""Reads pickles of plain data without an unpickler: no class is looked up, and no code runs.

Protocols 3 to 5 are read, and 2 without bytes. Plain data is ``None``, booleans, numbers, texts, bytes, lists, tuples,
dictionaries and sets. A pickle with anything else in it is refused, with the name of the class.

Time and memory are proportional to the pickle's bytes, also for the code that uses the result: a pickle may refer to one
list in many places, so the size of the expanded result is counted, and bounded.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

_MOST_VALUES = 100_000
"""Values that a pickle may stand for: a request has some dozens."""

_DEEPEST = 50
"""Values inside one another: far less than Python and MessagePack take."""

_MOST_IN_KEY = 100
"""Values in a key: Python goes through all of a tuple each time that it is one, and too deep a tuple ends the process."""

_MARK = object()

_SHOWN = 100

_ARGUMENTS = frozenset((
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
))  # fmt: skip
"""Opcodes that push what is written behind them."""

_MAKES: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "MARK": lambda: _MARK,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_SET": set,
}

_EXTENDS = {"APPEND": "extend", "APPENDS": "extend", "ADDITEMS": "update"}
_FRAMING = ("PROTO", "FRAME", "STOP")


class NotPlainError(ValueError):
    """A pickle is damaged, or has something else in it than plain data; the message says what."""


def read_pickle(data: bytes) -> Any:
    """The value that was pickled as *data*.

    Raises:
        NotPlainError: If it is not plain data.
    """
    try:
        value = _value_of(data)
    except NotPlainError:
        raise
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise NotPlainError(f"it is cut short or damaged ({type(error).__name__})") from error
    _check_size(value)
    return value


def _check_size(value: Any, most: int = _MOST_VALUES, what: str = "it stands for") -> None:
    """Raise an error if *value*, written out, is more than *most* values, or is too deep, or contains itself."""
    left = most - 1
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if each is _MARK:
            raise NotPlainError("it is damaged")
        if isinstance(each, dict):
            left -= 2 * len(each)
        elif isinstance(each, list | tuple | set | frozenset):
            left -= len(each)
        else:
            continue
        if left < 0 or (each and depth == _DEEPEST):
            raise NotPlainError(f"{what} more than {most:,} values, or for {_DEEPEST} inside one another")
        parts = (one for pair in each.items() for one in pair) if isinstance(each, dict) else each
        waiting += [(one, depth + 1) for one in parts]


def _as_keys(values: list[Any]) -> list[Any]:
    """*values*, after a look at their size, which a key must not exceed."""
    for value in values:
        if isinstance(value, tuple):
            _check_size(value, _MOST_IN_KEY, "it has a key for")
    return values


def _value_of(data: bytes) -> Any:
    """Follow the opcodes of *data*; those of objects are not among them."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in _ARGUMENTS:
            stack.append(argument)
        elif name in _MAKES:
            stack.append(_MAKES[name]())
        elif name.startswith("TUPLE"):
            stack.append(tuple(_taken(stack, int(name[5:])) if name[5:] else _since_mark(stack)))
        elif name == "FROZENSET":
            stack.append(frozenset(_as_keys(_since_mark(stack))))
        elif name in _EXTENDS:
            values = _taken(stack, 1) if name == "APPEND" else _since_mark(stack)
            getattr(stack[-1], _EXTENDS[name])(_as_keys(values) if name == "ADDITEMS" else values)
        elif name in ("SETITEM", "SETITEMS"):
            values = _taken(stack, 2) if name == "SETITEM" else _since_mark(stack)
            stack[-1].update(zip(_as_keys(values[::2]), values[1::2], strict=True))
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "POP":
            stack.pop()
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            of = str(argument).split() if name == "GLOBAL" else stack[-2:]
            raise NotPlainError(f"it has an object of {'.'.join(str(each)[:_SHOWN] for each in of)}")
        elif name not in _FRAMING:
            raise NotPlainError(f"it has the opcode {name}, which plain data does not need")
    return stack[-1]


def _taken(stack: list[Any], n: int) -> list[Any]:
    """The last *n* values, which are taken off."""
    found = stack[-n:]
    if len(found) != n:
        raise NotPlainError("it is damaged")
    del stack[-n:]
    return found


def _since_mark(stack: list[Any]) -> list[Any]:
    """What was pushed since the last mark, which is taken off, too."""
    at = next((at for at in range(len(stack) - 1, -1, -1) if stack[at] is _MARK), -1)
    if at < 0:
        raise NotPlainError("it is damaged")
    found = stack[at + 1 :]
    del stack[at:]
    return found
