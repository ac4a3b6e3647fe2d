"""Random misbehaviour: what a server does with a request, drawn from a grammar, the same for the same seed and URL.

A host has habits, which make some kinds of trouble frequent with it; each URL then draws status line, headers, body,
encoding, framing, timing and end of its answer. About a third of all answers are in order, so that a crawl goes on.

Rule: a client can take an answer for whole only when the last piece of it is sent, so that the server's log knows
when a transfer was over. So what follows an answer, or does not belong to it, goes out with the last piece.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.hostile_input import CHARSETS, LOCATIONS, MARKUP, hostile_page, hostile_url

BOMB = gzip.compress(bytes(30_000_000))
NOISE = Random(0).randbytes(200_000)
WORDS = [
    "crawl",
    "page",
    "cash",
    "host",
    "naïve",
    "日本",
    "\u202eabc",
    "\x00",
    "a" * 300,
    "&amp;",
    "<",
    "]]>",
]

End: TypeAlias = Literal["keep", "close", "abort", "hang"]
"""What becomes of the connection after the last piece: it waits for a request, is closed, is reset, or says no more."""

# As weights, and in this order: what a seed draws follows from it.
CLOSED: tuple[End, ...] = ("close", "close", "abort")
UNSAID: tuple[End, ...] = ("close", "abort", "hang")
KEPT: tuple[End, ...] = ("keep", "close")
CUT: tuple[End, ...] = ("hang", "abort", "close")


class Plan(NamedTuple):
    """What a server does: *pieces* are sent, each after its seconds, and then the connection has its *end*."""

    pieces: list[tuple[float, bytes]]
    end: End
    status: int


class Habits(NamedTuple):
    """How often a host does what, 0 to 1, and what its robots.txt is."""

    status: float
    header: float
    framing: float
    timing: float
    coding: float
    body: float
    robots: str


_ORDERLY = Habits(0, 0, 0, 0, 0, 0, "")

HEAVY_LINKS = 6_667
"""Links of each megabyte of a heavy page, with 25 paragraphs behind each."""

ROBOTS = (
    *["none"] * 8, *["rules"] * 8,
    "page", "noise", "huge", "error", "later", "loop", "away", "abort", "drip", "bomb",
)  # fmt: skip


class Misbehaviour:
    """All hosts of a seed.

    Args:
        n_hosts: Hosts that pages link to.
        slowest: Seconds of the longest wait inside an answer.
        heavy: Share of pages, 0 to 1, that are in order but for their weight, of *heavy_mb*.
    """

    def __init__(
        self, seed: int, n_hosts: int, slowest: float, heavy: float = 0.0, heavy_mb: float = 3.0
    ) -> None:
        self._seed = seed
        self._n_hosts = n_hosts
        self._slowest = slowest
        self._heavy = heavy
        self._heavy_links = int(heavy_mb * HEAVY_LINKS)
        self.hosts = [f"h{n}.test" for n in range(n_hosts)]

    def habits(self, host: str) -> Habits:
        random = Random(f"{self._seed} {host}")
        # A vice of its own for each host, and a little of all others.
        weights = [random.choice((0.0, 0.02, 0.05)) for _ in range(6)]
        weights[random.randrange(6)] = random.choice((0.2, 0.5, 0.9))
        status, header, framing, timing, coding, body = weights
        return Habits(status, header, framing, timing, coding, body, random.choice(ROBOTS))

    def plan(self, host: str, target: str) -> Plan:
        """What *host* does when it is asked for *target*."""
        random = Random(f"{self._seed} {host} {target}")
        habits = self.habits(host)
        if target == "/robots.txt" and (plan := self._robots(random, host, habits.robots)) is not None:
            return plan
        if self._heavy and random.random() < self._heavy:
            answer = _Answer(random, _ORDERLY, self._slowest)
            answer.body, answer.kind = self._heavy_page(random), "text/html; charset=utf-8"
            return answer.plan()
        answer = _Answer(random, habits, self._slowest)
        if target.startswith("/sitemap"):
            answer.body, answer.kind = self._sitemap(random, host)
        elif random.random() < habits.body:
            answer.body, answer.kind = self._odd_body(random, host)
        else:
            answer.body, answer.kind = self._page(random, host, target), "text/html; charset=utf-8"
        return answer.plan()

    # -- links

    def _link(self, random: Random, host: str) -> str:
        kind = random.random()
        if kind < 0.5:
            return f"/p{random.randrange(40)}"
        if kind < 0.9:
            return f"http://{random.choice(self.hosts)}/p{random.randrange(40)}"
        if kind < 0.92:
            return f"https://{host}/p{random.randrange(4)}"
        return hostile_url(random)

    def _page(self, random: Random, host: str, target: str) -> bytes:
        links = [self._link(random, host) for _ in range(random.randrange(12))]
        anchors = "".join(f'<a href="{link}">{random.choice(WORDS)}</a>\n' for link in links)
        text = " ".join(random.choices(WORDS[:6], k=40))
        return f"<html><head><title>{target}</title></head><body>{text} {target}\n{anchors}".encode(
            "utf-8", "replace"
        )

    def _heavy_page(self, random: Random) -> bytes:
        """By default 3 MB, of which a tree takes 85: 20,000 links and 500,000 paragraphs."""
        hosts = random.choices(self.hosts, k=self._heavy_links)
        pages = random.choices(range(1000), k=self._heavy_links)
        paragraphs = "<p>" * 25
        text = "what a link says of where it leads "
        links = (
            f'<a href="http://{host}/p{page}">{text}</a>{paragraphs}'
            for host, page in zip(hosts, pages, strict=True)
        )
        return "".join(links).encode()

    # -- odd bodies

    def _odd_body(self, random: Random, host: str) -> tuple[bytes, str]:  # noqa: PLR0911, PLR0912  # a grammar
        html = "text/html"
        urls = [hostile_url(random) for _ in range(random.choice((1, 20, 200)))]
        match random.randrange(16):
            case 0:
                return hostile_page(
                    random, urls, ("<p>", "<div>" * 50, "</table>", "<!--", "<script>", "\x00")
                ).encode("utf-8", "replace"), html
            case 1:
                charset = random.choice(CHARSETS)
                return (
                    f'<meta charset="{charset}">é{self._link(random, host)}'.encode("utf-8", "replace"),
                    f"{html}; charset={charset}",
                )
            case 2:
                return NOISE[: random.choice((1, 1000, 200_000))], random.choice(
                    (html, "", "text/plain", "\xff/\x00")
                )
            case 3:
                return b"<div>" * random.choice((1000, 200_000)) + self._page(random, host, "/"), html
            case 4:
                link = f'<link rel="canonical" href="{random.choice(urls)}">'
                return (link * random.choice((1, 2, 2000))).encode("utf-8", "replace") + self._page(
                    random, host, "/"
                ), html
            case 5:
                refresh = f'<meta http-equiv="refresh" content="{random.choice(("0", "-1", "1e9", "x", ""))};url={self._link(random, host)}">'
                return (refresh * random.choice((1, 1000))).encode("utf-8", "replace"), html
            case 6:
                return b"a" * random.choice((1_000_000, 3_000_000)), html
            case 7:
                return b'<a href="/' + b"x" * random.choice((3000, 1_000_000)) + b'">x</a>', html
            case 8:
                return b"<a href='/%d'>" * 3 % (1, 2, 3) + bytes(random.choice((10, 100_000))), html
            case 9:
                return "".join(
                    f'<a href="/q{n}?{"&".join(map(str, range(n % 40)))}">' for n in range(3000)
                ).encode(), html
            case 10:
                encoding = random.choice(("utf-16", "utf-32", "utf-7", "cp037", "shift-jis"))
                return self._page(random, host, "/").decode().encode(encoding, "replace"), html
            case 11:
                return b"", random.choice((html, "application/json", "text/html;" * 1000))
            case 12:
                return b"\xef\xbb\xbf\xff\xfe" + self._page(random, host, "/"), random.choice(
                    (html, "TEXT/HTML ; CHARSET")
                )
            case 13:
                return self._sitemap(random, host)[0], random.choice((html, "application/xhtml+xml"))
            case 14:
                return "".join(random.choices(MARKUP, k=500)).format(*["x"] * 2000).encode(), html
        base = f'<base href="{random.choice((*LOCATIONS, *urls))}">'
        return base.encode("utf-8", "replace") + self._page(random, host, "/"), html

    def _sitemap(self, random: Random, host: str) -> tuple[bytes, str]:
        urls = [self._link(random, host) for _ in range(random.choice((0, 5, 500)))]
        locations = "".join(
            f"<url><loc>{url}</loc><lastmod>{random.choice(WORDS)}</lastmod></url>" for url in urls
        )
        kind = random.choice(("text/xml", "application/xml", "text/html", "application/x-gzip", ""))
        match random.randrange(9):
            case 0:
                body = f"<urlset>{locations}</urlset>"
            case 1:
                index = "".join(
                    f"<sitemap><loc>http://{host}/sitemap{n}</loc></sitemap>"
                    for n in range(random.choice((1, 3, 300)))
                )
                body = f"<sitemapindex>{index}</sitemapindex>"
            case 2:
                entities = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
                body = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "aaa">{entities}]><urlset><url><loc>&a9;</loc></url></urlset>'
            case 3:
                body = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><urlset><url><loc>&e;</loc></url></urlset>'
            case 4:
                body = "\n".join(urls)
            case 5:
                body = "<urlset>" + "<url>" * 100_000
            case 6:
                body = f"<urlset>{locations}"
            case 7:
                return gzip.compress(
                    f"<urlset>{locations}</urlset>".encode("utf-8", "replace")
                ), "application/gzip"
            case _:
                return random.choice((BOMB, NOISE, b"\x1f\x8b", b"")), kind
        return body.encode("utf-8", "replace"), kind

    # -- robots.txt

    def _robots(self, random: Random, host: str, kind: str) -> Plan | None:
        """``None`` for an answer like any other."""
        answer = _Answer(random, _ORDERLY, self._slowest)
        answer.kind = "text/plain"
        match kind:
            case "none":
                answer.status = random.choice((404, 401, 403, 410, 204))
            case "rules":
                answer.body = self._rules(random, host)
            case "huge":
                lines = [
                    "useragent:\nx\n",
                    "Disallow: /" + "*a" * 50 + "$\n",
                    "User-agent: *\nUser-agent: x\n",
                    "Allow: /\n",
                    "\x00",
                ]
                answer.body = (random.choice(lines) * (random.choice((20_000, 600_000)) // 10)).encode()
            case "noise":
                answer.body = NOISE
            case "page":
                return None
            case "error":
                answer.status = random.choice((500, 502, 599))
            case "later":
                answer.status = random.choice((429, 503))
                answer.headers.append(("Retry-After", _retry_after(random)))
            case "loop":
                answer.status = random.choice((301, 302, 308))
                answer.headers.append(("Location", random.choice(("/robots.txt", *LOCATIONS))))
            case "away":
                answer.status = 301
                answer.headers.append(("Location", f"http://{random.choice(self.hosts)}/robots.txt"))
            case "abort":
                return Plan([(0.0, b"")], random.choice(("abort", "close")), 0)
            case "drip":
                return Plan([(0.0, b"HTTP/1.1 200 OK\r\n\r\n"), *[(0.3, b"#")] * 100], "close", 200)
            case "bomb":
                answer.headers.append(("Content-Encoding", "gzip"))
                answer.body = BOMB
        return answer.plan()

    def _rules(self, random: Random, host: str) -> bytes:
        names = (
            "User-agent",
            "USERAGENT ",
            "Disallow",
            "disallow",
            "Allow",
            "Crawl-delay",
            "Sitemap",
            "Host",
            "x",
            "",
        )
        values = (
            "*", "scrapy", "Scrapy/2", "/", "/p1", "/p*3$", "/" + "*a" * 30 + "$", "", "%", "/%zz", "/日本", "1", "0.5", "1e400",
            "-1", "nan", "99999999999999999999", f"http://{host}/sitemap1", f"http://{host}/sitemap.xml", "http://[", "\x00",
        )  # fmt: skip
        separators = (":", ": ", " : ", "", "=", ":\t")
        lines = [
            random.choice(names)
            + random.choice(separators)
            + random.choice(values)
            + random.choice(("", " # x", "#"))
            for _ in range(random.randrange(60))
        ]
        lines += ["User-agent: *", "Disallow: /p7", f"Sitemap: http://{host}/sitemap{random.randrange(3)}"]
        return (
            random.choice(("\n", "\r\n", "\r", "\n\n"))
            .join(lines)
            .encode(random.choice(("utf-8", "utf-8-sig")), "replace")
        )


def _retry_after(random: Random) -> str:
    return random.choice(
        (
            "0", "1", "2", "-1", "1.5", "99999999999999999999", "9" * 5000, "soon", "", "\x00", "1, 2", "\u0663".encode().decode("latin-1"),
            "Mon, 1 Jan 99999999999999999999 00:00:00 GMT", "Mon, 32 Jan 2026 25:61:61 GMT", "Thu, 01 Jan 1970 00:00:00 GMT",
            "Mon, 1 Jan 9999 00:00:00 +9999", "Mon, 1 Jan 0001 00:00:00 +2359", "1 Jan", "Mon, 1 Jan 2026 00:00:00 GMT" * 100,
        )
    )  # fmt: skip


class _Answer:
    """An answer as far as it is drawn; :meth:`plan` spoils it by the habits of its host."""

    def __init__(self, random: Random, habits: Habits, slowest: float) -> None:
        self.random = random
        self.habits = habits
        self.slowest = slowest
        self.status = 200
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.kind = ""

    def _is(self, probability: float) -> bool:
        return self.random.random() < probability

    def plan(self) -> Plan:
        random, habits = self.random, self.habits
        if self._is(habits.status):
            self._spoil_status()
        if self._is(habits.coding):
            self._spoil_coding()
        headers = [("Content-Type", self.kind)] if self.kind else []
        headers += self.headers
        framing, body = "length", self.body
        if self._is(0.3):
            framing = random.choice(("chunked", "close"))
        if self._is(habits.framing):
            framing = random.choice(FRAMINGS)
        has_no_body = self.status in (204, 304) or self.status < 200
        body, more, end = self._frame(framing, body)
        if end == "hang" and (has_no_body or not body):  # a client has all of it
            end = "close"
        lines = [f"{name}: {value}" for name, value in (*headers, *more)]
        if self._is(habits.header):
            self._spoil_headers(lines)
        first = self._status_line()
        head = "\r\n".join([first, *lines]).encode("latin-1", "replace") + b"\r\n\r\n"
        if has_no_body or not self._is(habits.timing):
            return Plan([(0.0, head + body)], end, self.status)
        # Where a client may believe that the body ends sooner, all of it is one piece.
        is_sure = body and framing in ("length", "chunked", "close", "long", "cut")
        return self._slow(head, body, end, cases=6 if is_sure else 4)

    # -- status

    def _spoil_status(self) -> None:
        random = self.random
        self.status = random.choice(
            (201, 203, 204, 205, 206, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 403, 404, 407, 410, 418, 429, 451, 500,
             503, 504, 999, 100, 101, 299, 600, 700)
        )  # fmt: skip
        if self.status in range(300, 400) and self._is(0.9):
            for _ in range(random.choice((1, 1, 1, 2, 50))):
                location = random.choice(
                    (hostile_url(random), random.choice(LOCATIONS), f"/p{random.randrange(40)}")
                )
                self.headers.append(("Location", location))
        if self.status in (429, 503, 500, 301):
            self.headers += [
                ("Retry-After", _retry_after(random)) for _ in range(random.choice((0, 1, 1, 3)))
            ]

    def _status_line(self) -> str:
        random = self.random
        if not self._is(self.habits.status / 4):
            return f"HTTP/1.1 {self.status} {random.choice(('OK', '', 'Not', 'x' * 1000))}"
        self.status = 0
        return random.choice(
            (
                "", "garbage", "HTTP/1.1", "HTTP/1.1 200", "HTTP/1.1 -1 x", "HTTP/1.1 0 x", "HTTP/9.9 200 OK", "ICY 200 OK", "HTTP/1.1 2x0 OK",
                "HTTP/1.1 99999999999999999999 OK", "HTTP/1.1  200  OK", "HTTP/0.9 200 OK", "http/1.1 200 ok", "HTTP/1.1 200 " + "x" * 100_000,
                "\x00", "HTTP/1.1\t200\tOK", "HTTP/1.1 100 Continue\r\n\r\n" * 20 + "HTTP/1.1 200 OK",
            )
        )  # fmt: skip

    # -- headers

    def _spoil_headers(self, lines: list[str]) -> None:
        random = self.random
        odd = (
            "no colon", ": no name", " folded", "X:" + "x" * 100_000, "X\x00: y", "Ünï: cödé", "Set-Cookie: a=" + "b" * 5000,
            "Set-Cookie: a=b; Expires=Mon, 1 Jan 99999 00:00:00 GMT; Domain=.test", "Set-Cookie: =;;;\x00", "Link: <http://[>; rel=canonical",
            f"Link: <{hostile_url(random)}>; rel=canonical", "Link: " + "<x>; rel=canonical, " * 2000, "Refresh: 0; url=/p1", "Refresh: x",
            "ETag: " + "x" * 5000, "Last-Modified: never", "Last-Modified: Mon, 1 Jan 99999999999 00:00:00 GMT", "Date: \xff", "Age: -1",
            "Content-Language: " + "x," * 1000, "X-Robots-Tag: noindex, nofollow", "Content-Type: a/b", "Content-Type: ;;;=",
            "Content-Type: text/html; charset=" + "x" * 1000, "Connection: close, keep-alive, \x00", "Keep-Alive: timeout=-1", "Trailer: X",
            "Vary: *", "Upgrade: h2c", "Content-Disposition: attachment; filename=\"\x00\"", "Content-Range: bytes 5-1/0", "Retry-After: " + _retry_after(random),
            "Alt-Svc: h3=\":443\"", "Strict-Transport-Security: max-age=1e9", "Warning: 299 - \"x\"", "Content-Location: http://[",
        )  # fmt: skip
        for _ in range(random.choice((1, 2, 5))):
            lines.insert(random.randrange(len(lines) + 1), random.choice(odd))
        if self._is(0.1):
            lines += [f"X-{n}: y" for n in range(random.choice((200, 3000)))]

    # -- codings

    def _spoil_coding(self) -> None:
        random = self.random
        name = random.choice(
            (
                "gzip",
                "deflate",
                "br",
                "zstd",
                "x-gzip",
                "gzip, gzip",
                "identity",
                "nonsense",
                "",
                "gzip" * 100,
            )
        )
        self.headers.append(("Content-Encoding", name))
        self.body = random.choice(
            (
                lambda: self.body,
                lambda: gzip.compress(self.body),
                lambda: gzip.compress(gzip.compress(self.body)),
                lambda: zlib.compress(self.body),
                lambda: gzip.compress(self.body)[:-5],
                lambda: gzip.compress(self.body) + b"more",
                lambda: b"\x1f\x8b" + NOISE[:500],
                lambda: BOMB,
            )
        )()

    # -- framing

    def _frame(  # noqa: PLR0911  # a grammar
        self, framing: str, body: bytes
    ) -> tuple[bytes, list[tuple[str, str]], End]:
        """What is sent after the head, the headers that announce it, and what becomes of the connection."""
        random = self.random
        chunked = [("Transfer-Encoding", "chunked")]
        whole = [("Content-Length", str(len(body)))]
        close = random.choice(CLOSED)
        if framing == "length":
            return body, whole, "keep"
        if framing == "chunked":
            size = random.choice((1, 100, 10_000)) if len(body) < 5000 else 10_000
            parts = [body[at : at + size] for at in range(0, len(body), size)]
            sent = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
            return sent + b"0\r\n\r\n", chunked, "keep"
        if framing == "close":
            return body, [], "close"
        if framing == "short":
            return body, [("Content-Length", str(len(body) // 2))], close
        if framing == "long":
            return (
                body,
                [("Content-Length", str(len(body) + 1000))],
                random.choice(UNSAID),
            )
        if framing == "length?":
            lengths = (
                "-1",
                "many",
                "5, 6",
                "",
                "0x10",
                "+5",
                "99999999999999999999",
                "5 5",
                "\u0663".encode().decode("latin-1"),
            )
            return body, [("Content-Length", random.choice(lengths))], close
        if framing == "lengths":
            return body, [*whole, ("Content-Length", "3")], close
        if framing == "both":
            return b"3\r\nabc\r\n0\r\n\r\n", [*chunked, *whole], close
        if framing == "chunks?":
            sizes = (
                b"-5",
                b"x",
                b"",
                b"ffffffffffffffffff",
                b"5;" + b"x" * 10_000,
                b"0x5",
                b"5 ",
                b"00000000000000000000005",
            )
            return (
                random.choice(sizes) + b"\r\n" + body + b"\r\n",
                chunked,
                random.choice(UNSAID),
            )
        if framing == "trailers":
            return b"0\r\n" + b"X: y\r\n" * random.choice((1, 5000)) + b"\r\n", chunked, close
        if framing == "coding?":
            return (
                body,
                [
                    (
                        "Transfer-Encoding",
                        random.choice(("gzip", "chunked, chunked", "identity", "\x00", "gzip, chunked")),
                    )
                ],
                close,
            )
        if framing == "two":
            return (
                body + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                whole,
                random.choice(KEPT),
            )
        return body[: len(body) // 2], whole, random.choice(UNSAID)  # "cut"

    # -- timing

    def _slow(self, head: bytes, body: bytes, end: End, cases: int) -> Plan:
        random = self.random
        wait = random.choice((0.01, 0.1, 0.5, self.slowest))
        cut = random.randrange(len(head))
        match random.randrange(cases):
            case 0:
                pieces = [(wait, head + body)]
            case 1:
                pieces = [(0.0, head[:cut]), (wait, head[cut:] + body)]
            case 2:
                size = max(len(head) // 20, 1)
                pieces = [(wait / 20, head[at : at + size]) for at in range(0, len(head), size)]
                pieces[-1] = (wait / 20, pieces[-1][1] + body)
            case 3:
                pieces, end = [(0.0, head[:cut])], random.choice(CUT)
            case 4:
                pieces = [(0.0, head), (wait, body)]
            case _:
                size = max(len(body) // 20, 1)
                pieces = [
                    (0.0, head),
                    *((wait / 20, body[at : at + size]) for at in range(0, len(body), size)),
                ]
        return Plan(pieces, end, self.status)


FRAMINGS = (
    "chunked",
    "close",
    "short",
    "long",
    "length?",
    "lengths",
    "both",
    "chunks?",
    "trailers",
    "coding?",
    "two",
    "cut",
)
