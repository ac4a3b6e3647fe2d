"""What a page says of its links, and that hostile pages cost no more than their size."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html

import scrapy_aopic.web.context as context_module
from scrapy_aopic.core.focus.words import LINK_CHARACTERS, PAGE_CHARACTERS, all_words, words
from scrapy_aopic.web.context import MOST_LINKS, MOST_TAGS, PageContext, page_context

BASE = "http://www.example.com/docs/"


def read(text: str) -> PageContext:
    return page_context(html.fromstring(text), BASE)


def test_what_a_page_says_of_a_link():
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


def test_the_parts_of_a_page_are_texts_between_links_and_those_of_links():
    context = read(
        "<p>one <b>two</b> <a href=a>three <i>four</i></a><a href=b></a> five<a hidden href=c>six</a> <a href=a>again</a></p>"
    )
    found = [[part.split() for part in parts] for parts in context.parts()]
    assert found == [[["one", "two"], [], ["five", "again"]], [["three", "four"], []]]
    assert read("<p>one").parts() == (["one"], [])


def test_the_first_link_to_a_page_counts_and_others_are_no_pages():
    links = read(
        "<p><a href=a>one</a><a href=a#b>two</a><a href=mailto:x>m</a><a href='http://[x'>n</a></p>"
    ).links
    assert [(url, link.anchor) for url, link in links.items()] == [("http://www.example.com/docs/a", "one")]


def test_full_width_letters_are_letters():
    assert read("<p><a href=a>\uff32\uff33\uff21</a></p>").links[BASE + "a"].anchor == "RSA"


@given(
    st.text(
        st.sampled_from("a \u00a0\u0301\u0323e\ufb01\uac00\u1100\u1161\uff21") | st.characters(), max_size=50
    )
)
def test_a_text_is_in_its_compatible_form(text):
    assert context_module._clean(text).split() == unicodedata.normalize("NFKC", text).split()


LONG = "word " * 200_000
TITLES = [f"<h1>{'w' * 100}</h1><a href={i} title={'t' * 2000}>x</a>" for i in range(6_000)]
HOSTILE = {
    "long anchor": f"<p><a href=x>{LONG}</a></p>",
    "links at a long text": f"<p>{LONG}" + "".join(f"<a href={i}></a>" for i in range(20_000)) + "</p>",
    "long titles": f"<p>{''.join(TITLES)}</p>",
    "deep": "<p>" + "<div>" * 200 + "<a href=x>x</a>",
    "anchor of pieces": "<p><a href=x>" + "a <b>b</b> " * 9_000 + "</a>",
    "huge title": f"<title>{LONG}</title><h1>{LONG}</h1><a href=x>x</a>",
    "50,000 links": "<p>" + "".join(f"<a href={i}>{i}</a>" for i in range(50_000)),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_texts_and_links_of_a_hostile_page_are_bounded(text):
    context = read(text)
    assert 0 < len(context.links) <= MOST_LINKS
    for link in context.links.values():
        assert max(map(len, (link.anchor, link.around, link.heading))) <= LINK_CHARACTERS


def test_what_an_element_hides_is_not_read():
    context = read(
        "<body>a <p hidden>stuffed <a href=one>stuffed</a></p>b <div style='color: red; DISPLAY : none'>stuffed"
        "<div>stuffed <a href=two>stuffed</a></div></div>c <span style='visibility:hidden'>stuffed</span>d"
        "<img hidden alt=stuffed> e <a href=three>here<i hidden>stuffed</i></a> f <a hidden href=four title=stuffed>stuffed</a>"
        " g <p style='display: block; content: \"display:none\"'>h</p>"
    )
    assert context.text.split() == ["a", "b", "c", "d", "e", "here", "f", "g", "h"]
    assert "stuffed" not in str(context.links)
    assert [(url[len(BASE) :], link.anchor, link.path) for url, link in context.links.items()] == [
        ("one", "", "/docs/one"),
        ("two", "", "/docs/two"),
        ("three", "here", "/docs/three"),
        ("four", "", "/docs/four"),
    ]


def test_what_a_style_sheet_hides_is_read():
    assert "stuffed" in read("<style>p {display: none}</style><p class=off>stuffed</p>").text


def test_links_are_relative_to_the_base_of_the_page():
    root = html.fromstring(
        "<p>to <a href='b?q=1#c'>b</a>, <a href='//other.test'>o</a>, <a href='?p'>p</a></p>"
    )
    links = page_context(root, BASE, "http://www.example.com/base/").links
    assert {url: link.path for url, link in links.items()} == {
        "http://www.example.com/base/b?q=1": "/base/b?q=1",
        "http://other.test": "",
        "http://www.example.com/base/?p": "/base/?p",
    }


def test_text_behind_whatever_is_skipped_is_read():
    context = read(
        "<p>a<!-- - -->b<script>-</script>c<?pi?>d<style>-</style>e<noscript>-</noscript>f<br hidden>g</p>"
    )
    assert context.text.split() == list("abcdefg")


NAMES = (
    "a href=x1", "a href='x2' title=t", "a", "p", "h1", "b", "div hidden", "i style='display:none'",
    "noscript", "template",
)  # fmt: skip
TREES = st.recursive(
    st.sampled_from(
        ["w", " v ", "<!-- a > b -->", "<br>", "<img alt=u>", "&lt;z&gt;", "<script>a<b</script>", ""]
    ),
    lambda inner: st.builds(
        lambda name, parts: f"<{name}>{''.join(parts)}</{name.split()[0]}>",
        st.sampled_from(NAMES),
        st.lists(inner, max_size=4),
    ),
    max_leaves=20,
)


def walked(root: Any, pieces: list[str], links: list[tuple[str, int, int]]) -> None:
    """The texts under *root*, and the first and the last of those of each link, by a plain walk over the tree."""
    unseen = root.tag in ("script", "noscript", "template") or not isinstance(root.tag, str)
    hides = not unseen and (root.get("hidden") is not None or "none" in (root.get("style") or ""))
    begin = len(pieces)
    if hides:
        links += [(link.get("href"), begin, begin) for link in root.iter("a") if link.get("href")]
    elif not unseen:
        if root.text and root.text.strip():
            pieces.append(root.text.strip())
        if root.tag == "img":
            pieces.append(root.get("alt"))
        for child in root:
            walked(child, pieces, links)
        if root.tag == "a" and root.get("href"):
            links.append((root.get("href"), begin, len(pieces)))
    if root.tail and root.tail.strip():
        pieces.append(root.tail.strip())


@given(st.lists(TREES, min_size=1, max_size=4))
def test_a_page_says_what_a_walk_over_its_tree_finds(trees):
    root = html.document_fromstring(f"<html><body><p>begin{''.join(trees)}</p></body></html>")
    pieces: list[str] = []
    links: list[tuple[str, int, int]] = []
    walked(root, pieces, links)
    context = page_context(root, BASE, cut=all_words)
    assert context.text == " ".join(" ".join(pieces).split())
    assert context.words == words(context.text)
    firsts: dict[str, tuple[int, int]] = {}
    for href, begin, end in links:
        firsts.setdefault(BASE + href, (begin, end))
    assert {url: link.anchor.removeprefix("t").strip() for url, link in context.links.items()} == {
        url: " ".join(" ".join(pieces[begin:end]).split()) for url, (begin, end) in firsts.items()
    }
    n_in_full = len(context.links) // 2 + 1
    cut = context.cut([*context.links, None], n_in_full)
    assert cut is not None
    said, urls, *_ = cut.words, list(context.links)
    for number, (url, place) in enumerate(zip(urls, cut.links, strict=False)):
        before, begin, end, behind, above, below = place
        link = context.links[url]
        title = words(cut.titles.get(number, ""))
        assert [*title, *said[begin:end]] == words(link.anchor)
        around, heading = [*said[before:begin], *said[end:behind]], said[above:below]
        is_in_full = number < n_in_full
        assert (around, heading) == ((words(link.around), words(link.heading)) if is_in_full else ([], []))
    assert cut.links[-1] == (0, 0, 0, 0, 0, 0)


class Counted:
    """A pattern that counts what it is asked for."""

    def __init__(self, pattern: Any) -> None:
        self.pattern, self.characters = pattern, 0

    def search(self, text: str) -> Any:
        self.characters += len(text)
        return self.pattern.search(text)


def test_no_more_of_a_page_is_looked_at_than_its_bounds(monkeypatch):
    counted = Counted(context_module._INVISIBLE)
    monkeypatch.setattr(context_module, "_INVISIBLE", counted)
    style = "x:y;" * 5_000
    page = read("<body>" + f"<p style='{style}'>w" * 200 + "<a href=x>x</a>" * 50_000)
    assert counted.characters == 200 * LINK_CHARACTERS
    assert len(page.links) == 1
    n = MOST_TAGS + 5_000
    page = read("<body>" + "".join(f"<b style='a'>{n}</b>" for n in range(n)) + "<a href=x>x</a>")
    assert counted.characters < 200 * LINK_CHARACTERS + MOST_TAGS
    assert dict(page.links) == {}
    assert len(page.text) <= PAGE_CHARACTERS


def test_hidden_links_are_bounded_like_others():
    hidden = "".join(f"<a href={number}>x</a>" for number in range(50_000))
    assert len(read(f"<div hidden>{hidden}</div><a href=last>l</a>").links) == MOST_LINKS
