"""The test server: what it answers, and what it logs."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from demo_web.server import Answer, Exchange, Running, Server
from demo_web.server_log import read_log
from support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = 60.0  # seconds that no test lasts: what is waited for must end before


def echo(exchange: Exchange) -> Answer:
    return Answer(body=f"{exchange.method} {exchange.host} {exchange.target}".encode())


@contextmanager
def connected(running: Running | Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", running.port), timeout=LONG) as client:
        yield client


def read_to_end(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65_536), b""))


def ask(running: Running, request: str) -> str:
    """Send *request* with CRLF line ends, and everything that comes back until the server hangs up."""
    with connected(running) as client:
        client.sendall(request.replace("\n", "\r\n").encode("latin-1"))
        return read_to_end(client).decode("latin-1").replace("\r\n", "\n")


def get(url: str, *headers: str) -> str:
    return "\n".join([f"GET {url} HTTP/1.1", "Host: ignored.example", *headers, "Connection: close", "\n"])


# Requests


def test_a_proxy_request_is_answered_by_the_host_in_its_target():
    with Server(echo).run_in_thread() as running:
        assert ask(running, get("http://WWW.Kestrel.example:8080/a/b?c=d")) == (
            "HTTP/1.1 200 OK\nContent-Length: 32\nConnection: close\n\nGET www.kestrel.example /a/b?c=d"
        )


def test_host_and_target_are_found_in_every_form():
    with Server(echo).run_in_thread() as running:
        for request, seen in [
            (get("http://a.example"), "a.example /"),
            (get("http://a.example?q"), "a.example /?q"),
            (get("HTTP://user:secret@a.example:80/x"), "a.example /x"),
            (get("http://[::1]:80/x"), "[::1] /x"),
            (get("http://a.example/x?y=http://b.example/"), "a.example /x?y=http://b.example/"),
            (get("/x"), "ignored.example /x"),
            # A direct request is answered by its Host header without the port.
            ("GET /x HTTP/1.0\nHost: Direct.Example:81\n\n", "direct.example /x"),
        ]:
            assert ask(running, request).endswith(f"GET {seen}"), request


def test_what_is_no_exchange_is_refused_and_not_logged():
    with Server(echo).run_in_thread() as running:
        for request_text, status in [
            ("GET /\n\n", 400),
            ("GET / HTTP/2.0\nHost: a\n\n", 400),
            ("GET /with\ttab HTTP/1.1\nHost: a\n\n", 400),
            ("GET / HTTP/1.1\n\n", 400),
            ("GET / HTTP/1.1\nHost: a b\n\n", 400),
            ("GET ftp://a.example/ HTTP/1.1\nHost: a\n\n", 400),
            ("GET / HTTP/1.1\nHost: a\nno colon\n\n", 400),
            ("GET / HTTP/1.1\nHost: a\n folded: line\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: many\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nContent-Length: -1\n\n", 400),
            ("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n", 501),
            ("CONNECT a.example:443 HTTP/1.1\nHost: a\n\n", 501),
            ("GET / HTTP/1.1\nHost: a\nX: " + "x" * 65_536, 431),
        ]:
            assert ask(running, request_text).startswith(f"HTTP/1.1 {status} "), request_text[:80]
    assert running.log == []


# Answers


def test_status_and_headers_are_sent_as_given():
    answer = Answer(301, {"Location": "/there", "X-Name": "é"})
    with Server(lambda _: answer).run_in_thread() as running:
        assert ask(running, get("http://a.example/")) == (
            "HTTP/1.1 301 Moved Permanently\nLocation: /there\nX-Name: é\nContent-Length: 0\nConnection: close\n\n"
        )


def test_the_connection_is_closed_if_either_side_asks_for_it():
    for request_line, answer in [
        ("GET / HTTP/1.0\nHost: a\n\n", Answer()),
        ("GET / HTTP/1.1\nHost: a\nProxy-Connection: Close\n\n", Answer()),
        ("GET / HTTP/1.1\nHost: a\n\n", Answer(headers={"Connection": "close"})),
        ("GET / HTTP/1.1\nHost: a\n\n", Answer(headers={"content-length": "9"}, body=b"short")),
    ]:
        with Server(lambda _, answer=answer: answer).run_in_thread() as running:
            reply = ask(running, request_line)  # returns only because the server hangs up
        assert reply.lower().count("connection: close") == 1, request_line
        assert reply.lower().count("content-length:") == 1, request_line


def test_an_aborted_answer_closes_the_connection_without_a_byte():
    with Server(lambda _: Answer(abort=True)).run_in_thread() as running, connected(running) as client:
        client.sendall(b"GET http://dead.example/ HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
    assert [(entry.host, entry.status) for entry in running.log] == [("dead.example", 0)]


def test_an_error_of_the_answering_function_is_status_500_and_logged(caplog):
    def answer(exchange: Exchange) -> Answer:
        raise KeyError(exchange.target)

    with Server(answer).run_in_thread() as running:
        assert ask(running, get("http://a.example/x")).startswith("HTTP/1.1 500 ")
    assert "KeyError: '/x'" in caplog.text


# The log


def test_a_request_lasts_from_its_header_to_the_last_byte():
    answer = Answer(body=b"body", delay=0.03, body_delay=0.02)
    with Server(lambda _: answer).run_in_thread() as running:
        before = time.monotonic()
        ask(running, get("http://a.example/x"))
        after = time.monotonic()
    (entry,) = running.log
    assert (entry.host, entry.target, entry.status, entry.in_flight) == ("a.example", "/x", 200, 1)
    assert before <= entry.start < entry.end <= after
    assert entry.end - entry.start >= 0.045  # timers may be early by their resolution


def test_the_header_is_sent_before_the_delay_of_the_body():
    answer = Answer(body=b"never", body_delay=LONG)
    with Server(lambda _: answer).run_in_thread() as running, connected(running) as client:
        client.sendall(b"GET http://a.example/ HTTP/1.1\r\n\r\n")
        assert client.recv(1_000).endswith(b"\r\n\r\n")


def test_a_request_ends_only_when_a_slow_reader_has_taken_the_answer():
    answer = Answer(body=bytes(30_000_000))  # more than the buffers of both sockets hold
    with Server(lambda _: answer).run_in_thread() as running, connected(running) as client:
        client.sendall(b"GET http://a.example/ HTTP/1.0\r\n\r\n")
        client.recv(1)
        time.sleep(0.04)
        assert running.log == []
        read_again_at = time.monotonic()
        read_to_end(client)
    (entry,) = running.log
    assert entry.status == 200
    assert entry.end > read_again_at


@pytest.mark.parametrize(
    "answer",
    [Answer(delay=LONG), Answer(body=b"x", body_delay=LONG), Answer(body=bytes(30_000_000))],
    ids=["before the header", "before the body", "in the middle of the body"],
)
def test_a_client_that_leaves_ends_its_request_at_once(answer):
    with Server(lambda _: answer).run_in_thread() as running:
        with connected(running) as client:
            client.sendall(b"GET http://a.example/ HTTP/1.1\r\n\r\n")
            wait_until(lambda: answer.delay or client.recv(1))
            left_at = time.monotonic()
        wait_until(lambda: running.log)
    (entry,) = running.log
    assert entry.status == 0
    assert left_at <= entry.end < left_at + LONG / 2


@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_an_endless_answer_goes_on_until_the_client_leaves(delay):
    answer = Answer(body=b"again and " * 100, body_delay=delay, endless=True)
    with Server(lambda _: answer).run_in_thread() as running:
        with connected(running) as client:
            client.sendall(get("http://a.example/").replace("\n", "\r\n").encode())
            seen = b""
            while len(seen) < 50_000:
                seen += client.recv(65_536)
        head, _, body = seen.partition(b"\r\n\r\n")
        assert head == b"HTTP/1.1 200 OK\r\nConnection: close"
        assert body.startswith(answer.body * 40)
        wait_until(lambda: running.log)
    assert [entry.status for entry in running.log] == [0]


def test_in_flight_counts_the_requests_to_the_same_host():
    started = threading.Semaphore(0)

    def answer(exchange: Exchange) -> Answer:
        started.release()
        return Answer(delay=LONG if exchange.target == "/slow" else 0.0)

    with Server(answer).run_in_thread() as running:
        with connected(running) as first, connected(running) as second:
            for client in (first, second):
                client.sendall(b"GET http://a.example/slow HTTP/1.1\r\n\r\n")
                assert started.acquire(timeout=LONG)
            ask(running, get("http://a.example/"))
            ask(running, get("http://b.example/"))
        wait_until(lambda: len(running.log) == 4)
        ask(running, get("http://a.example/"))
    seen = [(entry.host, entry.target, entry.in_flight) for entry in running.log]
    assert seen[:2] == [("a.example", "/", 3), ("b.example", "/", 1)]
    assert sorted(seen[2:4]) == [("a.example", "/slow", 1), ("a.example", "/slow", 2)]
    assert seen[4] == ("a.example", "/", 1)


def test_the_file_is_appended_to_and_has_wall_clock_times(tmp_path):
    path = tmp_path / "log.tsv"
    before = time.time()
    for n_lines in (1, 2):
        with Server(echo, log=path).run_in_thread() as running:
            ask(running, get("http://a.example/x?y=1"))
            # There while the server runs, so that no kill can lose it.
            wait_until(lambda n=n_lines: len(read_log(path)) == n)
    entries = read_log(path)
    assert [(e.host, e.target, e.status, e.in_flight) for e in entries] == [
        ("a.example", "/x?y=1", 200, 1)
    ] * 2
    assert before - 0.1 <= entries[0].start <= entries[0].end <= entries[1].start <= time.time() + 0.1


# Start and stop


def test_what_is_under_way_at_the_end_is_logged_with_status_0():
    started = threading.Event()

    def answer(exchange: Exchange) -> Answer:
        started.set()
        return Answer(delay=LONG)

    with Server(answer).run_in_thread() as running, connected(running) as client:
        client.sendall(b"GET http://a.example/ HTTP/1.1\r\n\r\n")
        assert started.wait(LONG)
    assert [entry.status for entry in running.log] == [0]


def test_a_server_can_be_started_and_stopped_again_at_the_same_port():
    server = Server(echo)
    with server.run_in_thread() as first:
        ask(first, get(f"{first.url}/1"))
    with server.run_in_thread() as second:
        ask(second, get(f"{second.url}/2"))
    assert first.port == second.port != 0
    assert [(entry.host, entry.target) for entry in second.log] == [("127.0.0.1", "/1"), ("127.0.0.1", "/2")]
