"""Reads pickles of plain data without an unpickler: no class is looked up, and no code runs.

Protocols 3 to 5 are read, and 2 without bytes. Plain data is ``None``, booleans, numbers, texts, bytes, lists, tuples,
dictionaries and sets. A pickle with anything else in it is refused, with the name of the class.

Time and memory are proportional to the pickle's bytes, also for the code that uses the result: a pickle may refer to one
list in many places, so the size of the expanded result is counted, and bounded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_VALUES = 100_000
"""Values that a pickle may stand for: a request has some dozens."""

_DEEPEST = 50
"""Values inside one another: far less than Python and MessagePack take."""

_MARK = object()


class NotPlainError(ValueError):
    """A pickle is damaged, or has something else in it than plain data; the message says what."""


def read_pickle(data: bytes) -> Any:
    """The value that was pickled as *data*.

    Raises:
        NotPlainError: If it is not plain data.
    """
    try:
        value = _PickleReader(data).read()
    except NotPlainError:
        raise
    except (LookupError, struct.error, ValueError, TypeError, AttributeError) as error:
        raise NotPlainError(f"it is cut short or damaged ({type(error).__name__})") from error
    _check_size(value)
    return value


def _check_size(value: Any) -> None:
    """Raise an error if *value*, written out, is too large or too deep, or contains itself."""
    left = _MOST_VALUES
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        left -= 1
        if left < 0 or depth > _DEEPEST:
            raise NotPlainError(
                f"it stands for more than {_MOST_VALUES:,} values, or for {_DEEPEST} inside one another"
            )
        if isinstance(each, dict):
            waiting += [(one, depth + 1) for pair in each.items() for one in pair]
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += [(one, depth + 1) for one in each]


class _PickleReader:
    """Follows the opcodes of *data*; those of objects are not among them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        while True:
            code = self._data[self._at]
            self._at += 1
            if code == ord("."):
                (value,) = self._stack[-1:]
                return value
            step = _STEPS.get(code)
            if step is None:
                raise NotPlainError(self._refusal(code))
            step(self)

    def _refusal(self, code: int) -> str:
        """Why a pickle with the opcode *code* is refused."""
        if code == ord("c"):
            lines = self._data[self._at : self._at + 500].decode("ascii", "replace").split("\n")
            return f"it has an object of {'.'.join(lines[:2])}"
        if code == _STACK_GLOBAL:
            return f"it has an object of {'.'.join(str(each)[:100] for each in self._stack[-2:])}"
        return f"it has the opcode {code:#04x}, which plain data does not need"

    # -- what opcodes share

    def take(self, n: int) -> bytes:
        """The next *n* bytes."""
        found = self._data[self._at : self._at + n]
        if n < 0 or len(found) != n:
            raise NotPlainError("it is cut short")
        self._at += n
        return found

    def number(self, n: int) -> int:
        """The next *n* bytes as a number."""
        return int.from_bytes(self.take(n), "little")

    def push(self, value: Any) -> None:
        """Put *value* on the stack."""
        self._stack.append(value)

    def pop(self) -> Any:
        """The top of the stack, which is taken from it."""
        return self._stack.pop()

    @property
    def top(self) -> Any:
        """The top of the stack."""
        return self._stack[-1]

    def since_mark(self) -> list[Any]:
        """All that is above the last mark on the stack; both are taken from it."""
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise NotPlainError("it is damaged")
        found = self._stack[at + 1 :]
        del self._stack[at:]
        return found

    def note(self, number: int) -> None:
        """Note the top of the stack under *number*."""
        self._memo[number] = self._stack[-1]

    def memoize(self) -> None:
        """Note the top of the stack under the next number."""
        self._memo[len(self._memo)] = self._stack[-1]

    def noted(self, number: int) -> None:
        """Put what was noted under *number* on the stack."""
        self._stack.append(self._memo[number])

    def add_pairs(self, items: list[Any]) -> None:
        """Add keys and values to the dictionary on the stack."""
        if type(self.top) is not dict:
            raise NotPlainError("it is damaged")
        self.top.update(zip(items[::2], items[1::2], strict=True))

    def extend(self, items: list[Any]) -> None:
        """Add *items* to the list, or the set, on the stack."""
        if type(self.top) is list:
            self.top.extend(items)
        elif type(self.top) is set:
            self.top.update(items)
        else:
            raise NotPlainError("it is damaged")

    def tuple_of(self, n: int) -> None:
        """Make a tuple of the last *n* values."""
        found = tuple(self._stack[-n:])
        if len(found) != n:
            raise NotPlainError("it is damaged")
        del self._stack[-n:]
        self.push(found)


_STACK_GLOBAL = 0x93

_STEPS: dict[int, Callable[[_PickleReader], object]] = {
    0x80: lambda r: r.take(1),  # PROTO
    0x95: lambda r: r.take(8),  # FRAME
    ord("}"): lambda r: r.push({}),
    ord("]"): lambda r: r.push([]),
    ord(")"): lambda r: r.push(()),
    0x8F: lambda r: r.push(set()),
    ord("("): lambda r: r.push(_MARK),
    ord("N"): lambda r: r.push(None),
    0x88: lambda r: r.push(True),
    0x89: lambda r: r.push(False),
    ord("K"): lambda r: r.push(r.number(1)),
    ord("M"): lambda r: r.push(r.number(2)),
    ord("J"): lambda r: r.push(int.from_bytes(r.take(4), "little", signed=True)),
    0x8A: lambda r: r.push(int.from_bytes(r.take(r.number(1)), "little", signed=True)),  # LONG1
    ord("G"): lambda r: r.push(struct.unpack(">d", r.take(8))[0]),
    0x8C: lambda r: r.push(r.take(r.number(1)).decode("utf-8", "surrogatepass")),
    ord("X"): lambda r: r.push(r.take(r.number(4)).decode("utf-8", "surrogatepass")),
    0x8D: lambda r: r.push(r.take(r.number(8)).decode("utf-8", "surrogatepass")),
    ord("C"): lambda r: r.push(r.take(r.number(1))),
    ord("B"): lambda r: r.push(r.take(r.number(4))),
    0x8E: lambda r: r.push(r.take(r.number(8))),
    0x85: lambda r: r.tuple_of(1),
    0x86: lambda r: r.tuple_of(2),
    0x87: lambda r: r.tuple_of(3),
    ord("t"): lambda r: r.push(tuple(r.since_mark())),
    0x91: lambda r: r.push(frozenset(r.since_mark())),
    ord("a"): lambda r: r.extend([r.pop()]),
    ord("e"): lambda r: r.extend(r.since_mark()),
    0x90: lambda r: r.extend(r.since_mark()),
    ord("s"): lambda r: r.add_pairs([r.pop(), r.pop()][::-1]),
    ord("u"): lambda r: r.add_pairs(r.since_mark()),
    0x94: lambda r: r.memoize(),
    ord("q"): lambda r: r.note(r.number(1)),
    ord("r"): lambda r: r.note(r.number(4)),
    ord("h"): lambda r: r.noted(r.number(1)),
    ord("j"): lambda r: r.noted(r.number(4)),
    ord("0"): lambda r: r.pop(),
}
"""The step for each opcode of plain data."""
