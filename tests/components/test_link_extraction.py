"""Links are found as Scrapy's ``LinkExtractor`` finds them, whatever a page consists of."""

from __future__ import annotations

import copy
import pickle
import re
from html import escape
from inspect import signature
from typing import Any

import pytest
import scrapy
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from packaging.version import Version
from scrapy import Request
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse
from scrapy.link import Link
from scrapy.linkextractors import LinkExtractor as ScrapyLinkExtractor
from scrapy.utils.request import fingerprint
from scrapy.utils.response import get_base_url

from scrapy_aopic import LinkExtractor, Links
from scrapy_aopic.spiders import FIELDS
from scrapy_aopic.web import parse_limits
from scrapy_aopic.web.context import page_context
from scrapy_aopic.web.link_extraction import Extraction, LinkJoiner, extraction, note_joined, request_for
from scrapy_aopic.web.page_text import read_canonical

ENCODINGS = ("utf-8", "latin-1", "cp1251", "gb18030", "shift_jis", "utf-16", "utf-7", "cp037")

# Pieces of URLs, plain and otherwise, from which a link is put together at random.
PIECES = (
    "a", "b1", "page.html", "a-b_c~d", "é", "я", "漢字", "\u200b", "%41", "%e9", "%zz", "%", "+", " ", "&", "=", "'", '"', "!", "*", "(", ")", ",",
    ";", ";x=1", "@", "$", "|", "[", "]", "^", "`", "{", "}", "<", "\\", "\t", "\n", "\x0c", "\r", "\x01", "\x7f", "\xa0", "\ud7ff",
    "/", "//", "/./", "/../", "..", ".", "./", "../", "../../", "../../../../", "?", "?a=1", "?q=é&b=я", "?a='", "?a=1?b", "&amp;", "#", "#top",
    "#a b", "#é", "#a#b", ":", "http:", "https:", "HTTP://", "http://", "https://", "//other.test", "http://other.test", "http://OTHER.test/", "Https://Other.test:54321",
    "http://other.test:80/", "http://other.test:8080", "https://other.test:99999/", "http://other.test:080/", "http://user:pass@other.test/",
    "http://bücher.test/", "http://xn--bcher-kva.test/", "http://1.2.3.4/", "http://[::1]/", "http://[::1", "http://a..b/", "http://-/",
    "http://a_b.test/", "http://other.test./", "http://" + "a" * 70 + ".test/", "http:///x", "http:/x", "http:x", "javascript:void(0)", "mailto:a@b.test",
    "data:text/html,x", "tel:1", "ftp://f.test/a", "file:///etc/x", "about:blank", "\u2100", "http://\u2100.test/", ".pdf", ".PDF", ".tar.gz", ".html",
    "x.jpg?y", "x.jpg#y", "x.zip;y", "x.pdf/", "http://other.ai", "http://other.ai?x", "index.php?id=1&x=2;3", "javascript:;", "/wiki/Talk:Foo",
)  # fmt: skip
links = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=4).map("".join),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("/".join),
    st.text("ab./?#:;%&=' éя\\", max_size=12),
)
PAGES = (
    "http://h.test/a/b/page.html?q=1", "http://h.test", "http://h.test/", "http://h.test?x=1", "http://h.test/a/", "https://h.test:8443/a/b#part", "http://h.test:54321/a",
    "http://h.test:99999/a/", "http://user:pass@h.test/a/b", "http://h.test//a//b", "http://h.test/a/../b/./c", "http://h.test/a;p=1/b;q=2?r",
    "http://h.test/.hidden/x", "http://h.test/a b/é?é", "http://H.TEST/A/", "http://bücher.test/a/b", "http://h.test/a/b?", "http://h.test/a/b#",
    "http://h.test/a/b?x'y", "http://[::1]/a/b", "file:///tmp/a/b.html", "data:text/html,x", "about:blank", "http://h.test/a:b/c:d", "", "/a/b", "http://h.test\\a\\b",
)  # fmt: skip
pages = st.one_of(st.sampled_from(PAGES[:7]), st.sampled_from(PAGES))
bases = st.one_of(
    st.none(),
    st.none(),
    links,
    st.sampled_from((*PAGES, "sub/", "../", "/", "//other.test/x/", "http://", "http://[bad/")),
)
rels = st.sampled_from(
    (None, None, "nofollow", "NoFollow", "noopener,nofollow", "external nofollow", "nofollowed", "prev", "")
)


@st.composite
def anchors(draw: st.DrawFn) -> str:
    """An element that may be a link, with its text, quoted in one way or another."""
    tag = draw(st.sampled_from(("a", "a", "a", "a", "area", "A", "link", "frame", "iframe", "svg:a", "b")))
    name = draw(st.sampled_from(("href", "href", "href", "href", "HREF", "src", "xlink:href", "data-href")))
    link = draw(links)
    quote = draw(st.sampled_from(('"', '"', "'", "", "raw")))
    space = draw(st.sampled_from(("", "", "", " ", "\n", "\t ", "\xa0", "\x0c")))
    value = link if quote == "raw" else escape(space + link + space, quote=True)
    quote = '"' if quote == "raw" else quote
    rel = draw(rels)
    attributes = [f"{name}={quote}{value}{quote}", *([f'rel="{rel}"'] if rel is not None else [])]
    if draw(st.integers(0, 9)) == 0:
        attributes.insert(
            draw(st.integers(0, 1)), draw(st.sampled_from(('href="second"', 'src="/s"', "href", "href=")))
        )
    text = draw(
        st.sampled_from(
            (
                "text",
                "",
                "Next <b>page</b>",
                "a<!-- c -->b",
                "x &amp; é",
                "<img alt=i>",
                "<?p?>next",
                "<![CDATA[c]]>next",
            )
        )
    )
    end = draw(st.sampled_from((f"</{tag}>", f"</{tag}>", f"</{tag}>", "")))
    return f"<{tag} {' '.join(attributes)}>{text}{end}"


MARKUP = (
    "<div>", "</div>", '<div class="r">', "<p>", "</p>", "<main>", "</main>", "<table>", "<tr>", "<td>", "</table>", "<svg>", "</svg>", "<map>", "<b>", "</b>",
    "<form>", "<template>", "</template>", "<noscript>", "<script>'<a href=\"/no\">'</script>", "<!-- <a href='/no'> -->", "<frameset>", "text", "&nbsp;",
    "</body>", "<head>", "<ul><li>", "<textarea>", "</a>", "<title>", "\x00",
)  # fmt: skip


@st.composite
def responses(draw: st.DrawFn) -> HtmlResponse:
    """A page of HTML, of any encoding and with any base."""
    parts = draw(st.lists(st.one_of(anchors(), anchors(), st.sampled_from(MARKUP)), max_size=12))
    base = draw(bases)
    if base is not None:
        parts.insert(0, f'<base href="{escape(base)}">')
    if draw(st.integers(0, 4)) == 0:
        parts.insert(0, '<html xmlns="http://www.w3.org/1999/xhtml"><head></head><body>')
    encoding = draw(st.one_of(st.just("utf-8"), st.sampled_from(ENCODINGS)))
    body = "".join(parts).encode(encoding, "xmlcharrefreplace")
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.sampled_from((b"\xff", b"\x80\x81", b"\xc3"))) + body[at:]
    return HtmlResponse(draw(pages), body=body, encoding=encoding)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"deny_extensions": []},
    {"deny_extensions": ["html", "tar.gz", "PDF", "", "x/b1"]},
    {"allow": r"a"},
    {"allow": [r"^http://h\.test/", "other"], "deny": r"1"},
    {"deny": [r"#", r"\?"]},
    {"allow_domains": ["h.test", "OTHER.test"]},
    {"allow_domains": "test", "deny_domains": ["h.test", ""]},
    {"restrict_css": ".r"},
    {"restrict_css": "div a"},
    {"restrict_css": ["p", "div"], "restrict_xpaths": "//a | //td"},
    {"restrict_text": "ext"},
    {"restrict_text": ["^$", "é"], "restrict_css": "div, a"},
    {"unique": False},
    {"unique": False, "restrict_css": "div", "restrict_text": "e"},
    {"strip": False},
    {"tags": "a"},
    {"tags": ["frame", "iframe", "a"], "attrs": ["src", "href"]},
    {"tags": ["A", "svg:a", "b"], "attrs": "xlink:href"},
    {"tags": (), "attrs": ()},
    {"tags": "*"},
    {"tags": "*", "attrs": "*"},
    {"attrs": ["*"], "deny_extensions": ()},
    {"canonicalize": True},
    {"process_value": lambda value: value.removesuffix("l") or None},
)

if (
    "deny_tags" not in signature(ScrapyLinkExtractor).parameters
):  # before Scrapy 2.17, "*" is a name like another
    OPTIONS = tuple(
        options for options in OPTIONS if "*" not in (*options.get("tags", ()), *options.get("attrs", ()))
    )


def found_by_scrapy(response: Response, options: dict[str, Any]) -> list[Link] | None:
    """``None`` if it raises."""
    try:
        return ScrapyLinkExtractor(**options).extract_links(response)
    except ValueError:
        return None


@pytest.mark.slow
@settings(max_examples=250)
@given(response=responses(), options=st.one_of(st.just({}), st.sampled_from(OPTIONS)))
@example(
    HtmlResponse(
        "http://h.test/a/b", body=b"<a href='?'>1</a><a href='#'>2</a><a href=''>3</a><a href>4</a>"
    ),
    {},
)
def test_links_are_those_of_scrapys_extractor(response, options):
    expected = found_by_scrapy(response, options)
    assume(expected is not None)
    assert LinkExtractor(**options).extract_links(response) == expected
    if set(options) & {"canonicalize", "process_value"}:
        return
    fast = Extraction(**options)
    assert list(fast.urls(response)) == [link.url for link in expected or ()]
    # In a crawl for a topic, links are joined before.
    context = page_context(response.selector.root, response.url, get_base_url(response), response.encoding)
    note_joined(response, context.joined)
    assert list(fast.urls(response)) == [link.url for link in expected or ()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse_limits, "HUGE", 0)  # it gets no tree, if none is needed
        assert list(fast.urls(response)) == [link.url for link in expected or ()]


@pytest.mark.slow
@settings(max_examples=1000)
@given(link=links, page=pages, base=st.one_of(st.none(), pages), encoding=st.sampled_from(ENCODINGS))
def test_a_plain_link_is_joined_as_by_all_steps(link, page, base, encoding):
    one = LinkJoiner(page, page if base is None else base, encoding)
    assert one.join(link) == one.join_by_all_steps(link)


@settings(max_examples=500)
@given(link=links, page=pages)
@example("http://other.test/a?b#c", "http://h.test/")
def test_a_request_for_a_link_is_that_of_its_url(link, page):
    for url in {link, LinkJoiner(page, page, "utf-8").join(link) or ""}:
        try:
            expected = Request(url, print, errback=repr, cb_kwargs={"a": 1})
        except ValueError as error:
            with pytest.raises(ValueError, match=re.escape(str(error))):
                request_for(url, callback=print)
            continue
        request = request_for(url, callback=print, errback=repr, cb_kwargs={"a": 1})
        assert all(getattr(request, name) == getattr(expected, name) for name in Request.attributes)
        assert fingerprint(request) == fingerprint(expected)
        assert request.replace(url="http://a.test/é").url == "http://a.test/%C3%A9"


def page(body: str, url: str = "http://h.test/a/b") -> HtmlResponse:
    return HtmlResponse(url, body=body.encode(), encoding="utf-8")


XHTML = """<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml" xmlns:x="http://www.w3.org/1999/xlink"><body>
<a href="one" x:href="two">1</a><o:a xmlns:o="http://other.test/" href="three">3</o:a><x:a href="four"/></body></html>"""


def test_they_are_the_same_in_other_trees():
    for options in [
        *(options for options in OPTIONS if options in ({}, {"tags": "*"})),
        {"attrs": ["href", "{http://www.w3.org/1999/xlink}href"]},
    ]:  # fmt: skip
        for response in [
        XmlResponse("http://h.test/a", body=XHTML.encode()),
        HtmlResponse("http://h.test/a", body=XHTML.encode()),
        TextResponse("http://h.test/a", body=XHTML.encode()),
        TextResponse("http://h.test/a", body=b"see <a href='/b'>b</a>"),
        HtmlResponse("http://h.test/a", body=b""),
    ]:  # fmt: skip
            expected = ScrapyLinkExtractor(**options).extract_links(response)
            assert LinkExtractor(**options).extract_links(response) == expected
            assert list(Extraction(**options).urls(response)) == [link.url for link in expected]


@pytest.mark.parametrize(
    "response",
    [
        Response("http://h.test/i", body=b"GIF89a"),
        pytest.param(
            JsonResponse("http://h.test/j", body=b'{"a": "<a href=b>"}'),
            marks=pytest.mark.skipif(
                Version(scrapy.__version__) < Version("2.19"),
                reason="older ones may find links in JSON, as Scrapy's do",
            ),
        ),
    ],
    ids=["bytes", "json"],
)
def test_what_is_no_markup_has_no_links(response):
    assert not list(Extraction().urls(response))
    with pytest.raises(AttributeError) as expected:
        ScrapyLinkExtractor().extract_links(response)
    with pytest.raises(AttributeError) as raised:
        LinkExtractor().extract_links(response)
    assert str(raised.value) == str(expected.value)


def test_a_region_that_is_no_element_is_refused_with_its_expression():
    with pytest.raises(ValueError, match=r"'//a/@href' selects texts or attributes"):
        list(Links(page("<a href=b>"), xpath="//a/@href").urls())


def test_what_scrapys_extractor_fails_at_does_not_count():
    for body in [
        '<base href="http://other.test:99999/"><a href="c">1</a>',
        '<base href="http://[bad/"><a href="c">1</a>',
        '<a href="http://[v1.a[]">0</a><a href="c">1</a>',
    ]:
        with pytest.raises(ValueError, match=r"Port out of range|Invalid IPv6 URL|does not appear to be"):
            ScrapyLinkExtractor().extract_links(page(body))
        assert [link.url for link in LinkExtractor(restrict_css="a").extract_links(page(body))] == [
            "http://h.test/a/c"
        ]
        assert list(Links(page(body)).urls()) == ["http://h.test/a/c"]


def test_a_link_that_is_as_long_as_a_file_does_not_count():
    """Escaping it takes seventy times its size."""
    body = f"<a href='é{'x' * 70_000}'>1</a><a href='c'>2</a><a href='javascript:{'x' * 70_000}'>3</a>"
    assert [link.url for link in LinkExtractor().extract_links(page(body))] == ["http://h.test/a/c"]


@pytest.mark.parametrize("depth", [254, 2044, 2045, 2046, 2047, 2048, 2049, 5000])
def test_links_of_a_huge_page_are_those_of_its_tree_however_deep_it_is(depth, monkeypatch):
    deep = page("<a href=0>" + "<div>" * depth + "<a href=1></a>" + "</div>" * 10 + "<p><a href=2></a>")
    expected = list(Extraction().urls(deep))
    monkeypatch.setattr(parse_limits, "HUGE", 0)
    assert list(Extraction().urls(deep)) == expected


def test_a_huge_page_gets_no_tree_for_its_links_title_language_and_canonical_page(monkeypatch):
    monkeypatch.setattr(parse_limits, "HUGE", 100)
    head = '<html lang=de><title>t</title><link rel=canonical href="/c">'
    huge = page(head + "<p>" * 100 + "<a href=1><img alt=x></a>" * 2)
    assert list(Links(huge).urls()) == ["http://h.test/a/1"]
    assert [FIELDS[name](huge) for name in ("title", "language")] == ["t", "de"]
    assert read_canonical(huge) == "http://h.test/c"
    assert huge._cached_selector is None


def test_links_are_found_one_by_one(monkeypatch):
    """So a page of many costs the event loop nothing but what has been taken."""
    joined: list[str] = []
    join = LinkJoiner.resolve
    monkeypatch.setattr(
        LinkJoiner, "resolve", lambda self, *args: joined.append(args[0]) or join(self, *args)
    )
    urls = Links(page("".join(f"<a href='é{n}'>" for n in range(5000)))).urls()
    assert [next(urls) for _ in range(3)] == [f"http://h.test/a/%C3%A9{n}" for n in range(3)]
    assert len(joined) == 3


def test_regions_in_regions_are_searched_once(monkeypatch):
    """With a thousand, one in another, each link would be read a thousand times."""
    searched: list[Any] = []
    read = Extraction._links_in
    monkeypatch.setattr(
        Extraction, "_links_in", lambda self, *args: searched.append(args[0]) or read(self, *args)
    )
    deep = page("<div>" * 100 + "<a href=1>" + "</div>" * 100 + "<div><p><a href=2></div><p><a href=3>")
    options = {"restrict_css": ["div", "p", "a"], "deny": "nothing"}
    expected = [link.url for link in ScrapyLinkExtractor(**options).extract_links(deep)]
    assert list(Extraction(**options).urls(deep)) == expected
    assert [element.tag for element in searched] == ["div", "div", "p"]


def test_the_same_options_are_compiled_once():
    assert extraction(restrict_css=("main a",)) is extraction(restrict_css=("main a",))


PAGE = "<div><a href='one.html' rel=nofollow>first</a></div><a href='/two'>second</a><a href='one.html'>third</a>"


def test_an_extractor_can_be_copied():
    for copied in [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]:
        extractor = LinkExtractor(allow="html", restrict_css="div")
        expected = extractor.extract_links(page(PAGE))
        assert copied(extractor).extract_links(page(PAGE)) == expected != []


class OwnRules(LinkExtractor):
    def _link_allowed(self, link: Link) -> bool:
        return link.text == "second"


class OwnAttributes(LinkExtractor):
    extra = 1

    def __init__(self) -> None:
        super().__init__(allow="nothing")
        self.allow_res = []
        self.restrict_xpaths = ("//div",)

    def extract_links(self, response: TextResponse) -> list[Link]:
        return [link for link in super().extract_links(response) if link.nofollow]


def test_what_a_subclass_overrides_counts():
    assert [link.url for link in OwnRules().extract_links(page(PAGE))] == ["http://h.test/two"]
    assert [link.text for link in OwnAttributes().extract_links(page(PAGE))] == ["first"]


def test_a_subclass_that_overrides_nothing_of_scrapys_is_served_here(monkeypatch):
    monkeypatch.setattr(ScrapyLinkExtractor, "extract_links", None)
    assert [link.text for link in OwnAttributes().extract_links(page(PAGE))] == ["first"]


@pytest.mark.parametrize("options", [*OPTIONS[:-2], {"attrs": "href", "strip": True}], ids=str)
def test_options_are_served_here(options, monkeypatch):
    """Scrapy's code is not used for them in secret."""
    assert LinkExtractor(**options).extract_links(page(PAGE)) == ScrapyLinkExtractor(**options).extract_links(
        page(PAGE)
    )
    if "*" in options.get("tags", ()) or "*" in options.get("attrs", ()):
        return
    monkeypatch.setattr(ScrapyLinkExtractor, "extract_links", None)
    LinkExtractor(**options).extract_links(page(PAGE))


def test_an_option_that_there_is_not_is_refused_as_by_scrapys():
    with pytest.raises(TypeError, match="allowed"):
        LinkExtractor(allowed="x")  # type: ignore[call-arg]
