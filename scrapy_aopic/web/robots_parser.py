"""Parsers of robots.txt as Scrapy has them: ours, and those of others with the groups that RFC 9309 wants."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.robotstxt import RobotParser
from scrapy.utils.python import to_unicode

from scrapy_aopic.core.robots.rules import AgentRules, find_group, finish, lines_of, path_of, read_rules

if TYPE_CHECKING:
    from collections.abc import Generator

    from scrapy.crawler import Crawler
    from typing_extensions import Self

T = TypeVar("T")

_AGENTS = 8
"""User agents for which what one robots.txt says is remembered. A crawl has one, as a rule; requests may have others."""

_EACH_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n|(?<=[^\r\n])\Z)")
_AGENT = re.compile(rb"\s*user[- ]?agent\s*[:\s]", re.IGNORECASE)
_RULE = re.compile(rb"\s*(?:allow|dia?s)", re.IGNORECASE)  # as generous with spelling as Protego


class Rfc9309RobotParser(RobotParser):
    """Reads a robots.txt by :mod:`scrapy_aopic.core.robots.rules`, for each user agent when it is first needed."""

    def __init__(self, text: bytes) -> None:
        self._text = lines_of(text)
        self._names: dict[str, str] = {}
        self._rules: dict[str, AgentRules] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler | None, robotstxt_body: bytes) -> Self:
        return cls(robotstxt_body)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        return finish(self.read(user_agent)).allow(path_of(to_unicode(url)))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        return finish(self.read(user_agent)).crawl_delay

    def usage(self, url: str, user_agent: str | bytes) -> list[bytes]:
        """What is stated on the use of the content at *url*."""
        return finish(self.read(user_agent)).usage(url)

    def knows(self, user_agent: str | bytes) -> bool:
        """Whether the rules for *user_agent* were read."""
        return self._names.get(to_unicode(user_agent)) in self._rules

    def read(self, user_agent: str | bytes) -> Generator[None, None, AgentRules]:
        """The rules for *user_agent*, in steps if they were not read yet."""
        agent = to_unicode(user_agent)
        name = self._names.get(agent)
        if name is None:
            name = yield from find_group(self._text, agent)
            _remember(self._names, agent, name)
        rules = self._rules.get(name)
        if rules is None:
            rules = yield from read_rules(self._text, name)
            _remember(self._rules, name, rules)
        return rules


def _remember(known: dict[str, T], key: str, value: T) -> None:
    if len(known) >= _AGENTS:
        known.clear()
    known[key] = value


def parse(text: bytes, kind: type[RobotParser], crawler: Crawler | None = None) -> RobotParser:
    """*text*, parsed by a parser of this *kind*."""
    body = text if issubclass(kind, Rfc9309RobotParser) else _with_whole_groups(text)
    return kind.from_crawler(crawler, body)  # type: ignore[arg-type]  # None is for its log


def _with_whole_groups(text: bytes) -> bytes:
    """*text*, so that parsers of others see the groups that RFC 9309 wants.

    There a group begins with user agents and goes on until the first user agent behind a rule. To parsers it often
    ends at a crawl delay, or at a line that they do not know; so the agents of a group with such a line are named
    once more before its first rule.
    """
    lines = bytearray()
    agents = bytearray()
    has_rule = is_interrupted = False
    for match in _EACH_LINE.finditer(text.removeprefix(BOM_UTF8)):
        line = match[1] + b"\n"
        if _AGENT.match(line):
            if has_rule:
                agents, has_rule, is_interrupted = bytearray(), False, False
            agents += line
        elif _RULE.match(line):
            if is_interrupted and not has_rule:
                lines += agents
            has_rule = True
        elif line.partition(b"#")[0].strip():
            is_interrupted = True
        lines += line
    return bytes(lines)


def crawl_delay_of(parser: RobotParser, user_agent: str | bytes) -> float | None:
    """The crawl delay for *user_agent* in seconds, also of parsers of versions of Scrapy that do not offer it."""
    inner: Any = getattr(parser, "rp", None)  # Protego's, or Python's
    read = getattr(parser, "crawl_delay", None) or getattr(inner, "crawl_delay", None)
    delay = read(to_unicode(user_agent)) if read is not None else None
    return None if delay is None else float(delay)
