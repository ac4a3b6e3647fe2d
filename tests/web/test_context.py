"""What a page says of its links, and that hostile pages cost no more than their size."""

from __future__ import annotations

import pytest
from lxml import html

from scrapy_aopic.core.focus.words import LINK_CHARACTERS
from scrapy_aopic.web.context import MOST_LINKS, PageContext, page_context

BASE = "http://www.example.com/docs/"


def read(text: str) -> PageContext:
    return page_context(html.fromstring(text), BASE)


def test_what_a_page_says_of_a_link() -> None:
    context = read(
        "<html><title>T</title><body><script>var hidden</script><h2>Of <b>keys</b></h2><p>Read this <a href='Rsa.html?x=1#top' "
        "title='Primes'>about <i>RSA</i><img alt='lock' src=l></a> first</p></body></html>"
    )
    link = context.links["http://www.example.com/docs/Rsa.html?x=1"]
    assert link.anchor == "Primes about RSA lock"
    assert link.around == "T Of keys Read this first"
    assert link.heading == "Of keys"
    assert link.path == "/docs/Rsa.html?x=1"
    assert "hidden" not in context.text
    assert context.text.split() == ["T", "Of", "keys", "Read", "this", "about", "RSA", "lock", "first"]


def test_the_first_link_to_a_page_counts_and_others_are_no_pages() -> None:
    links = read(
        "<p><a href=a>one</a><a href=a#b>two</a><a href=mailto:x>m</a><a href='http://[x'>n</a></p>"
    ).links
    assert [(url, link.anchor) for url, link in links.items()] == [("http://www.example.com/docs/a", "one")]


def test_full_width_letters_are_letters() -> None:
    assert read("<p><a href=a>\uff32\uff33\uff21</a></p>").links[BASE + "a"].anchor == "RSA"


@pytest.mark.parametrize(
    "text",
    [
        "<p>" + "<a href=x>" + "word " * 200_000 + "</a></p>",
        "<p>" + "word " * 200_000 + "".join(f"<a href={i}></a>" for i in range(20_000)) + "</p>",
        "<p>"
        + "".join(f"<h1>{'w' * 100}</h1><a href={i} title={'t' * 2000}>x</a>" for i in range(6_000))
        + "</p>",
        "<p>" + "<div>" * 200 + "<a href=x>x</a>",
    ],
    ids=["long anchor", "links at a long text", "long titles", "deep"],
)
def test_texts_and_links_of_a_hostile_page_are_bounded(text: str) -> None:
    context = read(text)
    assert 0 < len(context.links) <= MOST_LINKS
    for link in context.links.values():
        assert max(map(len, (link.anchor, link.around, link.heading))) <= LINK_CHARACTERS
