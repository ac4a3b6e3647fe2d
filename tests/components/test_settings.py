"""Settings: every wrong value stops the start, per-spider values work, and the add-on overrides nobody."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from scrapy import Spider
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler

from scrapy_aopic import Addon, PolitenessMiddleware
from scrapy_aopic.core.focus.published.fixed import Otie
from scrapy_aopic.core.order import Aopic, Focused
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.core.window import Window
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.settings import SECTIONS, SETTINGS, read, read_policy, read_politeness, store_memory
from scrapy_aopic.spiders import BroadSpider, check_option

WRONG: dict[str, list[Any]] = {
    "AOPIC_WINDOW": [0, -1, "often", "3 moons", True, "1 2", float("inf"), [8]],
    "AOPIC_WINDOW_KIND": ["sliding", None.__class__, 1],
    "AOPIC_ORDER": ["best", "", 7, None.__class__, "scrapy.Request", "scrapy_aopic.core.order.none"],
    "AOPIC_DOMAIN_BUDGET": [-0.1, 1.1, "some", float("nan")],
    "AOPIC_VIRTUAL_SHARE": [-0.1, 1.1, "some", True, float("nan")],
    "AOPIC_VIRTUAL_SPENDING": [
        "all",
        1,
        "chosen",
        {"chosen": []},
        {"visited": ["a.test"]},
        {"chosen": "https://example.com/"},
        {"chosen": ["a b"]},
        {"chosen": "5"},
    ],
    "AOPIC_ENDOWMENT": [-1, "much", float("inf")],
    "AOPIC_POLITENESS_FACTOR": [-1, "ten", float("nan")],
    "AOPIC_MIN_GAP": [-1, 1e9],
    "AOPIC_MAX_GAP": [-1, "minute"],
    "AOPIC_FAST_DOWNLOADS": ["fast", 2],
    "AOPIC_POLITENESS_KEY": ["site", 7],
    "AOPIC_HOST_RULES": [
        7,
        "often",
        {"*": {"speed": 1}},
        {"*": {"factor": -1}},
        {"*": 3},
        {"https://a.test/": {}},
        {"a.test": {"revisit": [2, 1]}},
        {"*.a.test": {"budget": 0.1}},
        '{"a.test": {}, "a.test": {}}',
    ],
    "AOPIC_BACKOFF": [-1, "slow", 1e9],
    "AOPIC_MAX_BACKOFF": [-1, "slow", float("inf")],
    "AOPIC_PAGE_SECONDS": [-1, 86_401, "long"],
    "AOPIC_LATER_TRIES": [-1, 1.5, 101, "often"],
    "AOPIC_MAX_WAIT": [-1, 1e8, "soon"],
    "AOPIC_DURABILITY": [0, -5, "never", 1e9],
    "AOPIC_REDIS_KEY": ["a b", "{a}", "", 1, "x" * 151],
    "AOPIC_REDIS_LOCK_TIMEOUT": [0, -1, 3_601, "soon"],
    "AOPIC_SHARDS": [0, -1, 1.5, 257, "many"],
    "AOPIC_STORE": ["mysql", ""],
    "AOPIC_MEMORY_MB": [0, 15, 16.5, "lots"],
    "AOPIC_LINK_WEIGHTS": ["best", "internal", "internal=-1", {"outside": 1}, {"nofollow": "no"}, "os.name", 7],
    "AOPIC_RECRAWL": ["maybe", "101 %", "20 %, 30 %", 0.5, ["2 days", "1 day"], ["1 day", "2 days", "3 days"], float("inf")],
    "AOPIC_KEEP_LINKS": ["maybe", 2],
    "AOPIC_URL_RULES": [7, ["often"], "+sort, calendar", "-nonsense"],
    "AOPIC_URL_REWRITE": [[("(", "")], [("a", r"\1")], [("a",)], "no.such.function", 7],
    "AOPIC_URL_LIMITS": [
        -1,
        "long",
        {"length": -1},
        "depth=0.5",
        {"repeats": True},
        {"parameters": None},
        "width=1",
        "depth=1=2",
    ],
    "AOPIC_ALLOW_NETWORKS": [
        "10.0.0.1/8",
        ["10.0.0.0/33"],
        [":99999"],
        "https://example.com/",
        ["a b"],
        7,
        ["all", "10.0.0.0/8"],
        "/8",
    ],
    "AOPIC_CONTENT_TYPES": ["html", ["text/html; charset=utf-8"], 7],
    "AOPIC_PAGE_ROBOTS": ["none", ["rel=me"], 7],
    "AOPIC_CONTENT_USAGE": [
        "train-ai",
        {"train-ai": True},
        {"train-a": "obey"},
        {"tdm": "drop"},
        7,
        "tdm=skip, tdm=obey",
        '{"tdm": "skip", "tdm": "obey"}',
    ],
    "AOPIC_CONTENT_SEEN": ["fuzzy", True],
    "AOPIC_CANONICAL": ["all", True],
    "AOPIC_DUPEFILTER": ["fuzzy", 1],
    "AOPIC_DASHBOARD": [
        "host",
        "host:",
        "host:65536",
        70_000,
        -1,
        0.5,
        "a b:1",
        "http://host:1/",
        ":6810",
        [],
        None.__class__,
    ],
    "AOPIC_DASHBOARD_TOKEN": ["short", "fifteen-letters", "with a blank in it", "ümlaut-in-the-token", 16, ""],
    "AOPIC_ITEM_FIELDS": [["rank"], "importance,rank", 7],
    "AOPIC_WARC_FILE": [7, ""],
    "AOPIC_SCOPE": [
        7,
        "nowhere.json",
        {"allowed": ["a.test"]},
        {"allow": ["a b"]},
        {"allow_urls": ["("]},
        {"languages": []},
        {"allow": []},
        {"allow": ""},
        {"allow_urls": []},
        {"languages": ["German"], "deny": ["a.test", 1]},
        {"languages": "de,en"},
        {"allow": ["a.test"], "deny": ["a.test"]},
    ],
    "AOPIC_SEEDS": [7],
    "AOPIC_SITEMAPS": ["maybe", 2],
    "AOPIC_REPORT": ["maybe", 2],
    "AOPIC_TOPIC": [
        7,
        "sql",
        "[1]",
        {},
        {"keywords": []},
        {"keywords": ["-"]},
        {"model": "no/such.file"},
        {"positive": "no/such", "negative": "."},
        {"function": "no.such"},
        {"keywords": ["a"], "model": "b"},
    ],
    "AOPIC_WORKERS": [0, -1, 1.5, 65, "many"],
    "AOPIC_IDENTITY": [7, "no/such", "."],
    "AOPIC_FOCUS": [-0.1, 1.1, "much", float("nan")],
    "AOPIC_LINK_SCORER": ["best", "", 7, "no.such.module", lambda page: page],
    "AOPIC_TOKENIZER": [7, "no.such.module", "words", lambda text, more: [text, more]],
    "AOPIC_MIN_CONVERGENCE": [-0.1, 1.1, "some", float("nan")],
    "AOPIC_MIN_HARVEST": [-0.1, 1.1, "some", float("nan")],
}  # fmt: skip


def test_there_are_wrong_values_for_every_setting():
    assert WRONG.keys() == SETTINGS.keys()


def test_a_wrong_value_is_refused_with_name_value_and_way_out():
    for name, wrong in WRONG.items():
        for value in wrong:
            said = refusal(name, value)
            assert said.startswith(f"{name} ({value!r}) must be "), (name, value)


class Evil:
    """Refuses to be looked at."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("not this")

    __repr__ = __str__ = __float__ = __int__ = __iter__ = __len__ = __bool__ = __eq__ = __call__ = _refuse
    __hash__ = object.__hash__


HOSTILE: list[Any] = [
    # numbers
    True, False, 0, 1, 5, -1, 100, 10**10, 10**400, 0.5, 1.5, -0.0, 1e300, math.nan, math.inf, -math.inf, 1j,
    Decimal(5), Decimal("NaN"), Decimal("sNaN"), Fraction(1, 3), timedelta(3),
    # text that looks like numbers, or like something else
    "", " ", "0", "1", "5", "-5", "0.5", "nan", "inf", "1e400", "9" * 5000, "5.5.5", "\x00", "a\0b",
    "\ud800", "x" * 100_000, "é", "*", "/", "..", "crawls/", "%", "%s", "%(x)s", "%(name)d", "%%", "a{99999999999}",
    "=", "a=", "internal=", "internal=1=2", "internal=nan", "+", "-", "+-", ",", ",,", ";", "a/b/c", "5, 6", "1.2",
    # JSON
    "[", "{", "[]", "{}", "null", "[1]", "[[]]", '{"a": 1}', "[" * 100_000,
    # import paths
    "a.b", ".", "a.", ".a", "..a", "no.such.module", "os.path", "os.nothing", "os..path", "os path", "math.pi",
    # bytes and collections
    b"", b"5", b"x", bytearray(b"1"), memoryview(b"x"), [], (), set(), {}, [None], [1], [[]], [b"x"], [""], ["\x00"],
    ["ab"], [()], [("(", "")], [("a", r"\1")], [("a", 5)], [(5, "")], [("a",)], [("a{99999999999}", "")], ["a", 1],
    {"ab": 1}, {None: None}, {1: 2}, {"": {}}, {"*": None}, {"*": {"factor": math.nan}}, {b"*": {}}, range(3), iter("a"),
    # things
    object(), type, int, print, len, lambda: 0, Path("x"), Path(), Ellipsis, NotImplemented, Evil(), [Evil()], Evil,
    {"*": Evil()}, {"internal": Evil()},
]  # fmt: skip

NOTHING: list[Any] = ["", " ", ",", ",,", "[]", [], (), set(), [""]]
FITS: dict[str, list[Any]] = {
    "AOPIC_WINDOW": [1, 5, 100, 10**10, 0.5, 1.5, Decimal(5), "1", "5", "0.5", "1.2"],
    "AOPIC_HOST_RULES": [[], (), {}, "[]", "{}"],
    "AOPIC_SCOPE": [{}, "{}"],
    "AOPIC_LINK_WEIGHTS": [print, int, type],
    "AOPIC_LINK_SCORER": [print, int, type, Evil],
    "AOPIC_TOPIC": [""],
    "AOPIC_IDENTITY": [""],
    "AOPIC_TOKENIZER": ["", print, len, int, type],
    "AOPIC_URL_RULES": NOTHING,
    "AOPIC_URL_REWRITE": ["", " ", "[]", [], (), print, len, int, type],
    "AOPIC_CONTENT_TYPES": NOTHING,
    "AOPIC_URL_LIMITS": ["", " ", ",", ",,", {}, "{}"],
    "AOPIC_ITEM_FIELDS": NOTHING,
    "AOPIC_PAGE_ROBOTS": NOTHING,
    "AOPIC_CONTENT_USAGE": ["", " ", ",", ",,", {}, "{}"],
    "AOPIC_RECRAWL": [True, False, 0, 1, 5, 100, 10**10, 1.5, "0", "1", "5", "1.2", "5, 6", Decimal(5)],
    "AOPIC_ALLOW_NETWORKS": [*NOTHING, "null", "1e400", "nan", "inf", "é", "a.b", "a.", ".a", "no.such.module", "os.path",
                             "os.nothing", "math.pi", ["ab"]],
}  # fmt: skip
"""Which of those are in order, for settings of which that is not to be seen from what they must be."""

ANY_TEXT = {"AOPIC_SEEDS", "AOPIC_WARC_FILE"}


def shown(value: Any) -> str:
    try:
        return repr(value)
    except RuntimeError:
        return "evil"


def fits(name: str, value: Any) -> bool:
    """Whether *value* is what the setting must be, going by the sentence that the user reads."""
    must = SETTINGS[name].must
    if name in FITS:
        return any(type(value) is type(each) and shown(value) == shown(each) for each in FITS[name])
    if name in ANY_TEXT:
        return isinstance(value, (str, Path))
    if name == "AOPIC_REDIS_KEY":
        return (
            isinstance(value, str)
            and 0 < len(value) <= 150
            and not set("{}") & set(value)
            and len(value.split()) == 1
            and value == value.strip()
        )
    is_flag = isinstance(value, (bool, int, str)) and value in (True, False, "0", "1")
    if must == "True or False":
        return is_flag
    if must.startswith("True, False, "):
        return is_flag or is_within(must, value)
    return (isinstance(value, str) and f'"{value}"' in must) or is_within(must, value)


def is_within(must: str, value: Any) -> bool:
    """Whether *value* is a number between the bounds that *must* names."""
    bounds = re.search(r"from ([\d,.e-]+) to ([\d,.]+)", must)
    if bounds is None or isinstance(value, (bool, bytes, bytearray, Evil)):
        return False
    low, high = (float(bound.rstrip(".").replace(",", "")) for bound in bounds.groups())
    try:
        number = float(value)
        return low <= number <= high and ("whole" not in must or number == int(value))
    except (TypeError, ValueError, OverflowError):
        return False


def refusal(name: str, value: Any) -> str:
    """What is said of *value*, ``""`` if it is taken; nothing else than that can happen."""
    try:
        read(Settings({name: value}), name)
    except SettingError as error:
        said = str(error)
        assert said.startswith(f"{name} (")
        assert f" must be {SETTINGS[name].must}" in said
        assert said.endswith(".")
        assert said.isprintable()
        assert len(said) < len(SETTINGS[name].must) + 500
        return said
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_no_value_of_any_type_is_taken_in_silence_or_gives_a_traceback(section):
    for name in (setting.name for setting in SECTIONS[section]):
        for value in HOSTILE:
            is_taken = not refusal(name, value)
            if name not in ANY_TEXT or not fits(name, value):
                assert is_taken == fits(name, value), (name, SETTINGS[name].must, shown(value))


def test_text_that_cannot_be_meant_is_refused():
    for value in ("", " ", "crawls/", "a\0b", "\ud800", "%", "%s", "%(x)s", "/", ".."):
        assert refusal("AOPIC_WARC_FILE", value), value
    for value in ("a\0b", "\ud800"):
        assert refusal("AOPIC_SEEDS", value), value
    for value in ("5", '["example.com"'):
        assert refusal("AOPIC_ALLOW_NETWORKS", value), value


def values() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals()
    nested = st.recursive(
        plain,
        lambda each: (
            st.lists(each) | st.dictionaries(st.text() | st.integers(), each) | st.tuples(each, each)
        ),
        max_leaves=6,
    )
    hints = re.findall(r"[\w.*%+-]+", " ".join(setting.must for setting in SETTINGS.values()))
    words = st.sampled_from(hints)
    return nested | st.lists(words) | st.lists(words).map(" ".join) | st.lists(words).map(",".join)


@pytest.mark.slow
@profile(max_examples=40)  # of some 60 settings each
@given(values())
def test_any_value_is_taken_or_refused_in_one_sentence(value):
    for name in SETTINGS:
        refusal(name, value)


HINTS: list[tuple[dict[str, Any], str]] = [
    ({"AOPIC_STORE": "rockdb"}, 'did you mean "rocksdb"?'),
    ({"AOPIC_ORDER": "breath-first"}, 'did you mean "breadth-first"?'),
    ({"AOPIC_URL_RULES": "+sorted"}, 'did you mean "sort"?'),
    ({"AOPIC_ITEM_FIELDS": ["importence"]}, 'did you mean "importance"?'),
    ({"AOPIC_POLITENESS_KEY": "domains"}, 'did you mean "domain"?'),
    ({"AOPIC_LINK_WEIGHTS": {"extern": 1}}, 'did you mean "external"?'),
    ({"AOPIC_HOST_RULES": {"*": {"mingap": 1}}}, 'did you mean "min_gap"?'),
    (
        {"AOPIC_HOST_RULES": {"news.example": {"gap": 1}}},
        "no option: they are factor, min_gap, max_gap, connections, bytes_per_second, revisit, budget, worth",
    ),
    (
        {"AOPIC_HOST_RULES": {"news.example": {"min_gap": "long"}}},
        "news.example: min_gap is 'long', and must be a number of seconds from 0 to 86,400",
    ),
    (
        {"AOPIC_HOST_RULES": {"*.example": {"revisit": "2 moons"}}},
        "*.example: revisit is '2 moons', and must be seconds, a time such as \"1 hour\", or the shortest and the longest",
    ),
    ({"AOPIC_HOST_RULES": {"www.a.test": {"budget": 0.1}}}, "www.a.test is no registered domain"),
    ({"AOPIC_HOST_RULES": {"gov": {"budget": 0.1}}}, "gov is no registered domain"),
    ({"AOPIC_HOST_RULES": {"a.test": {"connections": 0}}}, "connections is 0, and must be a whole number from 1"),
    ({"AOPIC_HOST_RULES": {"a.test": {"pages": 0}}}, "a.test: pages is 0, and must be a whole number from 1"),
    ({"AOPIC_HOST_RULES": {"a.test": {}, "A.TEST.": {}}}, "a.test stands there twice"),
    ({"AOPIC_HOST_RULES": {"a b": {}}}, "rules: 'a b': no host has such a name"),
    ({"AOPIC_HOST_RULES": {"*.é.test": {}}}, "patterns must be written in ASCII"),
    ({"AOPIC_HOST_RULES": {"a.test": 3}}, "a.test needs a mapping of options, not int"),
    ({"AOPIC_HOST_RULES": {f"*{n}": {} for n in range(1001)}}, "1,001 patterns are too many"),
    ({"AOPIC_HOST_RULES": "rules.jsn"}, "there is no file 'rules.jsn'"),
    ({"AOPIC_SCOPE": "scope.jsn"}, "there is no file 'scope.jsn'"),
    ({"AOPIC_SCOPE": {"alow": ["a.test"]}}, 'did you mean "allow"?'),
    ({"AOPIC_SCOPE": {"allow": ["a b"]}}, "must be a mapping such as"),
    ({"AOPIC_SCOPE": {"deny_urls": "("}}, "deny_urls: missing )"),
    ({"AOPIC_SCOPE": {"languages": "de, en"}}, 'languages: \'de, en\' is no language, such as "de" or "pt-BR"'),
    ({"AOPIC_SCOPE": {"allow": "a.test", "deny": "A.test"}}, "a.test is both allowed and denied"),
    ({"AOPIC_ORDER": "no.such.module"}, "No module named 'no'"),
    ({"AOPIC_URL_REWRITE": [("(", "")]}, "unterminated subpattern"),
    ({"AOPIC_URL_REWRITE": lambda: ""}, "it does not take 1 argument)"),
    ({"AOPIC_WINDOWS": 8}, 'did you mean "AOPIC_WINDOW"?'),
    ({"AOPIC_POLICY": "opic"}, 'did you mean "AOPIC_ORDER"?'),
    ({"aopic_min_gap": 8}, 'did you mean "AOPIC_MIN_GAP"?'),
    ({"AOPIC_NOTHING_LIKE_IT": 8}, "AOPIC_NOTHING_LIKE_IT is no setting of scrapy-aopic; 'scrapy aopic docs settings' lists"),
]  # fmt: skip


def test_a_refusal_says_what_may_have_been_meant():
    for settings, hint in HINTS:
        with pytest.raises(SettingError) as caught:
            read_policy(Settings(settings))
        assert hint in str(caught.value), settings


def test_a_file_that_is_called_as_a_word_is_no_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("url", "visits", "all", "noindex"):
        (tmp_path / name).write_text("http://a.test/\n")
    assert check_option("fields", BroadSpider.fields) == BroadSpider.fields
    names = {"AOPIC_ITEM_FIELDS": ["visits"], "AOPIC_ALLOW_NETWORKS": "all", "AOPIC_PAGE_ROBOTS": "noindex"}
    for name, value in names.items():
        assert SETTINGS[name].check.parse(value) in (("visits",), None, ("noindex",))


def test_a_strategy_that_learns_from_samples_is_refused_without(tmp_path, monkeypatch):
    folders = {"positive": str(tmp_path), "negative": str(tmp_path)}
    settings = {"AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": "jlse-paper", "AOPIC_TOPIC": folders}
    read_policy(Settings(settings))
    with pytest.raises(
        SettingError, match=r"AOPIC_LINK_SCORER \('jlse-paper'\) .* give AOPIC_TOPIC two folders"
    ):
        read_policy(Settings({**settings, "AOPIC_TOPIC": {"keywords": ["sql"]}}))
    monkeypatch.setattr("scrapy_aopic.settings.build.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"AOPIC_LINK_SCORER \('jlse-paper'\) .* pip install stopwordsiso"):
        read_policy(Settings(settings))


def test_the_virtual_page_spends_on_no_pages_that_can_never_spend_it():
    visited, full = {"AOPIC_VIRTUAL_SPENDING": "visited"}, {"AOPIC_HOST_RULES": {"a.test": {"pages": 9}}}
    with pytest.raises(SettingError, match=r'"visited".*AOPIC_RECRAWL.*"unvisited"'):
        read_policy(visited)
    assert read_policy({**visited, "AOPIC_RECRAWL": True}).spending == "visited"
    for spending in ({**visited, "AOPIC_RECRAWL": True}, {"AOPIC_VIRTUAL_SPENDING": "unvisited"}):
        with pytest.raises(SettingError, match=r'"pages".*AOPIC_HOST_RULES.*"budget"'):
            read_policy({**spending, **full})
    read_policy(full)


def test_a_name_that_is_nearly_one_of_ours_is_a_warning(caplog):
    read_policy(Settings({"AOPC_MIN_GAP": 5, "MY_OWN": 1, "DOWNLOAD_DELAY": 1}))
    assert [record.getMessage() for record in caplog.records] == [
        "AOPC_MIN_GAP means nothing to scrapy-aopic; did you mean AOPIC_MIN_GAP?"
    ]


def test_a_command_line_may_say_it_in_json():
    domains = ["example.com", "xn--bcher-kva.example", "127.0.0.1", "[::1]", "intranet"]
    for name, value, same in [
        (
            "AOPIC_VIRTUAL_SPENDING",
            '{"chosen": ["example.com", "B\u00fccher.example", "127.0.0.1", "[::1]", "intranet"]}',
            {"chosen": domains},
        ),
        ("AOPIC_VIRTUAL_SPENDING", {"chosen": ",".join(domains)}, {"chosen": domains}),
        ("AOPIC_LINK_WEIGHTS", '{"internal": 2}', {"internal": 2}),
        ("AOPIC_POLITENESS_KEY", ["host", "domain"], "host+domain"),
        ("AOPIC_URL_RULES", ["+sort"], "+sort"),
        ("AOPIC_RECRAWL", "1 day, 90 days", True),
        ("AOPIC_RECRAWL", '["1 hour", "2 hours"]', [3600, 7200]),
        ("AOPIC_RECRAWL", '[60, "90 days"]', [60, 7_776_000]),
        ("AOPIC_RECRAWL", "1 hour", ("1 hour", "60 minutes")),
    ]:
        given, wanted = (read(Settings({name: each}), name) for each in (value, same))
        assert given == wanted, value


def test_the_default_passes_its_own_check():
    for name, setting in SETTINGS.items():
        read(Settings(), name)
        read(Settings({name: setting.default}), name)


def test_settings_may_be_any_mapping():
    policy = read_policy({"AOPIC_WINDOW": "2 days", "DOWNLOAD_DELAY": "3"})
    assert policy.window == Window(2 * 86400, clock="seconds")
    assert policy.politeness.gap(0) == 3
    with pytest.raises(SettingError, match="AOPIC_WINDOWS is no setting"):
        read_policy({"AOPIC_WINDOWS": 8})


def test_orders_are_compared_without_scrapy():
    program = (
        "import sys\n"
        "from scrapy_aopic.lab.comparison import policy_of\n"
        "print(policy_of({'AOPIC_WINDOW': 3}, 'opic').window.size, 'scrapy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3.0", "False"]


def test_defaults_of_the_core_are_those_of_the_settings():
    policy, core = read_policy({}), Policy()
    for name in ("share", "endowment", "spending", "window", "recrawl", "politeness", "keep_links"):
        assert getattr(policy, name) == getattr(core, name), name
    assert type(policy.order) is type(core.order)
    assert isinstance(policy.order, Aopic)
    assert policy.order.budget == Aopic.budget


def test_a_window_is_given_in_plain_units():
    for value, window in [
        (8, Window(8, clock="turns")),
        ("2.5", Window(2.5, clock="turns")),
        ("3 |H|", Window(3, clock="turns")),
        ("1 turn", Window(1, clock="turns")),
        ("36 hours", Window(36 * 3600, clock="seconds")),
        ("1 day", Window(86400, clock="seconds")),
        ("2 weeks", Window(14 * 86400, clock="seconds")),
        ("4 months", Window(120 * 86400, clock="seconds")),
        ("1 year", Window(365 * 86400, clock="seconds")),
    ]:
        assert read_policy(Settings({"AOPIC_WINDOW": value})).window == window


def test_a_variable_window_is_a_number_of_visits():
    for value in ("36 hours", "8 turns", 2.5, "2.5"):
        settings = Settings({"AOPIC_WINDOW": value, "AOPIC_WINDOW_KIND": "variable"})
        with pytest.raises(SettingError) as caught:
            read_policy(settings)
        assert str(caught.value) == (
            f"AOPIC_WINDOW ({value!r}) must be a whole number of visits such as 8, because AOPIC_WINDOW_KIND is "
            "'variable'."
        )
    settings = Settings({"AOPIC_WINDOW": "12", "AOPIC_WINDOW_KIND": "variable"})
    assert read_policy(settings).window == Window(12, "variable")


def test_what_comes_back_is_said_in_times_shares_and_words():
    day, quarter = 86_400, 7_776_000
    for recrawl, values in [
        (None, [False, "0", 0]),
        (Recrawl(day, quarter, 0.5), [True, "True", 1]),
        (Recrawl(), [True]),
        (Recrawl(60, quarter, 0.5), [[60, "90 days"]]),
        (Recrawl(share=0.2), ["20 %", "20%, 1 day, 90 days", [day, "90 days", "20 %"]]),
        (Recrawl(only_changed=True), ["changed", ["changed"]]),
        (Recrawl(min_interval=0.0, once=True), ["once"]),
        (Recrawl(43_200, 43_200, once=True, only_changed=True), ["12 hours, once, changed"]),
        (
            Recrawl(3600, 172_800, only_changed=True),
            ["1 hour, 2 days, changed", ["1 hour", "2 days", "changed"], '["1 hour", "2 days", "changed"]'],
        ),
    ]:
        for value in values:
            assert read_policy({"AOPIC_RECRAWL": value}).recrawl == recrawl, value


def test_the_budget_is_that_of_the_default_order():
    order = read_policy(Settings({"AOPIC_DOMAIN_BUDGET": 0.5})).order
    assert isinstance(order, Aopic)
    assert order.budget == 0.5
    assert not isinstance(read_policy(Settings({"AOPIC_ORDER": "opic"})).order, Aopic)


def test_the_pages_of_a_directory_are_those_of_the_default_order_alone():
    assert read_policy(Settings()).order.directory_pages == 3
    topic = {"AOPIC_TOPIC": {"keywords": ["database"]}}
    for order in ("focused", "opic"):
        assert read_policy(Settings({"AOPIC_ORDER": order, **topic})).order.directory_pages == 0


def test_a_spider_has_its_own_window():
    class Weekly(Spider):
        name = "weekly"
        custom_settings = {"AOPIC_WINDOW": "7 days", "AOPIC_WINDOW_KIND": "fixed"}

    crawler = get_crawler(Weekly)
    crawler._apply_settings()
    assert read_policy(crawler.settings).window == Window(7 * 86400, "fixed", "seconds")


def test_one_budget_of_memory_sizes_all_that_is_kept():
    small, large = Settings({"AOPIC_MEMORY_MB": 64}), Settings({"AOPIC_MEMORY_MB": 1024})
    for name in ("page_cache", "max_active"):
        assert 16 * getattr(read_policy(small), name) == getattr(read_policy(large), name)
    assert 16 * store_memory(small) == store_memory(large) == 256
    assert (read_policy(small).page_cache, read_policy(small).max_active) == (25_600, 2_560)


def test_the_defaults_are_those_of_the_addon_and_nothing_is_refused_without_it():
    with_addon, alone = Settings(), Settings()
    Addon().update_settings(with_addon)
    assert read(with_addon, "AOPIC_URL_LIMITS") == {
        "length": 2083,
        "depth": 20,
        "repeats": 3,
        "parameters": 20,
        "links": 50_000,
    }
    assert read(alone, "AOPIC_URL_LIMITS") == {}
    assert [read(each, "AOPIC_CANONICAL") for each in (with_addon, alone)] == ["domain", "known"]
    assert [read(each, "AOPIC_CONTENT_SEEN") for each in (with_addon, alone)] == ["exact", "follow"]
    assert {"calendar", "extension"} <= read(with_addon, "AOPIC_URL_RULES")
    assert not {"calendar", "extension"} & read(alone, "AOPIC_URL_RULES")
    for setting in SETTINGS.values():
        if setting.alone is not None and setting.name != "AOPIC_URL_RULES":
            assert with_addon[setting.name] == setting.default


def test_a_limit_of_urls_that_is_not_named_keeps_its_default():
    for limits in ("depth=30, repeats=0", {"depth": 30, "repeats": "0"}, '{"depth": 30, "repeats": 0}'):
        with_addon = Settings({"AOPIC_URL_LIMITS": limits})
        assert read(with_addon, "AOPIC_URL_LIMITS") == {"depth": 30, "repeats": 0}
        Addon().update_settings(with_addon)
        assert read(with_addon, "AOPIC_URL_LIMITS") == {
            "length": 2083,
            "depth": 30,
            "repeats": 0,
            "parameters": 20,
            "links": 50_000,
        }


def test_the_addon_leaves_components_where_the_user_put_them():
    settings = Settings()
    settings.set("SCHEDULER", "scrapy.core.scheduler.Scheduler", "project")
    settings.set("DOWNLOADER_MIDDLEWARES", {"scrapy_aopic.PolitenessMiddleware": 700}, "project")
    Addon().update_settings(settings)
    assert settings["SCHEDULER"] == "scrapy.core.scheduler.Scheduler"
    assert settings["DOWNLOADER_MIDDLEWARES"]["scrapy_aopic.PolitenessMiddleware"] == 700
    assert PolitenessMiddleware not in settings["DOWNLOADER_MIDDLEWARES"]


def test_a_strategy_that_goes_by_cash_alone_has_no_focus_whoever_wrote_it():
    topic = {"AOPIC_ORDER": "focused", "AOPIC_TOPIC": {"keywords": ["sql"]}, "AOPIC_FOCUS": 0.9}
    scorers = ["otie", Otie, type("OfAUser", (Otie,), {}), "best-first"]
    orders = [read_policy({**topic, "AOPIC_LINK_SCORER": each}).order for each in scorers]
    assert [order.focus for order in orders if isinstance(order, Focused)] == [0.0, 0.0, 0.0, 0.9]


def test_options_of_hosts_may_stand_in_python_in_json_and_in_files(tmp_path):
    given: dict[str, Any] = {
        "News.Example": {"min_gap": "2", "revisit": "1 hour", "budget": 0.02},
        "bücher.example": {"revisit": [60, "2 days"]},
        "[::1]": {"factor": 0},
        "*.SHOP.example": {"worth": 5},
    }
    file, names = tmp_path / "rules.json", tmp_path / "slow.txt"
    file.write_text(json.dumps(given))
    found = [
        read({"AOPIC_HOST_RULES": each}, "AOPIC_HOST_RULES")
        for each in (given, json.dumps(given), list(given.items()), str(file), file)
    ]
    for rules in found:
        assert rules.all == found[0].all
        assert rules.of("www.news.example").options == {
            "min_gap": 2.0,
            "revisit": (3600.0, 3600.0),
            "budget": 0.02,
        }
        assert rules.of("xn--bcher-kva.example").revisit == (60.0, 172_800.0)
        assert rules.of("[::1]").factor == 0.0
        assert rules.of("a.shop.example").worth == 5.0
        assert rules.of("shop.example") is None
    file.write_text('{"a.test":\n {"min_gap" 1}}')
    with pytest.raises(SettingError, match="it is no JSON: line 2, column 13"):
        read({"AOPIC_HOST_RULES": str(file)}, "AOPIC_HOST_RULES")
    names.write_text("# slow\na.test\nb.test\n")
    rules = read({"AOPIC_HOST_RULES": {str(names): {"min_gap": 9}}}, "AOPIC_HOST_RULES")
    assert [rules.of(host).min_gap for host in ("a.test", "b.test")] == [9.0, 9.0]
    names.write_text("a.test\nb test\n")
    with pytest.raises(SettingError, match=r"slow\.txt, line 2: 'b test': no host has such a name"):
        read({"AOPIC_HOST_RULES": {str(names): {"min_gap": 9}}}, "AOPIC_HOST_RULES")


def test_the_delay_of_the_project_is_a_floor_for_options_of_hosts_and_those_of_the_spider_come_first():
    class Ruled:
        def politeness(self, host: str) -> dict[str, float] | None:
            return {"max_gap": 7} if host == "a.test" else None

    rules = {"test": {"min_gap": 0.1, "max_gap": 9, "bytes_per_second": 10}}
    politeness = read_politeness({"DOWNLOAD_DELAY": 3, "AOPIC_HOST_RULES": rules}, Ruled())
    assert politeness.rule is not None
    found = [politeness.rule(host) for host in ("a.test", "b.test", "c.org")]
    assert [each and each.options for each in found] == [
        {"min_gap": 3.0, "max_gap": 7.0, "bytes_per_second": 10.0},
        {"min_gap": 3.0, "max_gap": 9.0, "bytes_per_second": 10.0},
        None,
    ]
