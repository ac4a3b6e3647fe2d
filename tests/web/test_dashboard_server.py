"""Who may see a dashboard, and what nobody can do to it."""

from __future__ import annotations

import ast
import gzip
import http.client
import inspect
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from importlib.resources import files
from random import Random
from threading import Event

import pytest
from support.dashboard import TOKEN
from support.waiting import wait_until

from scrapy_aopic.dashboard import guard as guard_module
from scrapy_aopic.dashboard import http_server as server_module
from scrapy_aopic.dashboard.guard import Guard, new_token
from scrapy_aopic.dashboard.http_server import STREAMS, HttpAnswer, sentence
from scrapy_aopic.dashboard.site import Shown, make_site
from scrapy_aopic.settings import is_loopback


def read_until(connection: socket.socket, text: bytes) -> bytes:
    data = b""
    while text not in data:
        part = connection.recv(65536)
        assert part, data
        data += part
    return data


# Tokens


def test_nothing_is_shown_without_the_token(serve_dashboard):
    served = serve_dashboard()
    for path in ("/", "/echo", "/events", "/nothing", "/favicon.ico"):
        for wrong in (None, "", TOKEN[:-1], TOKEN + "x", "ü", new_token()):
            response = served.get(path, token=wrong)
            assert response.status == 401, (path, wrong)
            assert "the page" not in response.text
    assert served.get("/echo").status == 200


def test_health_needs_no_token_and_no_name(serve_dashboard):
    served = serve_dashboard()
    response = served.get("/healthz", token=None, Host="10.0.0.7:8080")
    assert (response.status, response.text) == (200, "ok\n")


def test_the_token_in_the_address_becomes_a_cookie(serve_dashboard):
    served = serve_dashboard()
    first = served.get(f"/?token={TOKEN}", token=None)
    assert (first.status, first.headers["Location"]) == (303, "/")
    cookie = first.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    second = served.get("/", token=None, Cookie=cookie.partition(";")[0])
    assert (second.status, second.text) == (200, "the page\n")
    assert served.get("/?token=wrong", token=None).status == 401
    assert served.get("/", token=None, Cookie=f"aopic-{served.port}=wrong").status == 401
    assert served.get("/", token=None, Cookie=f"aopic-1={TOKEN}").status == 401


def test_cookies_of_other_applications_do_not_matter(serve_dashboard):
    served = serve_dashboard()
    own, old = f"aopic-{served.port}={TOKEN}", f"aopic-{served.port}=old"
    odd = [
        "bad[]=1", 'settings={"a": [1, 2], "b": "c"}', "=", "novalue", "a=b=c; ;; d", "ü=ö", '"', "a b=c d",
        "@=%",
    ]  # fmt: skip
    for others in (*odd, "aopic=1", "aopic-1=x", "$Version=1"):
        for cookies in (f"{others}; {own}", f"{own}; {others}", f"{others};{own};{others}", f"{old}; {own}"):
            assert served.get("/echo", token=None, Cookie=cookies).status == 200, cookies
        for cookies in (others, f"x{own}", f"{own}x", f"a={own}"):
            assert served.get("/echo", token=None, Cookie=cookies).status == 401, cookies


def test_tokens_are_compared_in_constant_time(monkeypatch):
    """Only one expression looks at the token, and that is a comparison made for it."""
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(guard_module.hmac, "compare_digest", compare)
    guard = Guard(TOKEN, "127.0.0.1")
    assert guard.is_visitor({"Authorization": f"Bearer {TOKEN}"})
    assert not guard.is_visitor({"Authorization": "Bearer no"})
    assert compared == [(TOKEN.encode(), TOKEN.encode()), (b"no", TOKEN.encode())]
    tree = ast.parse(inspect.getsource(guard_module))
    compares = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    assert [text for text in compares if "token" in text.lower()] == []


def test_each_run_has_a_token_of_its_own():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) == 32


# Other sites


def test_only_names_of_this_machine_are_its_own(serve_dashboard):
    served = serve_dashboard()
    for host in (
        "evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "[::2]", "localhost@evil.example",
    ):  # fmt: skip
        response = served.get("/echo", Host=host)
        assert response.status == 403, host
        assert "AOPIC_DASHBOARD" in response.text
    for host in ("127.0.0.1", "localhost:6810", "[::1]:6810", "LocalHost"):
        assert served.get("/echo", Host=host).status == 200, host


def test_names_and_addresses_that_it_listens_on():
    by_name = Guard(TOKEN, "crawl.example.org")
    assert by_name.refusal({"Host": "crawl.example.org:6810"}) == ""
    assert by_name.refusal({"Host": "localhost"})
    everywhere = Guard(TOKEN, "0.0.0.0")
    for host in ("192.0.2.7:6810", "[2001:db8::1]"):
        assert everywhere.refusal({"Host": host}) == ""
    assert everywhere.refusal({"Host": "rebound.example"})
    of_one_address = Guard(TOKEN, "192.0.2.7")
    assert of_one_address.refusal({"Host": "192.0.2.7"}) == ""
    assert of_one_address.refusal({"Host": "192.0.2.8"})
    assert of_one_address.refusal({"Host": "localhost"})


def test_requests_of_other_sites_are_refused(serve_dashboard):
    served = serve_dashboard()
    origins = ("http://evil.example", "null", "http://[broken", "http://127.0.0.1:1")
    others = [{"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}]
    for headers in [*others, *({"Origin": each} for each in origins)]:
        for path in ("/", "/echo", "/events", f"/?token={TOKEN}"):
            assert served.get(path, **headers).status == 403, (headers, path)


def test_requests_of_its_own_page_are_answered(serve_dashboard):
    served = serve_dashboard()
    own = f"127.0.0.1:{served.port}"
    for site in ("same-origin", "none"):
        assert served.get("/echo", Sec_Fetch_Site=site, Origin=f"http://{own}", Host=own).status == 200


def test_what_is_loopback():
    for host in ("127.0.0.1", "127.9.9.9", "localhost", "[::1]", "::1"):
        assert is_loopback(host), host
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
        assert not is_loopback(host), host


# Headers


def test_every_answer_forbids_what_a_page_does_not_need(serve_dashboard):
    served = serve_dashboard()
    for path, token in (
        ("/", TOKEN),
        ("/nothing", TOKEN),
        ("/", None),
        ("/healthz", None),
        ("/?token=x", None),
    ):
        headers = served.get(path, token=token).headers
        policy = headers["Content-Security-Policy"]
        assert "unsafe" not in policy, path
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= {*policy.split("; ")}
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["Cache-Control"] == "no-store", path
        assert headers["Referrer-Policy"] == "no-referrer", path
        assert "Server" not in headers


# Requests


def test_it_only_shows(serve_dashboard):
    served = serve_dashboard()
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        response = served.get("/echo", method=method)
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD"), method


def test_an_order_needs_the_token_and_can_come_from_no_other_site(serve_dashboard):
    """As a browser would send it for another page, however it does so: nothing of it is done."""
    served, done = serve_dashboard(), list[str]()

    def order(query: Mapping[str, str]) -> HttpAnswer:
        done.append(query["do"])
        return sentence(200, "asked")

    served.server.site = served.server.site._replace(orders={"/order": order})
    path, own = "/order?do=pause", {"Aopic_Order": "1"}
    for status, token, headers in [
        (401, None, own),
        (401, "wrong", own),
        (401, None, {**own, "Cookie": f"aopic-{served.port}=wrong"}),
        (403, TOKEN, {}),
        (403, TOKEN, {**own, "Origin": "http://evil.example"}),
        (403, TOKEN, {**own, "Origin": "null"}),
        (403, TOKEN, {**own, "Sec_Fetch_Site": "cross-site"}),
        (403, TOKEN, {**own, "Sec_Fetch_Site": "same-site"}),
        (403, TOKEN, {**own, "Host": "evil.example"}),
        (413, TOKEN, {**own, "Content_Length": "3"}),
    ]:
        response = served.get(path, method="POST", token=token, **headers)
        assert (response.status, done) == (status, []), (status, headers)
    assert served.get(path, **own).status == 404  # a link orders nothing
    assert served.get(path, method="OPTIONS", **own).status == 405  # nor may another site ask whether it may
    own |= {"Origin": f"http://127.0.0.1:{served.port}", "Sec_Fetch_Site": "same-origin"}
    cookie = f"aopic-{served.port}={TOKEN}"
    assert served.get(path, method="POST", token=None, Cookie=cookie, **own).status == 200
    assert done == ["pause"]


def test_the_page_is_small(serve_dashboard):
    """What a browser loads, packed, and what a report has in it.

    The page was 54,671 bytes, sent as they were. Actions, values of a moment, ranges, statuses, media types, latest pages and
    curves of a recrawl are 10 kB more of source; packed it is less than half of what was sent before.
    """
    served, sizes = serve_dashboard(), list[tuple[int, int]]()
    served.server.site = make_site(Shown(served.feed))
    for path in ("/", "/dashboard.css", "/dashboard.js", "/icon.svg"):
        plain = served.get(path).text
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        with closing(connection):
            connection.request(
                "GET", path, headers={"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "gzip"}
            )
            response = connection.getresponse()
            body = response.read()
        is_packed = response.headers["Content-Encoding"] == "gzip"
        assert (gzip.decompress(body) if is_packed else body).decode() == plain
        sizes.append((len(body), len(plain.encode())))
    assert sum(packed for packed, _ in sizes) <= 22_000
    assert sum(plain for _, plain in sizes) <= 67_500


def test_head_has_no_body(serve_dashboard):
    response = serve_dashboard().get("/echo", method="HEAD")
    assert (response.status, response.text) == (200, "")


def test_paths_lead_nowhere_else(serve_dashboard):
    served = serve_dashboard()
    for path in (
        "/../server.py", "/static/../../server.py", "/%2e%2e/server.py", "/echo/../echo", "/..%5cserver.py", "/./",
        "//etc/passwd", "/etc/passwd", "http://127.0.0.1/etc/passwd", "/echo%00", "/index.html", "*",
    ):  # fmt: skip
        assert served.get(path).status == 404, path


def test_requests_that_are_too_large_or_none(serve_dashboard):
    served = serve_dashboard()
    begin, own = b"GET / HTTP/1.1\r\n", b"Host: 127.0.0.1\r\n"
    for request, status in (
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (begin + b"X: y\r\n" * 5_000 + b"\r\n", 431),
        (begin + own + b"Content-Length: 9\r\n\r\n", 413),
        (begin + own + b"Transfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"BREW / HTTP/1.1\r\n\r\n", 501),
        (b"GET http://[ HTTP/1.1\r\n" + own + b"\r\n", 400),
        (b"GET /?" + b"a=1&" * 17 + b" HTTP/1.1\r\n" + own + b"\r\n", 400),
    ):
        with served.connect() as connection:
            connection.sendall(request)
            assert connection.recv(100).startswith(b"HTTP/1.1 %d" % status), request[:100]
        assert served.get("/echo").status == 200


def test_a_request_that_never_ends_is_given_up(serve_dashboard):
    served = serve_dashboard(request_seconds=0.05)
    for start in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "):
        with served.connect() as connection:
            connection.sendall(start)
            assert connection.recv(100) == b"", start


def test_a_request_that_drips_is_given_up(serve_dashboard):
    """The time is that of the whole request: each byte in time does not make it longer."""
    served = serve_dashboard(request_seconds=0.1)
    with served.connect() as connection:
        connection.settimeout(0.01)
        ended = False
        for _ in range(1000):
            try:
                connection.sendall(b"G")
                ended = connection.recv(100) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended


def test_part_of_a_request_is_none(serve_dashboard):
    served = serve_dashboard()
    with served.connect() as connection:
        connection.sendall(
            f"GET /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
        )
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""


@pytest.mark.parametrize("start", [b"POST /", b"GET /", b"BREW /", b"GET /" + b"a" * 20_000])
def test_a_refusal_is_read_by_who_goes_on_sending(serve_dashboard, monkeypatch, start):
    """What comes after it is read, too: closing at once would take back the answer with some systems."""
    monkeypatch.setattr(server_module, "_DRAIN_SECONDS", 60)
    served = serve_dashboard(request_seconds=60)
    with served.connect() as connection:
        connection.sendall(start + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        while connection.recv(65536):
            pass
        for _ in range(100):
            connection.sendall(bytes(1000))
    wait_until(lambda: served.server.n_open == 0)


# Strangers


def drip(connection: socket.socket) -> bool:
    """Send a line more of a request that never ends, and say whether the connection is still open."""
    connection.settimeout(0.0)
    try:
        connection.sendall(b"X: y\r\n")
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_strangers_hold_up_neither_operator_nor_probe(serve_dashboard):
    """The latest to come gets in, however many send a line now and then and come back when they are closed."""
    served = serve_dashboard(request_seconds=60)
    most = server_module._STRANGERS
    with ExitStack() as stack:
        strangers: list[socket.socket] = []
        for _ in range(2):
            while len(strangers) < 2 * most:
                strangers.append(stack.enter_context(served.connect()))
                strangers[-1].sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(5):
                assert served.get("/echo").status == 200
                assert served.get("/healthz", token=None).status == 200
                strangers = [each for each in strangers if drip(each)]
            assert len(strangers) <= most
            wait_until(lambda: served.server.n_open <= most)  # so their threads and memory are bounded


def test_the_oldest_stranger_makes_room(serve_dashboard, caplog):
    served = serve_dashboard(request_seconds=60)
    most = server_module._STRANGERS
    with ExitStack() as stack:
        strangers = [stack.enter_context(served.connect()) for _ in range(most + 2)]
        assert strangers[0].recv(1) == strangers[1].recv(1) == b""
        assert drip(strangers[2])
        assert drip(strangers[-1])
    (said,) = [record for record in caplog.records if record.name == server_module.__name__]
    assert said.levelname == "WARNING"
    assert said.getMessage().startswith(
        f"More than {most} connections to the dashboard have not shown its token"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="there is no second loopback address")
def test_the_address_with_most_strangers_makes_room(serve_dashboard):
    served = serve_dashboard(request_seconds=60)
    with ExitStack() as stack:
        honest = stack.enter_context(socket.socket())
        honest.bind(("127.0.0.2", 0))
        honest.connect(("127.0.0.1", served.port))
        others = [stack.enter_context(served.connect()) for _ in range(server_module._STRANGERS + 1)]
        assert others[0].recv(1) == others[1].recv(1) == b""
        assert drip(honest)


def test_who_has_shown_the_token_is_never_closed_for_a_stranger(serve_dashboard):
    served = serve_dashboard(request_seconds=60)
    with ExitStack() as stack:
        watching = stack.enter_context(served.connect())
        served.ask_for_stream(watching)
        read_until(watching, b"event: snapshot")
        for _ in range(server_module._STRANGERS + 1):
            stack.enter_context(served.connect())
        assert served.get("/healthz", token=None).status == 200  # now all of them are there
        served.figures["spider"] = "after them"
        read_until(watching, b"after them")


def test_visitors_are_bounded_too(serve_dashboard):
    served = serve_dashboard(request_seconds=60)
    go_on = Event()
    most = server_module._VISITORS
    begun: list[None] = []

    def slow(_: Mapping[str, str]) -> HttpAnswer:
        begun.append(None)
        return sentence(200, str(go_on.wait(20)))

    served.paths["/slow"] = slow
    with ThreadPoolExecutor(most) as pool:
        answers = [pool.submit(served.get, "/slow") for _ in range(most)]
        try:
            wait_until(lambda: len(begun) == most)
            refused = served.get("/echo")
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            assert served.get("/healthz", token=None).status == 200
        finally:
            go_on.set()
        assert {each.result().status for each in answers} == {200}
    wait_until(lambda: served.get("/echo").status == 200)


def test_connections_are_taken_at_a_pace(serve_dashboard, monkeypatch):
    """However fast they come, so that the crawl beside it goes on: by a clock that only stands still or is slept on."""
    begin = time.monotonic()
    now = [begin]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(server_module, "monotonic", lambda: now[0])
    monkeypatch.setattr(server_module, "sleep", sleep)
    served = serve_dashboard(request_seconds=60)
    rate, burst = server_module._RATE, server_module._BURST
    for _ in range(burst + rate // 4):
        assert served.get("/healthz", token=None).status == 200
    assert now[0] - begin == pytest.approx(1 / 4, abs=1.5 / rate)


# Anything at all


METHODS = b"GET|GET|HEAD|POST|get|GE\0T|PRI|CONNECT|\x16\x03\x01".split(b"|")
BLANKS = b" | |  |\t|".split(b"|")
PATHS = [*b"/|/echo|*|//[|/?token=%ff|/healthz|/healthz|/events|".split(b"|"), b"/" + b"a" * 9000]
VERSIONS = [
    *b" HTTP/1.1| HTTP/1.1| HTTP/1.0| HTTP/2.0| HTTP/-1.\xb2||\0".split(b"|"),
    b" HTTP/1." + b"1" * 5000,
]
FIELDS = [
    *b"Host: 127.0.0.1|Host: a\r\nHost: b|Host|: | folded: x|Cookie: ;=;,\0{|Origin: http://[|Upgrade: h2c".split(
        b"|"
    ),
    *b"Transfer-Encoding: chunked|Transfer-Encoding: x|Content-Length: 5|Content-Length: -1".split(b"|"),
    *b"Expect: 100-continue|Authorization: Bearer \xff|Content-Type: multipart/x; boundary=b".split(b"|"),
    *(b"X: " + b"y" * 9000, b"X:y\r\n" * 120),
]
ENDS = b"\r\n|\n|\r".split(b"|")
BODIES = [
    *b"||5\r\nhello\r\n0\r\n\r\n|ffffffffffffffff\r\n|-1\r\n\r\n|GET /echo HTTP/1.1\r\n\r\n".split(b"|"),
    bytes(300_000),
]


def odd_request(random: Random) -> bytes:
    """What no browser sends, or nearly; never with the token."""
    line = b"".join(map(random.choice, (METHODS, BLANKS, PATHS, VERSIONS)))
    end = random.choice(ENDS)
    fields = [b"Host: 127.0.0.1"] * random.randrange(2) + random.sample(FIELDS, random.randrange(5))
    request = end.join([line, *fields]) + 2 * end + random.choice(BODIES)
    how = random.randrange(6)
    if how == 0:
        return random.randbytes(random.randrange(200))
    if how == 1:
        return request[: random.randrange(len(request))]
    if how == 2:
        return request * 3
    if how == 3:
        data = bytearray(request)
        for _ in range(5):
            data[random.randrange(min(len(data), 300))] = random.randrange(256)
        return bytes(data)
    return request


def test_whatever_comes_it_goes_on_answering(serve_dashboard, caplog, monkeypatch):
    """Random bytes, requests that are cut, mutilated or pipelined, bodies and chunks: the answer is one of HTTP, or none."""
    monkeypatch.setattr(server_module, "_RATE", 1e6)  # the pace is another test's
    served = serve_dashboard(request_seconds=60)
    random = Random(32)
    found: Counter[bytes] = Counter()
    for n in range(1000):
        with served.connect() as connection:
            answer = b""
            with suppress(ConnectionError):
                connection.sendall(odd_request(random))
                with suppress(OSError):  # closed already
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    answer += part
        if answer.startswith(b"HTTP"):
            found[answer[:13]] += 1
            assert answer.count(b"HTTP/1.1 ") == 1  # a request in the body of another is none
        assert b"the page" not in answer
        if n % 20 == 0:
            assert served.get("/echo").status == 200
    codes = {int(start.removeprefix(b"HTTP/1.1 ")) for start in found}
    assert codes <= {200, 303, 400, 401, 403, 404, 405, 413, 431, 501, 505}
    assert codes >= {200, 400, 401, 403, 405, 413, 431, 501, 505}
    wait_until(lambda: served.server.n_open == 0)
    assert caplog.text == ""
    assert served.get("/echo").status == served.get("/healthz", token=None).status == 200


def test_the_page_stays_small():
    folder = files("scrapy_aopic.dashboard") / "static"
    names = ("index.html", "dashboard.css", "dashboard.js", "icon.svg")
    assert sum(len((folder / name).read_bytes()) for name in names) <= 54_700


# Streams


def test_a_stream_sends_what_is_new(serve_dashboard):
    served = serve_dashboard()
    with served.connect() as connection:
        served.ask_for_stream(connection)
        data = read_until(connection, b'"spider":"first"')
        assert b"Content-Type: text/event-stream" in data
        served.figures["spider"] = "</script>\n\nevent: bye"
        data = read_until(connection, b"</script>")
        assert b"\n\nevent: bye" not in data  # a line feed of a figure is none of the stream's


def test_a_stream_ends_with_the_reason(serve_dashboard):
    served = serve_dashboard()
    with served.connect() as connection:
        served.ask_for_stream(connection)
        read_until(connection, b"snapshot")
        served.feed.close("shutdown")
        over = b'event: bye\ndata: {"reason": "shutdown", "why": "a signal stopped it"}'
        assert over in read_until(connection, b"stopped it")


def test_nothing_is_taken_unless_somebody_waits(serve_dashboard):
    served = serve_dashboard()
    wait_until(lambda: served.taken == 1)  # a point of the past
    time.sleep(0.1)
    assert served.taken == 1
    with served.connect() as connection:
        served.ask_for_stream(connection)
        wait_until(lambda: served.taken > 3)


def test_the_ninth_stream_is_refused(serve_dashboard):
    served = serve_dashboard()
    with ExitStack() as stack:
        for _ in range(STREAMS):
            connection = stack.enter_context(served.connect())
            served.ask_for_stream(connection)
            read_until(connection, b"event: snapshot")
        refused = served.get("/events")
        assert refused.status == 503
        assert "8 pages are watching" in refused.text
        assert served.get("/echo").status == 200
    wait_until(lambda: served.server._n_streams == 0)
    with served.connect() as connection:
        served.ask_for_stream(connection)
        read_until(connection, b"event: snapshot")


def test_a_reader_that_does_not_read_is_dropped(serve_dashboard):
    served = serve_dashboard(send_seconds=0.05)
    served.figures["spider"] = "x" * 200_000
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", served.port))
        served.ask_for_stream(connection)
        wait_until(lambda: served.server._n_streams == 1)
        wait_until(lambda: served.server._n_streams == 0)
        assert served.get("/echo").status == 200


def test_the_port_is_free_once_it_is_closed(serve_dashboard):
    served = serve_dashboard()
    with served.connect() as connection:
        served.ask_for_stream(connection)
        read_until(connection, b"snapshot")
        served.close()
        with pytest.raises(OSError):  # noqa: PT011  # whatever the system calls it
            socket.create_connection(("127.0.0.1", served.port), timeout=5)
