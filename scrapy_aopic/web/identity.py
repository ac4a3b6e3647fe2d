"""Signs requests, so that a server can tell who crawls: HTTP Message Signatures (RFC 9421), as Web Bot Auth uses them.

A signature covers the origin that is asked and the address of the signer's keys, and holds for minutes. It says who asks, and
nothing of what is asked for or answered.

Sources: RFC 9421; RFC 8037 and 7638 (the key and its thumbprint); draft-ietf-webbotauth-httpsig-protocol-00, which goes on with
draft-meunier-web-bot-auth-architecture-05, and draft-meunier-webbotauth-httpsig-directory-00.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scrapy_aopic.exceptions import ExchangeError, plainly

DIRECTORY = "/.well-known/http-message-signatures-directory"
"""Path below which servers look for the keys of a signer."""

DIRECTORY_TYPE = "application/http-message-signatures-directory+json"
"""Content type of what is there."""

HEADERS = ("Signature-Agent", "Signature-Input", "Signature")
"""Headers of a signed request."""

VALID = 300
"""Seconds for which the signature of a request holds: a transfer begins at once, but clocks differ."""

_LABEL = "sig1"

_MOST = 10_000
"""Characters of the file of an identity, at most."""

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Identity:
    """Who signs.

    Args:
        agent: Address of the site that has the directory of keys, such as ``https://crawler.example.org``.
        private: The private key, 32 bytes.

    Attributes:
        keyid: Thumbprint of the public key.

    Raises:
        ExchangeError: If *agent* is no such address.
        ValueError: If the key is invalid.
    """

    def __init__(self, agent: str, private: bytes) -> None:
        parts = urlsplit(agent)
        is_site = (
            parts.scheme in _DEFAULT_PORTS and parts.hostname and agent == f"{parts.scheme}://{parts.netloc}"
        )
        if not is_site or not agent.isascii() or '"' in agent:
            raise ExchangeError(f"{agent!r} is not like https://crawler.example.org, without a path")
        self.agent = agent
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self._public = {
            "crv": "Ed25519",
            "kty": "OKP",
            "x": _url64(self._key.public_key().public_bytes_raw()),
        }
        self.keyid = _url64(sha256(_json(self._public)).digest())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Identity:
        """The identity in the file at *path*, which :func:`create` has written.

        Raises:
            ExchangeError: If it cannot be read, is no identity, or can be read by others.
        """
        try:
            opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # of a pipe it is empty
            with os.fdopen(opened, encoding="utf-8", errors="replace") as file:
                if os.name == "posix" and os.fstat(opened).st_mode & 0o077:
                    raise ExchangeError(f"others may read the private key in {path}: chmod 600 {path}")
                text = file.read(_MOST)
        except OSError as error:
            raise ExchangeError(f"{path} cannot be read: {plainly(error)}") from error
        try:
            found = json.loads(text)
            return cls(str(found["agent"]), urlsafe_b64decode(found["d"] + "="))
        except (KeyError, TypeError, ValueError):  # which say what is in the file
            raise ExchangeError(f"{path} is no identity: scrapy aopic identity new writes one") from None

    def sign(self, url: str, now: float, nonce: bytes) -> dict[str, str]:
        """Headers that sign a request for *url*, at *now* in seconds since the epoch, with a *nonce* of its own."""
        quoted = f'"{self.agent}"'
        # A member of a dictionary, since version 04 of the draft: its name is that of the signature.
        covered = {"@authority": authority(url), f'signature-agent;key="{_LABEL}"': quoted}
        params = self._params(covered, now, VALID, "web-bot-auth", f';nonce="{b64encode(nonce).decode()}"')
        return dict(zip(HEADERS, (f"{_LABEL}={quoted}", *self._signed(covered, params)), strict=True))

    def directory(self) -> str:
        """The directory of its key, as JSON."""
        return json.dumps(
            {"keys": [{**self._public, "kid": self.keyid, "alg": "EdDSA", "use": "sig"}]}, indent=2
        )

    def sign_directory(self, now: float, seconds: float) -> dict[str, str]:
        """Headers that sign the directory from *now* on for *seconds*, so that no other site can pass it off as its own."""
        covered = {"@authority;req": authority(self.agent)}
        params = self._params(covered, now, seconds, "http-message-signatures-directory")
        return {
            "Content-Type": DIRECTORY_TYPE,
            **dict(zip(HEADERS[1:], self._signed(covered, params), strict=True)),
        }

    def _params(self, covered: dict[str, str], now: float, seconds: float, tag: str, more: str = "") -> str:
        names = " ".join(map(_component, covered))
        return f'({names});created={int(now)};expires={int(now + seconds)};keyid="{self.keyid}";alg="ed25519"{more};tag="{tag}"'

    def _signed(self, covered: dict[str, str], params: str) -> tuple[str, str]:
        """``Signature-Input`` and ``Signature`` over the values that are *covered*."""
        lines = [f"{_component(name)}: {value}" for name, value in covered.items()]
        base = "\n".join([*lines, f'"@signature-params": {params}'])
        return f"{_LABEL}={params}", f"{_LABEL}=:{b64encode(self._key.sign(base.encode())).decode()}:"


def create(path: Path, agent: str) -> Identity:
    """Write a new identity to *path*, which only its owner may read.

    Raises:
        ExchangeError: If there is something, or it cannot be written, or *agent* is no address of a site.
    """
    private = Ed25519PrivateKey.generate().private_bytes_raw()
    made = Identity(agent, private)
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            json.dump({"agent": agent, "d": _url64(private)}, file)
    except OSError as error:
        raise ExchangeError(f"{path} cannot be written: {plainly(error)}") from error
    return made


def authority(url: str) -> str:
    """Host of *url*, with its port if it is not the usual one, as RFC 9421 (2.2.3) wants it."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2].lower().removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))


def _component(name: str) -> str:
    """The identifier of a covered component, whose parameters stand behind its quotes."""
    name, _, rest = name.partition(";")
    return f'"{name}"' + (f";{rest}" if rest else "")


def _json(value: dict[str, str]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _url64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
