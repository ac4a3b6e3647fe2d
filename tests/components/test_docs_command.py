"""``scrapy aopic docs``: users find what an error names, a setting, a stat, a command or words, without an address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import run_here

PACKAGE = Path(__file__).parents[2] / "scrapy_aopic"


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("politeness", "# Politeness", "politeness.md)"),
        ("politeness#failures", "## Failures", "politeness.md)"),
        ("docs/settings.md#aopic_min_gap.", "#### AOPIC_MIN_GAP", "settings.md)"),
        ("aopic_min_gap", "#### AOPIC_MIN_GAP", "settings.md)"),
        ("aopic/urls/slow", '- <a id="aopic_urls_slow_total"></a>`aopic/urls/slow` (', "stats.md)"),
        ("aopic_urls_slow_total", '- <a id="aopic_urls_slow_total"></a>`aopic/urls/slow` (', "stats.md)"),
        ("salvage", "## salvage", "commands.md)"),
    ],
)
def test_a_name_is_shown_as_it_is_documented_and_nothing_else(name, first, last, capsys):
    code, shown, _ = run_here(capsys, "docs", name)
    assert (code, shown.startswith(first), shown.endswith(f"{last}\n")) == (0, True, True), shown
    assert shown.count("#### AOPIC_") == (first.startswith("####"))
    assert "<!--" not in shown


def test_words_lead_to_the_places_that_have_them_all(capsys):
    code, shown, _ = run_here(capsys, "docs", "retry", "after")
    assert code == 0
    assert "scrapy aopic docs politeness#the-gap" in shown.splitlines()
    place = shown.splitlines()[0].split()[-1]
    text = run_here(capsys, "docs", place)[1].lower()
    assert "retry" in text
    assert "after" in text


def test_what_is_not_there_is_one_sentence_with_what_is(capsys):
    code, shown, error = run_here(capsys, "docs", "settings#aopic_min_gaps")
    assert (code, shown) == (2, "")
    assert "settings has no place 'aopic_min_gaps'; did you mean settings#aopic_min_gap?" in error
    code, shown, error = run_here(capsys, "docs", "zugzwang")
    assert (code, shown) == (2, "")
    assert "no page has 'zugzwang'; 'scrapy aopic docs' lists the pages" in error


def test_every_place_that_a_message_names_is_there(capsys):
    text = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"(?:scrapy aopic docs|\{DOCS\}) ([a-z][a-z-]+(?:#[\w-]+)?)", text))
    assert {"order#the-default", "settings", "many-machines"} < named
    listed = run_here(capsys, "docs")[1]
    for name in named:
        assert f"scrapy aopic docs {name.partition('#')[0]} " in listed
        assert run_here(capsys, "docs", name)[0] == 0, name
