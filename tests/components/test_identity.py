"""Signed requests: as another implementation verifies them, and in a crawl of servers that let nobody else in."""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode, urlsafe_b64decode
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from demo_web.server import Answer, Exchange, Server
from http_message_signatures import (
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
    InvalidSignature,
    algorithms,
)
from support.commands import run_here
from support.crawls import ADDON, in_folder
from support.small_web import Follow, crawl, html

from scrapy_aopic.exceptions import ExchangeError, SettingError
from scrapy_aopic.settings import read
from scrapy_aopic.web.identity import DIRECTORY, HEADERS, VALID, Identity, create

AGENT = "https://crawler.test"
RFC_KEY = urlsafe_b64decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU=")
"""The private key ``test-key-ed25519`` of RFC 9421, B.1.4."""


class Keys(HTTPSignatureKeyResolver):
    """Keys by the thumbprints that a directory has them under."""

    def __init__(self, directory: str) -> None:
        self._keys = {key["kid"]: key["x"] for key in json.loads(directory)["keys"]}

    def resolve_public_key(self, key_id: str) -> Any:
        return Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(self._keys[key_id] + "="))


def verify(
    identity: Identity, url: str, headers: dict[str, str], tag: str = "web-bot-auth", **more: Any
) -> Any:
    """What another implementation says of a request, or of a response if *more* has its ``status_code``, if it takes it."""
    how = {"signature_algorithm": algorithms.ED25519, "key_resolver": Keys(identity.directory())}
    verifier = HTTPMessageVerifier(**how)
    message = SimpleNamespace(method="GET", url=url, headers=headers, **more)
    (found,) = verifier.verify(message, expect_tag=tag, max_age=timedelta(days=9))
    return found


def test_signatures_are_those_of_the_rfc():
    """Its example B.2.6, and the thumbprint of its key in the draft of Web Bot Auth."""
    identity = Identity(AGENT, RFC_KEY)
    assert identity.keyid == "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
    covered = {
        "date": "Tue, 20 Apr 2021 02:07:55 GMT",
        "@method": "POST",
        "@path": "/foo",
        "@authority": "example.com",
        "content-type": "application/json",
        "content-length": "18",
    }
    names = " ".join(f'"{name}"' for name in covered)
    _, signature = identity._signed(covered, f'({names});created=1618884473;keyid="test-key-ed25519"')
    assert signature == (
        "sig1=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:"
    )


def test_signatures_are_those_of_web_bot_auth():
    """The test vector for Ed25519 with a ``Signature-Agent``, in draft-meunier-web-bot-auth-architecture since version 04."""
    nonce = "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA=="
    covered = {"@authority": "example.com", 'signature-agent;key="agent2"': '"https://signature-agent.test"'}
    identity = Identity(AGENT, RFC_KEY)
    params = (
        f'("@authority" "signature-agent";key="agent2");created=1735689600;keyid="{identity.keyid}";alg="ed25519";'
        f'expires=4889289600;nonce="{nonce}";tag="web-bot-auth"'
    )
    assert identity._signed(covered, params)[1].partition("=")[2] == (
        ":RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:"
    )


@pytest.mark.parametrize(
    "url",
    ["http://a.test/x?y", "https://A.test:443/", "https://a.test:8443/", "http://u:p@xn--bcher-kva.test:80/"],
)
def test_another_implementation_verifies_a_request_for_its_origin_and_its_time_alone(url):
    identity = Identity(AGENT, RFC_KEY)
    signed = identity.sign(url, time.time(), os.urandom(64))
    found = verify(identity, url, signed)
    assert list(found.covered_components)[:2] == ['"@authority"', '"signature-agent";key="sig1"']
    assert found.parameters["expires"] - found.parameters["created"] == VALID
    again = identity.sign(url, time.time(), os.urandom(64))
    assert verify(identity, url, again).parameters["nonce"] != found.parameters["nonce"]
    # By a clock that is minutes behind.
    verify(identity, url, identity.sign(url, time.time() - VALID + 60, b""))
    late, early = (identity.sign(url, time.time() + skew, b"") for skew in (-VALID - 60, 600))
    for other, headers in [
        ("http://b.test/", signed),
        (url, {**signed, "Signature-Agent": 'sig1="https://other.test"'}),
        (url, late),
        (url, early),
    ]:
        with pytest.raises(InvalidSignature):
            verify(identity, other, headers)


def test_a_directory_is_signed_for_its_own_site():
    identity = Identity(AGENT, RFC_KEY)
    headers = identity.sign_directory(time.time(), 7 * 86_400)
    for site, is_own in ((AGENT, True), ("https://copy.test", False)):
        asked = SimpleNamespace(method="GET", url=site + DIRECTORY, headers={})
        how: dict[str, Any] = {"status_code": 200, "request": asked}
        if is_own:
            verify(identity, "", headers, "http-message-signatures-directory", **how)
        else:
            with pytest.raises(InvalidSignature):
                verify(identity, "", headers, "http-message-signatures-directory", **how)


async def test_servers_that_let_signed_requests_in_alone_are_crawled_to_the_end(
    tmp_path, monkeypatch, caplog
):
    """The robots.txt of each host, pages, a redirect to another host, and a retry: each with a signature of its own."""
    file = tmp_path / "identity.json"
    identity = create(file, AGENT)
    pages = {"a.test": ["/1", "/2", "/moved"], "b.test": ["http://a.test/1", "/3"]}
    nonces: list[str] = []
    asked: list[str] = []

    def answer(exchange: Exchange) -> Answer:
        url = f"http://{exchange.host}{exchange.target}"
        headers = {name: exchange.headers.get(name.lower(), "") for name in HEADERS}
        try:
            nonces.append(verify(identity, url, headers).parameters["nonce"])
        except InvalidSignature:
            return Answer(403)
        asked.append(url)
        if exchange.target == "/robots.txt":
            return Answer(404)
        if exchange.target == "/moved":
            return Answer(302, {"Location": "http://b.test/"})
        if exchange.target == "/2" and asked.count(url) == 1:
            return Answer(503)
        body = html(pages.get(exchange.host, []) if exchange.target == "/" else [])
        return Answer(headers={"Content-Type": "text/html"}, body=body)

    server = Server(answer)
    with server.run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        settings = in_folder(tmp_path / "job", ADDON, AOPIC_IDENTITY=str(file))
        crawler = await crawl(Follow, settings, start_urls=["http://a.test/"])
    wanted = [f"http://a.test/{each}" for each in ("", "1", "2", "2", "moved", "robots.txt")]
    assert sorted(asked) == sorted([*wanted, *(f"http://b.test/{each}" for each in ("", "3", "robots.txt"))])
    assert len(set(nonces)) == len(nonces) == len(server.entries)
    private = json.loads(file.read_text())["d"]
    stats = crawler.stats.get_stats()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "job").rglob("*") if path.is_file())
    for secret in (private, b64decode(private + "==", altchars=b"-_").hex()):
        assert secret not in caplog.text + str(stats) + repr(vars(crawler.settings))
        assert secret.encode() not in kept
    assert b"Signature" not in kept


def test_a_file_that_is_no_identity_or_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "identity.json"
    create(file, AGENT)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ExchangeError, match="there is something else of that name"):
        create(file, AGENT)
    file.chmod(0o640)
    with pytest.raises(SettingError, match=r"AOPIC_IDENTITY.*chmod 600"):
        read({"AOPIC_IDENTITY": str(file)}, "AOPIC_IDENTITY")
    file.write_text('{"agent": "https://crawler.test", "d": "secret"}')
    file.chmod(0o600)
    with pytest.raises(SettingError, match="AOPIC_IDENTITY") as told:
        read({"AOPIC_IDENTITY": str(file)}, "AOPIC_IDENTITY")
    assert "secret" not in str(told.value)
    for agent in ("crawler.test", "https://crawler.test/x", "ftp://crawler.test", 'https://a"b'):
        with pytest.raises(ValueError, match="without a path"):
            create(tmp_path / "other", agent)


def test_the_command_makes_an_identity_and_checks_that_servers_find_it(tmp_path, capsys):
    file = tmp_path / "identity.json"
    published: dict[str, Any] = {"headers": {}, "body": b"{}"}
    with Server(lambda _: Answer(**published)).run_in_thread() as running:
        site = running.url.rstrip("/")
        code, out, _ = run_here(capsys, "identity", "new", file, site)
        assert code == 0
        assert Identity.read(file).keyid in out
        assert run_here(capsys, "identity", "new", file, site)[0] == 2
        assert run_here(capsys, "identity", "check", file)[0] == 2  # no directory
        _, directory, _ = run_here(capsys, "identity", "directory", file)
        _, lines, _ = run_here(capsys, "identity", "directory", file, "--headers", "30")
        published["body"] = directory.encode()
        code, out, _ = run_here(capsys, "identity", "check", file)
        assert (code, "not signed" in out) == (1, True)
        published["headers"] = dict(line.split(": ", 1) for line in lines.splitlines())
        assert run_here(capsys, "identity", "check", file)[0] == 0
        published["headers"]["Date"] = "Tue, 20 Apr 2021 02:07:55 GMT"
        code, out, _ = run_here(capsys, "identity", "check", file)
        assert (code, "seconds ahead" in out) == (1, True)
        published["body"] = Identity(site, RFC_KEY).directory().encode()
        assert "is not among its 1" in run_here(capsys, "identity", "check", file)[1]
