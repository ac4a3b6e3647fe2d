"""Which answers are not read, because others would take a time for them that is not linear in their bytes."""

from __future__ import annotations

import pytest
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.http.headers import Headers

from scrapy_aopic.web.bounds import MAX_ATTRIBUTES, has_too_many_attributes, is_packed_too_often
from scrapy_aopic.web.page_text import MAX_CANONICALS, MAX_LINKS, read_canonical


@pytest.mark.parametrize(
    ("values", "is_too_often"),
    [
        ([], False),
        (["gzip"], False),
        (["gzip, br", "gzip"], False),
        (["gzip, gzip, gzip, gzip, gzip"], False),
        (["gzip," * 6], True),
        (["gzip"] * 6, True),
        (["x-gzip, gzip", "gzip,,gzip", "gzip"], True),
    ],
)
def test_how_often_a_body_may_be_packed(values: list[str], is_too_often: bool) -> None:
    assert is_packed_too_often(Headers({"Content-Encoding": values})) is is_too_often


def attributes(n: int) -> bytes:
    return b" ".join(b"a%d" % number for number in range(n))


TEXT = b"<p>some text</p>" * 3000
HIDDEN = [
    b"<p %s>",
    b"<p x='>' y=\">\" %s>",
    b'<i ="><a x=">" %s>',
    b'<!-- <a x=" --><b %s><p x=">',
    b"<script>'<a x=\"'</script><b %s>",
    b"<b\0 %s>",
    b"<b/%s",
    b"<svg><b %s>",
    b"<textarea></textarea><b <a %s>",
]


@pytest.mark.parametrize("html", HIDDEN)
def test_an_element_with_too_many_attributes_is_found_wherever_it_hides(html: bytes) -> None:
    for n, is_too_many in ((MAX_ATTRIBUTES // 2, False), (2 * MAX_ATTRIBUTES, True)):
        page = HtmlResponse(
            "http://a.test/", body=TEXT + html.replace(b"%s", attributes(n)) + b"></b>" + TEXT
        )
        assert has_too_many_attributes(page) is is_too_many
        most = (
            max(len(element.attrib) for element in page.selector.root.iter("*")) if n < MAX_ATTRIBUTES else 0
        )
        assert most <= MAX_ATTRIBUTES


@pytest.mark.parametrize("end", [b">", b"></b"])  # without an end, libxml2 passes over it in no time
def test_an_element_with_too_many_attributes_is_found_at_the_end(end: bytes) -> None:
    body = TEXT + b"<b " + attributes(2 * MAX_ATTRIBUTES) + end
    assert has_too_many_attributes(HtmlResponse("http://a.test/", body=body))


@pytest.mark.parametrize("unit", [b"<i></b>", b"<b>x</p>", b'<h1><h1><a>"</div>'])
def test_behind_elements_too_deep_for_a_tree_nothing_is_looked_at(unit: bytes) -> None:
    body = (
        unit * 300_000 + b"<p " + attributes(2 * MAX_ATTRIBUTES) + b">"
    )  # which would take a quarter of an hour
    page = HtmlResponse("http://a.test/", body=body)
    assert not has_too_many_attributes(page)
    assert max(len(element.attrib) for element in page.selector.root.iter("*")) == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252", "shift_jis"])
def test_the_encoding_of_a_page_hides_nothing(encoding: str) -> None:
    body = (TEXT.decode() + f"<p {attributes(2 * MAX_ATTRIBUTES).decode()}>").encode(encoding)
    assert has_too_many_attributes(HtmlResponse("http://a.test/", body=body, encoding=encoding))


def test_other_answers_are_not_looked_at() -> None:
    body = TEXT + b"<p " + attributes(2 * MAX_ATTRIBUTES) + b">"
    assert not has_too_many_attributes(Response("http://a.test/", body=body))
    assert not has_too_many_attributes(TextResponse("http://a.test/", body=body))
    assert not has_too_many_attributes(
        HtmlResponse("http://a.test/", body=b"<p " + attributes(2000) + b">")
    )  # is soon read
    assert not has_too_many_attributes(HtmlResponse("http://a.test/", body=b"\0" * 50_000))


def page(*heads: str, **headers: str) -> HtmlResponse:
    return HtmlResponse(
        "http://a.test/", headers=headers, body=f"<html><head>{''.join(heads)}</head></html>".encode()
    )


LINK = '<link rel="canonical" href="/1">'
OTHER = "<link rel='x' href='/'>"


def test_of_a_page_with_too_many_canonical_links_none_counts() -> None:
    assert read_canonical(page(LINK * MAX_CANONICALS)) == "http://a.test/1"
    assert read_canonical(page(LINK * (MAX_CANONICALS + 1))) == ""
    assert read_canonical(page(Link="</1>; rel=canonical," * (MAX_CANONICALS + 1))) == ""


def test_only_the_first_links_of_a_page_are_looked_at() -> None:
    assert read_canonical(page(OTHER * (MAX_LINKS - 1), LINK)) == "http://a.test/1"
    assert read_canonical(page(OTHER * MAX_LINKS, LINK)) == ""
    assert read_canonical(page(Link="</x>; rel=x," * MAX_LINKS + "</1>; rel=canonical")) == ""


@pytest.mark.parametrize(
    "url", ["http://[", "http://" + "\u0301\u0323" * 100_000, "http://h/" + "x" * 100_000]
)
def test_what_is_no_url_or_takes_a_minute_to_parse_is_not_canonical(url: str) -> None:
    assert read_canonical(page(f'<link rel="canonical" href="{url}">')) == ""
