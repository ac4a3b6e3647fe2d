"""Hostile URLs, markup and header values: pieces that parsers disagree on, put together at random."""

from __future__ import annotations

from random import Random

STARTS = (
    "http://example.com/", "http://h{n}.test/", "https://a.b/{n}/", "http://h/?{n}=", "http://u:p@h:8/{n}", "http://{n}",
    "http://", "HTTP:/", "//", "",
)  # fmt: skip

DATE_PIECES = (
    b"Mon", b",", b" ", b"Jan", b"9" * 25, b"31", b"-", b"+", b":", b"GMT", b"+9999", b"\xff", b"\0", b"(", b"2001",
)  # fmt: skip
"""What a date in a header is made of, the wrong order and numbers that are too large included."""

PIECES = (
    # what divides a URL
    "http://", "https://", "HTTP:", "http:/", "ftp://", "javascript:", "mailto:", "//", "/", "\\", "?", "#", "&", "=",
    ";", "@", ":", "..", ".", "./", "../", "+", ",", "~", "$", "*", "(", ")", "!", "|", "^", "{", "}", "`", "'", '"',
    "<", ">", "[", "]", "-", "_",
    # escapes, some of them broken, some hiding others
    "%", "%2e", "%2F", "%25", "%41", "%7e", "%zz", "%4", "%00", "%0a", "%e4", "%C3%A9", "%u00e9", "&amp;", "%%341",
    # characters that are dropped, folded, mapped or forbidden
    " ", "\t", "\n", "\r", "\x00", "\x1f", "\x7f", "\x85", "\u00a0", "\u2028", "\ufeff", "\ud800", "\udfff", "\ufffd",
    "é", "ß", "ﬀ", "日", "\u3002", "\uff0e", "\uff0f", "\u00ad", "\u200d", "\u2044", "\u212a", "\u0663", "\u202e",
    "\U0001f600", "\U0010ffff",
    # hosts
    "example.com", "xn--", "xn--a", "xn--bcher-kva", "[::1]", "[::ffff:1.2.3.4]", "[v1.x]", "[::1%25eth0]", "127.1",
    "0x7f", "08", "1", "256", "a" * 64, "b." * 130, "localhost",
    # ports
    ":80", ":443", ":0", ":65536", ":99999999999999999999",
    # what sites add, and what traps are made of
    "jsessionid=1", ";jsessionid=", "(S(lit3py55t21z5v55vlm25s55))", "utm_source=x", "sid=", "PHPSESSID=", "a=1&",
    "calendar", "2099/05", "year=0", "a/", "a/b/", ".pdf", ".tar.gz", "x" * 300, "/.;jsessionid=1/..",
)  # fmt: skip

MARKUP = (
    '<a href="{}">', "<a href='{}'>", "<a href={}>", '<a href="{}', '<A HREF = "{}"/>', '<area href="{}">',
    '<base href="{}">', '<link rel=next href="{}">', '<a rel="nofollow ugc" href="{}"><a href="{}">',
    '<table><a href="{}"><tr><a href="{}"></table>', '<svg><a xlink:href="{}">', "<!--<a href='{}'>-->", "<a href>",
    '<a href="\x00{}">', '<iframe src="{}">', '<meta http-equiv=refresh content="0;url={}">', "<plaintext>{}",
)  # fmt: skip

CHARSETS = (
    "utf-16", "utf-32", "utf-7", "nonsense", "idna", "punycode", "zlib", "hex", "rot13", "\xff", "undefined",
)  # fmt: skip

LOCATIONS = (
    "", "http://[", "http://:99999999/", "//", "///", "javascript:x", "file:///etc/passwd", "ftp://ftp.test/", "\xff\xfe",
    "http://" + "x" * 300 + "/", "/" + "x" * 60_000, "/%", "http://\x80.test/", "http://h.test:0/", "data:,x", "?" * 9,
)  # fmt: skip


def hostile_url(random: Random) -> str:
    """A URL that is in order at its beginning at most."""
    start = random.choice(STARTS[:6]) if random.random() < 0.9 else random.choice(STARTS)
    pieces = random.choices(PIECES, k=min(int(random.expovariate(0.25)), 30))
    return start.replace("{n}", str(random.randrange(100_000))) + "".join(pieces)


def hostile_page(random: Random, urls: list[str], malformed: tuple[str, ...] = ("<p>",)) -> str:
    """HTML that links to *urls* between *malformed* pieces."""
    parts = []
    for url in urls:
        parts += [
            random.choice(malformed),
            random.choice(MARKUP).format(url, url),
            random.choice(("", "x", "</a>")),
        ]
    return "".join(parts)
