"""Which answers are not read, because others would take a time for them that is not linear in their bytes."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.http.headers import Headers

from scrapy_aopic.web import parse_limits
from scrapy_aopic.web.page_text import MAX_CANONICALS, MAX_LINKS, read_canonical
from scrapy_aopic.web.parse_limits import (
    MAX_ATTRIBUTES,
    Attributes,
    attributes_of,
    is_packed_too_often,
    look_at,
    may_have_more_attributes,
    too_many_attributes,
)


def test_how_often_a_body_may_be_packed():
    for values, is_too_often in [
        ([], False),
        (["gzip"], False),
        (["gzip, br", "gzip"], False),
        (["gzip, gzip, gzip, gzip, gzip"], False),
        (["gzip," * 6], True),
        (["gzip"] * 6, True),
        (["x-gzip, gzip", "gzip,,gzip", "gzip"], True),
    ]:
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


def test_an_element_with_too_many_attributes_is_found_wherever_it_hides():
    for html in HIDDEN:
        for n, is_too_many in ((MAX_ATTRIBUTES // 2, False), (2 * MAX_ATTRIBUTES, True)):
            page = HtmlResponse(
                "http://a.test/", body=TEXT + html.replace(b"%s", attributes(n)) + b"></b>" + TEXT
            )
            assert any(too_many_attributes(page)) is is_too_many, html
            most = (
                max(len(element.attrib) for element in page.selector.root.iter("*"))
                if n < MAX_ATTRIBUTES
                else 0
            )
            assert most <= MAX_ATTRIBUTES, html


PIECES = [
    *"<>=\"'/ \n\f!-ab",
    *(
        "<a ",
        "<b/",
        "</a>",
        "<p>text",
        '="',
        "='",
        "= '",
        '" ',
        " c",
        " d=e",
        " f='>'",
        ' g=">"',
        " =>",
        "=\u00a0'",
    ),
    *("<!--", "-->", "<script>", "</script>", "<textarea>", "</textarea>", "<![CDATA[", "<?x", "&gt;"),
]


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), st.integers(1, 5))
@example("<a b='>'c d e f g h>", 3)
@example('<a "><b x=" >  text text " c d e f g h i>', 3)
@example("<a " + " ".join("bcdefghij"), 4)
def test_whatever_the_parser_sees_no_tag_with_many_attributes_counts_as_short(html, most):
    seen = [0]

    class Target:
        def start(self, _: str, attributes: dict[str, str]) -> None:
            seen.append(len(attributes))

        def close(self) -> None:
            pass

    parser = etree.HTMLParser(target=Target(), encoding="utf-8", huge_tree=True)
    try:
        parser.feed(html.encode())
        parser.close()
    except etree.LxmlError:
        pass
    if max(seen) > most:
        assert may_have_more_attributes(html.encode(), most)


def test_ordinary_pages_are_not_parsed_for_the_number_of_attributes():
    body = b'<div class="a b"><p title="x">' + b"some text " * 500 + b"</p><a href='/b?c=d'>e</a></div>"
    assert not may_have_more_attributes(body * 20, MAX_ATTRIBUTES)
    assert may_have_more_attributes(
        body * 20 + b"<p " + attributes(MAX_ATTRIBUTES + 1) + b">", MAX_ATTRIBUTES
    )


@pytest.mark.parametrize("end", [b">", b"></b"])  # without an end, libxml2 passes over it in no time
def test_an_element_with_too_many_attributes_is_found_at_the_end(end):
    body = TEXT + b"<b " + attributes(2 * MAX_ATTRIBUTES) + end
    assert any(too_many_attributes(HtmlResponse("http://a.test/", body=body)))


@pytest.mark.parametrize("value", ["", "=1", "='>'", '=">"'])
def test_a_tag_that_does_not_end_is_not_parsed_in_one_step(value):
    """A million attributes take a second."""
    most = 0

    class Counts(Attributes):
        def start(self, tag: str, attributes: dict[str, str]) -> None:
            nonlocal most
            most = max(most, len(attributes))
            super().start(tag, attributes)

    found = Counts(MAX_ATTRIBUTES)
    tag = "<b " + " ".join(f"a{n}{value}" for n in range(200_000)) + ">"
    for _ in look_at(TEXT + tag.encode() + TEXT, found):
        pass
    assert found.are_too_many
    assert most < 100_000


def test_a_long_value_is_one_attribute():
    page = TEXT + b"<img src='data:" + b"a/" * 300_000 + b"'><a href=b>" + TEXT
    assert list(attributes_of(page, "a")) == [{"href": "b"}]


def test_behind_elements_too_deep_for_a_tree_nothing_is_looked_at():
    for unit in [b"<i></b>", b"<b>x</p>", b'<h1><h1><a>"</div>']:
        body = (
            unit * 300_000 + b"<p " + attributes(2 * MAX_ATTRIBUTES) + b">"
        )  # which would take a quarter of an hour
        page = HtmlResponse("http://a.test/", body=body)
        assert not any(too_many_attributes(page)), unit
        assert max(len(element.attrib) for element in page.selector.root.iter("*")) == 0, unit


def test_the_encoding_of_a_page_hides_nothing():
    for encoding in ["utf-8", "utf-16", "cp1252", "shift_jis"]:
        body = (TEXT.decode() + f"<p {attributes(2 * MAX_ATTRIBUTES).decode()}>").encode(encoding)
        assert any(too_many_attributes(HtmlResponse("http://a.test/", body=body, encoding=encoding)))


ATTRIBUTES = st.sampled_from(
    [" a{}", "/h{}", " i{}=x", " j{}='>'", ' k{}=">"', " l{}='\">'", ' m{}= "=\'>" ']
)
OTHERS = st.sampled_from(
    [
        *(
            "<b",
            "<B ",
            "<i:j",
            "</b",
            "<",
            ">",
            "/",
            "/>",
            " ",
            "\n",
            "\t",
            "\f",
            "=",
            '"',
            "'",
            '="',
            "='",
            '=" >',
            "= '",
        ),
        *('="">', '"a', "'a", ' d{}="', " g{}=>", "--", "<!--", "-->", "<![CDATA[", "\xa0", "é", "<script>"),
        *("</script>", "<style ", "<textarea>", "<p>text</p>", "<svg>", "<?x"),
    ]
)
SMALL_MAX = 8


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(st.lists(ATTRIBUTES, max_size=10) | st.lists(OTHERS, max_size=3), max_size=12))
def test_what_is_known_at_a_glance_to_have_few_attributes_has_few(runs):
    html = "".join(piece.replace("{}", f"{n}") for n, piece in enumerate(chain(*runs)))
    found = parse_limits.Attributes(SMALL_MAX)
    list(parse_limits.look_at(html.encode(), found))
    page = HtmlResponse("http://a.test/", body=f"<html>{html}</html>".encode(), encoding="utf-8")
    most = max(len(element.attrib) for element in page.selector.root.iter("*"))
    if found.are_too_many or most > SMALL_MAX:
        assert may_have_more_attributes(html.encode(), SMALL_MAX)


def test_an_ordinary_page_is_known_to_have_few_attributes_at_a_glance():
    link = b'<li class="item"><a href="/a/b.html?c=d&amp;e=f" title="some > title">text</a>, and more of it</li>\n'
    script = (
        b"<script>for (i = 0; i < n; i++) { x = '<b class=\"y\">'; }"
        + b"let abc = def;\n" * 500
        + b"</script>"
    )
    text = b"<p>" + b"some words, and more of them, " * 1000 + b"</p>"
    assert not may_have_more_attributes((link * 10 + script + text) * 30, MAX_ATTRIBUTES)


@pytest.mark.parametrize(
    "unit", [b"='>", b'=">', b"=\">'", b"<b ='", b"<b x= ", b"=", b"= ", b">", b'"', b"<b <b"]
)
def test_it_is_known_in_linear_time(unit):
    """Quadratic time would be hours."""
    may_have_more_attributes(unit * (10_000_000 // len(unit)), MAX_ATTRIBUTES)


def test_other_answers_are_not_looked_at():
    body = TEXT + b"<p " + attributes(2 * MAX_ATTRIBUTES) + b">"
    assert not any(too_many_attributes(Response("http://a.test/", body=body)))
    assert not any(too_many_attributes(TextResponse("http://a.test/", body=body)))
    small = HtmlResponse("http://a.test/", body=b"<p " + attributes(2000) + b">")
    assert not any(too_many_attributes(small))  # it is soon read
    assert not any(too_many_attributes(HtmlResponse("http://a.test/", body=b"\0" * 50_000)))


def page(*heads: str, **headers: str) -> HtmlResponse:
    return HtmlResponse(
        "http://a.test/", headers=headers, body=f"<html><head>{''.join(heads)}</head></html>".encode()
    )


LINK = '<link rel="canonical" href="/1">'
OTHER = "<link rel='x' href='/'>"


def test_of_a_page_with_too_many_canonical_links_none_counts():
    assert read_canonical(page(LINK * MAX_CANONICALS)) == "http://a.test/1"
    assert read_canonical(page(LINK * (MAX_CANONICALS + 1))) == ""
    assert read_canonical(page(Link="</1>; rel=canonical," * (MAX_CANONICALS + 1))) == ""


def test_only_the_first_links_of_a_page_are_looked_at():
    assert read_canonical(page(OTHER * (MAX_LINKS - 1), LINK)) == "http://a.test/1"
    assert read_canonical(page(OTHER * MAX_LINKS, LINK)) == ""
    assert read_canonical(page(Link="</x>; rel=x," * MAX_LINKS + "</1>; rel=canonical")) == ""


def test_what_is_no_url_or_takes_a_minute_to_parse_is_not_canonical():
    for url in ["http://[", "http://" + "\u0301\u0323" * 100_000, "http://h/" + "x" * 100_000]:
        assert read_canonical(page(f'<link rel="canonical" href="{url}">')) == ""
