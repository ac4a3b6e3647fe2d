"""``scrapy aopic docs``: users find what an error names, a setting, a stat, a command or words, without an address."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

import pytest
from scrapy.settings import Settings
from support.commands import run_here

from scrapy_aopic.commands import docs_command

PACKAGE = Path(__file__).parents[2] / "scrapy_aopic"


def shown_for(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says of *words*, without its parsers."""
    docs_command.run(Namespace(name=words.split()), Settings())
    return capsys.readouterr().out


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
    assert {"order#the-default", "settings", "many-machines#the-server"} < named
    listed = run_here(capsys, "docs")[1]
    for name in named:
        assert f"scrapy aopic docs {name.partition('#')[0]} " in listed
        assert shown_for(name, capsys).strip(), name


QUESTIONS = {  # what users ask of crawlers, in their words, and where the answer is
    "How do I stop it and go on tomorrow?": ("stop continue", "first-crawl#stop-and-continue"),
    "How do I stop after so many pages?": ("stop pages", "how-to#stop-after-n-pages"),
    "At most so many pages of a host?": ("limit pages host", "politeness#options-of-single-hosts"),
    "Only one country?": ("country", "how-to#one-country"),
    "Only one language?": ("language", "how-to#one-language"),
    "Only these domains?": ("10,000 domains", "how-to#a-list-of-10000-domains"),
    "Only HTML?": ("only html", "how-to#only-html"),
    "Pages that need JavaScript?": ("browser", "how-to#pages-that-need-a-browser"),
    "How deep does it go?": ("depth", "settings#aopic_url_limits"),
    "Why was this URL not crawled?": ("why url not crawled", "troubleshooting#why-was-this-url-not-crawled"),
    "Why is it slow?": ("slow", "troubleshooting#it-is-slow"),
    "Nothing is fetched?": ("nothing fetched", "troubleshooting#nothing-is-fetched"),
    "How does it keep out of calendars and traps?": ("traps", "dashboard#traps"),
    "Session ids in URLs?": ("session", "urls#sessions"),
    "What about duplicate pages?": ("duplicates", "content#duplicates"),
    "Canonical links?": ("canonical", "content#canonical-pages"),
    "What happens to failed pages?": ("failures retries", "politeness#failures"),
    "Several proxies?": ("proxies", "politeness#several-proxies"),
    "Does priority work?": ("priority", "order#priorities"),
    "Sitemaps?": ("sitemaps", "robots#sitemaps"),
    "What should the user agent say?": ("user agent", "contact#what-a-request-says"),
    "How do I move from scrapy-redis?": ("from scrapy-redis", "many-machines#from-scrapy-redis"),
    "Several machines?": ("several machines", "many-machines#several-workers"),
    "How much memory does it take?": ("memory", "settings#memory"),
    "How do I run it in Docker?": ("docker", "deploy#docker"),
    "How do I upgrade?": ("upgrade", "deploy#upgrade"),
    "How do I back up a job?": ("backup", "commands#backup"),
    "WARC files?": ("warc", "first-crawl#responses-as-warc"),
    "Text as Parquet?": ("parquet text", "how-to#text-and-metadata-as-parquet"),
    "Which pages have changed?": ("changed", "how-to#changed-pages-every-day"),
    "Pages about a topic, by keywords?": ("keywords topic", "first-topic#by-keywords"),
    "How do I block a host?": ("block host", "commands#control"),
    "Prometheus?": ("prometheus", "dashboard#metrics"),
}


def test_questions_of_users_are_answered_within_two_clicks(capsys):
    """One on the page, which the home page lists, and one on the heading, which the page's contents have."""
    listed = shown_for("", capsys)
    for words in QUESTIONS.values():
        page, _, place = words[1].partition("#")
        assert f"scrapy aopic docs {page} " in listed
        assert shown_for(f"{page}#{place}", capsys).startswith("#")


def test_questions_of_users_are_answered_by_one_search(capsys):
    lost = {}
    for question, (words, place) in QUESTIONS.items():
        shown = shown_for(words, capsys)
        heading = shown_for(place, capsys).splitlines()[0]
        if not {f"scrapy aopic docs {place}", heading} & {*shown.splitlines()}:
            lost[question] = shown.splitlines()[:10]
    assert not lost, lost
