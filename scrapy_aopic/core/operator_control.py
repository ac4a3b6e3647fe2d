"""An operator's control of a crawl: pause it, block hosts, slow hosts down, deny URLs, limit its rate.

A :class:`Control` is a value, kept as JSON so that people can read it. Each change makes a new one. A *name* in it stands
for the host of that name and for all hosts below it: ``example.com`` covers ``www.example.com``, as in Scrapy's
``allowed_domains``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from scrapy_aopic.exceptions import CallError, SettingError

ACTIONS = {
    "pause": "request no more pages",
    "resume": "go on",
    "stop": "end this run, as Ctrl-C does; the next one goes on",
    "block": "NAME...: leave these hosts and domains alone; their pages stay queued",
    "unblock": "NAME...: request them again",
    "slow": "SECONDS NAME...: at least so many seconds between requests to each host; 0 for the usual gaps",
    "deny": "PATTERN...: follow no links to URLs in which one of these regular expressions is found; what is queued stays queued",
    "allow": "PATTERN...: follow them again",
    "connections": "N: at most N transfers at once; 0 for as many as the settings allow",
    "rate": "N: at most N pages a second, such as 0.5; 0 for any number",
    "reset": "ask nothing of the crawl any more",
}
"""What can be asked, with what it takes before a colon."""

_MAX_NAMES = 100_000
"""Names that may be blocked or slowed down, some 10 MB of JSON: far more than anyone types."""

_MAX_NAME = 253
"""Characters of a host name (RFC 1035, section 2.3.4)."""

_MAX_GAP = 86_400.0
"""Seconds that a host can be slowed down to, a day: who wants more blocks it."""

_LAST_TIME = 253_402_300_799.0
"""The end of the year 9999, in seconds since the epoch: the last one that can be written."""

_MAX_RATE = 1e6
"""Pages a second that a limit may allow: more than any crawl fetches."""

_MOST_NOTED = 20
"""Changes that are remembered, the latest ones."""


class Slow(msgspec.Struct, frozen=True):
    """A gap that an operator has set.

    Attributes:
        gap: Least seconds between requests to a host.
        since: When it was set, in seconds since the epoch.
    """

    gap: float
    since: float


class Asked(msgspec.Struct, frozen=True):
    """A change that was asked for.

    Attributes:
        at: When, in seconds since the epoch.
        what: The action, and what came after it.
    """

    at: float
    what: str


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings that are in force.

    Attributes:
        paused_since: When the crawl was paused, in seconds since the epoch; 0 if it is not.
        blocked: Names whose hosts are left alone, each with the instant at which it was blocked.
        slowed: Names whose hosts get longer gaps.
        connections: Most transfers at once; 0 for as many as the settings of the crawl allow.
        rate: Most pages a second; 0 for any number.
        stopped_at: Runs that began before this instant end.
        asked: The latest changes, oldest first.
        denied: Regular expressions: no links to URLs in which one is found are followed; each with the instant at which it was denied.
    """

    paused_since: float = 0.0
    blocked: dict[str, float] = {}  # msgspec gives each one of its own
    slowed: dict[str, Slow] = {}
    connections: int = 0
    rate: float = 0.0
    stopped_at: float = 0.0
    asked: list[Asked] = []
    denied: dict[str, float] = {}

    def __bool__(self) -> bool:
        return self != _NOTHING

    # -- what it means

    def blocks(self, host: str) -> str:
        """The name that has the host called *host* blocked; empty if none has. O(labels of its name)."""
        return covering(self.blocked, host) if self.blocked else ""

    def gap(self, host: str) -> float:
        """Seconds between requests to the host called *host*, at least; the nearest name above it counts."""
        name = covering(self.slowed, host) if self.slowed else ""
        return self.slowed[name].gap if name else 0.0

    def denies(self) -> re.Pattern[str] | None:
        """What finds the URLs to which no links are followed; ``None`` if all are.

        Raises:
            SettingError: If a pattern is no regular expression.
        """
        either = "|".join(f"(?:{_compiled(each).pattern})" for each in self.denied)
        return re.compile(either) if either else None

    def sentences(self, time_of: Callable[[float], str]) -> list[str]:
        """The settings in force as sentences; empty if there are none. *time_of* formats an instant."""
        found = []
        if self.paused_since:
            found.append(f"paused since {time_of(self.paused_since)}: no page is requested")
        if self.connections:
            found.append(f"at most {self.connections:,} transfers at once")
        if self.rate:
            found.append(f"at most {self.rate:g} pages a second")
        if self.blocked:
            found.append(f"blocked: {_some(sorted(self.blocked))}")
        if self.slowed:
            slowed = (f"{name} ({slow.gap:g} s)" for name, slow in sorted(self.slowed.items()))
            found.append(f"slowed down: {_some([*slowed])}")
        found += [f"no links to: {_some([*self.denied])}"] * bool(self.denied)
        if self.stopped_at:
            found.append(f"stopped at {time_of(self.stopped_at)}: later runs go on")
        return found

    def undoing(self) -> list[str]:
        """What takes the settings in force back, each as an action and what comes after it; of the first names."""
        alone = {"resume": self.paused_since, "rate 0": self.rate, "connections 0": self.connections}
        found = [action for action, is_set in alone.items() if is_set]
        found += [f"unblock {name}" for name in sorted(self.blocked)[:_SOME]]
        found += [f"allow {pattern}" for pattern in [*self.denied][:_SOME]]
        return [*found, *(f"slow 0 {name}" for name in sorted(self.slowed)[:_SOME])]

    # -- changes

    def paused(self, now: float) -> Control:
        """A control with the crawl paused."""
        return self if self.paused_since else replace(self, paused_since=now)

    def resumed(self) -> Control:
        """A control with the crawl not paused."""
        return replace(self, paused_since=0.0)

    def stopped(self, now: float) -> Control:
        """A control with runs that began before *now* ended."""
        return replace(self, stopped_at=now)

    def noting(self, what: str, now: float) -> Control:
        """A control that remembers that *what* was asked."""
        asked = [*self.asked, Asked(now, what if len(what) <= _MAX_NAME else f"{what[:_MAX_NAME]}…")]
        return replace(self, asked=asked[-_MOST_NOTED:])

    def blocking(self, names: list[str], now: float) -> Control:
        """A control with *names* blocked, too."""
        blocked = {**self.blocked, **{name: now for name in names if name not in self.blocked}}
        return _checked(replace(self, blocked=blocked))

    def slowing(self, names: list[str], gap: float, now: float) -> Control:
        """A control with *gap* seconds between requests to the hosts of *names*; 0 for the usual gaps.

        Raises:
            SettingError: If *gap* is out of bounds, or is 0 and a name is not slowed down.
        """
        if gap:
            slowed = {**self.slowed, **dict.fromkeys(names, Slow(gap, now))}
            return _checked(replace(self, slowed=slowed))
        return replace(self, slowed=_without(self.slowed, names, "slowed down"))

    def unblocking(self, names: list[str]) -> Control:
        """A control with *names* not blocked.

        Raises:
            SettingError: If one of them is not blocked now.
        """
        return replace(self, blocked=_without(self.blocked, names, "blocked"))

    def denying(self, patterns: Sequence[str], now: float | None) -> Control:
        """A control with no links to URLs followed in which one of *patterns* is found; with *now* ``None``, they are again.

        Raises:
            SettingError: If one is no regular expression, or is not denied now and cannot be allowed.
        """
        kept = _without(self.denied, patterns, "denied") if now is None else self.denied
        more = {} if now is None else dict.fromkeys(patterns, now)
        return _checked(replace(self, denied={**kept, **more}))

    def limited(self, *, connections: int | None = None, rate: float | None = None) -> Control:
        """A control with other limits where they are not ``None``; 0 for no limit.

        Raises:
            SettingError: If a limit is out of bounds.
        """
        given = {"connections": connections, "rate": rate}
        return _checked(replace(self, **{name: most for name, most in given.items() if most is not None}))

    # -- as bytes

    def packed(self) -> bytes:
        """As JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


_NOTHING = Control()


def change_of(action: str, values: Sequence[str], now: float) -> Callable[[Control], Control]:
    """The change that an *action* of :data:`ACTIONS` makes with the *values* after it; ``reset`` makes none.

    Raises:
        CallError: If there is no such action, or it takes other values.
        SettingError: If a value cannot be.
    """
    if action not in ACTIONS:
        raise CallError(f"There is no action {action[:_MAX_NAME]!r}: they are {', '.join(ACTIONS)}.")
    wanted = ACTIONS[action].rpartition(":")[0]
    least = len(wanted.split())
    if len(values) < least or (len(values) > least and not wanted.endswith("...")):
        given = f"{' '.join(values)[:_MAX_NAME]!r} was" if values else "nothing was"
        raise CallError(f"'{action}' takes {wanted or 'nothing'} after it, and {given} given.")
    match action:
        case "pause":
            change: Callable[[Control], Control] = partial(Control.paused, now=now)
        case "resume":
            change = Control.resumed
        case "stop":
            change = partial(Control.stopped, now=now)
        case "block":
            change = partial(Control.blocking, names=[*map(checked_name, values)], now=now)
        case "unblock":
            change = partial(Control.unblocking, names=[*map(checked_name, values)])
        case "slow":
            names, gap = [*map(checked_name, values[1:])], _number(action, values[0], float)
            change = partial(Control.slowing, names=names, gap=gap, now=now)
        case "deny" | "allow":
            change = partial(Control.denying, patterns=values, now=now if action == "deny" else None)
        case "connections" | "rate":
            limit: Any = _number(action, values[0], int if action == "connections" else float)
            change = partial(Control.limited, **{action: limit})
        case _:
            return lambda control: control
    return lambda control: change(control).noting(" ".join([action, *values]), now)


def _number(action: str, text: str, kind: type[int | float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise CallError(
            f"{text[:_MAX_NAME]!r} after '{action}' is no {'whole ' if kind is int else ''}number."
        ) from None


def unpack_control(data: bytes) -> Control:
    """Read what :meth:`Control.packed` wrote and people may have edited.

    Raises:
        SettingError: If it is damaged, or a value is out of bounds.
    """
    try:
        control = msgspec.json.decode(data, type=Control)
    except msgspec.ValidationError as error:
        _, _, where = str(error).rpartition("`$")
        raise SettingError(
            f"what stands at {where.rstrip('`') or 'its beginning'} cannot stand there"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SettingError("it is no JSON") from None
    checked = [checked_name(name) for name in (*control.blocked, *control.slowed)]
    if checked != [*control.blocked, *control.slowed]:
        wrong = next(name for name in (*control.blocked, *control.slowed) if checked_name(name) != name)
        raise SettingError(f"the name {wrong!r} must be written {checked_name(wrong)!r}")
    return _checked(control)


def _checked(control: Control) -> Control:
    if len(control.blocked) + len(control.slowed) > _MAX_NAMES:
        raise SettingError(
            f"{len(control.blocked) + len(control.slowed):,} names are blocked or slowed down, and at most {_MAX_NAMES:,} may "
            "be: block a domain instead of its hosts, or use the spider's rules for URLs"
        )
    control.denies()
    for name, since in {**control.blocked, **control.denied}.items():
        if not 0 <= since <= _LAST_TIME:
            raise SettingError(f"{name} is blocked since {since:g}, which is no time")
    for name, slow in control.slowed.items():
        if not 0 < slow.gap <= _MAX_GAP:
            raise SettingError(
                f"a gap of {slow.gap:g} s for {name} cannot be: it must be more than 0 and at most {_MAX_GAP:g} s"
            )
    if control.connections < 0:
        raise SettingError(
            f"a limit of {control.connections} transfers at once cannot be: it must be at least 1, or 0 for none"
        )
    if not (0 <= control.rate <= _MAX_RATE):
        raise SettingError(
            f"a limit of {control.rate:g} pages a second cannot be: it must be more than 0, or 0 for none"
        )
    for name in ("paused_since", "stopped_at"):
        if not 0 <= getattr(control, name) <= _LAST_TIME:
            raise SettingError(f"{name} is {getattr(control, name):g}, which is no time")
    return control


def checked_name(text: str) -> str:
    """The crawl's name of the host or domain that a person wrote as *text*.

    Raises:
        SettingError: If it is not a host or a domain.
    """
    name = text.strip().rstrip(".").lower()
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            name = ""
    if not name or len(name) > _MAX_NAME or any(each in "/@?#*" or each <= " " for each in name):
        raise SettingError(
            f"{text[:_MAX_NAME]!r:.300} is no name of a host or domain: write 'example.com', which covers what is below it, too, without "
            "scheme, path or '*'"
        )
    return name


def covering(names: Container[str], host: str) -> str:
    """The nearest of *names* that is *host* or a domain above it; empty if there is none."""
    while host not in names:
        _, point, host = host.partition(".")
        if not point:
            return ""
    return host


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise SettingError(f"{pattern!r:.300} is no regular expression: {error.msg}") from None


def _without(names: dict[str, Any], gone: Sequence[str], what: str) -> dict[str, Any]:
    for name in gone:
        if name not in names:
            there = f"{what} are {_some(sorted(names))}" if names else f"nothing is {what}"
            raise SettingError(f"{name} is not {what}: {there}")
    return {name: value for name, value in names.items() if name not in gone}


_SOME = 10
"""Names that a sentence has at most."""


def _some(names: list[str], n: int = _SOME) -> str:
    """The first of *names*, and how many more there are."""
    more = f" and {len(names) - n:,} more" if len(names) > n else ""
    return ", ".join(names[:n]) + more
