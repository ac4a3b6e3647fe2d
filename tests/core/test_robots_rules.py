"""What a robots.txt says, beside a plain reading of the same rules, and what it costs to read a hostile one."""

from __future__ import annotations

import re
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_aopic.core.robots import rules as robots
from scrapy_aopic.core.robots.rules import AgentRules, find_group, finish, lines_of, path_of, read_rules

PATTERNS = st.text("/ab*$%2Ff", max_size=8).map(lambda text: f"/{text}")
RULES = st.lists(st.tuples(st.booleans(), PATTERNS), max_size=12)
PATHS = st.text("/ab$%2Ff*", max_size=8).map(lambda text: f"/{text}")


def read(text: bytes, agent: str = "bot") -> AgentRules:
    text = lines_of(text)
    return finish(read_rules(text, finish(find_group(text, agent))))


def text_of(rules: list[tuple[bool, str]]) -> bytes:
    lines = (f"{'allow' if allows else 'disallow'}: {pattern}\n" for allows, pattern in rules)
    return f"user-agent: *\n{''.join(lines)}".encode()


def normal(text: str, kept: str) -> str:
    """*text* in the form of RFC 9309, 2.2.2: one character or escape after the other."""
    form = ""
    for piece in re.findall("%[0-9A-Fa-f]{2}|.", text):
        character = chr(int(piece[1:], 16)) if len(piece) == 3 else piece
        if piece in (kept, "/", "%"):
            form += piece
        else:
            form += character if re.fullmatch(r"[\w.~=-]", character) else f"%{ord(character):02X}"
    return form


def plainly(rules: list[tuple[bool, str]], path: str) -> bool:
    """Whether *path* is allowed, rule by rule."""
    best = (0, True)
    for allows, pattern in rules:
        form = normal(pattern.removesuffix("$"), "*")
        is_whole = pattern.endswith("$")
        expression = ".*".join(map(re.escape, form.split("*"))) + ("" if is_whole else ".*")
        if re.fullmatch(expression, normal(path, "")):
            best = max(best, (len(form) + is_whole, allows))
    return best[1]


@given(RULES, PATHS)
@example([(False, "/*a$"), (True, "/aa")], "/aa")
@example([(False, "/%2f"), (True, "/%2F%61")], "/%2Fa")
def test_rules_are_what_the_rfc_says(rules, path):
    assert read(text_of(rules)).allow(path_of(f"http://h.test{path}#/a")) == plainly(rules, path)


@pytest.mark.slow
@given(RULES, PATHS)
def test_what_is_forbidden_stays_so_with_fewer_wildcards_and_shorter_rules(rules, path):
    with patch.multiple(robots, WILDCARDS=80, LONGEST_RULE=4):
        bounded = read(text_of(rules))
    if bounded.allow(path_of(f"http://h.test{path}")):
        assert plainly(rules, path)
    assert bool(bounded.n_cut) >= any(len(pattern) > 4 for _, pattern in rules)


def test_the_longest_name_in_the_user_agent_counts():
    for agent, name in [
        ("Scrapy/2.19 (+https://scrapy.org)", "scrapy"),
        ("Mozilla/5.0 (compatible; NewsBot/1.0)", "newsbot"),
        ("My-Scrapy/1.0", "*"),  # not from the beginning of a word
        ("a", "a"),
        ("else", "*"),
    ]:
        text = b"user-agent: *\ndisallow:/\nuseragent bot\nUser-Agent: NewsBot*\nUser agent : Scrapy\nuser-agent:a\ndisallow:\n"
        assert finish(find_group(text, agent)) == name, (agent, name)


def test_groups_of_one_user_agent_are_one():
    rules = read(
        b"user-agent: bot\ndisallow: /1\n\nuser-agent: x\ndisallow: /2\n\nuser-agent: bot\ndisallow: /3\n"
    )
    assert [rules.allow(path) for path in ("/1", "/2", "/3")] == [False, True, False]


def test_a_line_may_be_written_in_many_ways():
    for line in [
        "Disallow: /a", "disallow:/a", " DISALLOW : /a # no", "Disallow /a", "dissallow:\t/a", "Diasllow: /a\r", "disalow:/a",
        "disallow: \u00a0/a", "Disallow: /%61", "Disallow: /b\rDisallow: /a", "Disallow: *a", "disallow: /*a$",
    ]:  # fmt: skip
        rules = read(f"\ufeffUser-Agent: bot\r\n{line}\r\n".encode())
        assert (rules.allow("/a"), rules.allow("/")) == (False, True), line


def test_other_lines_are_no_rules():
    for line in [
        "disallowed: /a",
        "# disallow: /a",
        "disallow: a",
        "noindex: /a",
        "disallow: /a\0",
        "x disallow: /a",
    ]:
        assert read(f"user-agent: *\n{line}\n".encode()).allow("/a"), line


def test_robots_txt_itself_is_always_allowed():
    rules = read(b"user-agent: *\ndisallow: /\n")
    paths = ("/robots.txt", "/robots.txt?x", "/robots.txtx")
    assert [rules.allow(path_of(f"http://h.test{path}")) for path in paths] == [True, True, False]


def test_a_crawl_delay_that_is_none_changes_nothing():
    for value in ["-1", "nan", "inf", "1e400", "1" * 33, "x", ""]:
        assert read(f"user-agent: *\ncrawl-delay: 3\ncrawl-delay: {value}\n".encode()).crawl_delay == 3, value


def test_a_long_text_is_read_in_steps():
    text = b"user-agent: bot\n" * 10_000 + b"disallow: /a\n" * 10_000
    steps = [*find_group(text, "bot"), *read_rules(text, "bot")]
    assert len(steps) > 20
