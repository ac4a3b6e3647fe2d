"""Which registered domain a host belongs to, offline: ``tldextract`` says it, by the public suffix list of the package
``publicsuffixlist``, or by that which a job began with.

What the list does not name is cut by its default rule, ``*``: the last label is the suffix (https://publicsuffix.org/list/).
Private suffixes count, too: each name below ``github.io`` belongs to somebody else.

The list that ``tldextract`` itself has is as old as its release, and ``publicsuffixlist`` is released for each month's list: of
that package only the list is read. Nothing is fetched, and nothing is cached in a folder.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from tldextract import TLDExtract

_given: list[bytes] = []
"""The rules of the list that a job brought, if there is one: then the installed one is not used any more."""

_MOST = 10_000_000
"""Most bytes of a list; that of 2026 has 150,000."""

_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)
"""The last label of an address, whole or cut short: no domain ends in one (https://url.spec.whatwg.org/#ends-in-a-number-checker)."""

_ENDS = re.compile(r"(?:[a-z0-9_-]+\.)*((?!xn--)[a-z0-9_-]+\.([a-z]+))")
"""A host whose last labels stand for themselves, and the last two and one of these."""

_REMEMBERED = 100_000
"""Hosts whose domain is remembered: some 20 MB. Finding one takes 1 µs if only its last label has a rule, as for most, else
as much as 6 µs, and 0.07 µs if it is remembered."""


@lru_cache(maxsize=_REMEMBERED)
def registered_domain(host: str) -> str:
    """Registered domain of *host*; an address, or a name that has none, stands for itself."""
    ends = _ENDS.fullmatch(host)
    if ends is not None and ends[2] in (rules := _ends_of_rules()) and not rules & {ends[1], f"*.{ends[2]}"}:
        return ends[1]
    name = host.rstrip(".").rpartition("..")[2].lstrip(".")  # no empty label makes a domain of its own
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return host
    found = _list()(name)
    if found.suffix:
        return f"{found.domain}.{found.suffix}" if found.domain else host
    return ".".join(name.split(".")[-2:]) if "." in name else host


def has_public_suffix(name: str) -> bool:
    """Whether *name* ends as the name of a domain does, by the list: ``domains.txt`` and ``intranet`` do not."""
    return bool(_list()(name).suffix)


def is_public_suffix(name: str) -> bool:
    """Whether *name* is one, such as ``co.uk``, below which names belong to many."""
    return bool(name) and not _list()(name).domain


@lru_cache(maxsize=1)
def list_name() -> str:
    """Which list that is: a digest of its rules, and that the default rule counts."""
    return _name_of(_rules())


@lru_cache(maxsize=1)
def packed_list() -> bytes:
    """The list itself, for :func:`use_list`: some 60 kB."""
    return zlib.compress(_rules())


def use_list(name: str, data: bytes) -> str:
    """Use the list called *name*, whose :func:`packed_list` is *data*, from now on; returns why it cannot be, else ``""``."""
    if _given:
        return f"this process already uses the list of another job ({list_name()}): use a process of its own"
    try:
        rules = zlib.decompressobj().decompress(data, _MOST)
        _list_of(rules)
    except (zlib.error, ValueError):  # a list without a rule is invalid, too
        rules = b""
    if _name_of(rules) != name:
        how = "damaged" if data else "not stored with it"
        return f"that is {how}: use the version of publicsuffixlist with which the job began"
    _given.append(rules)
    forget()
    return ""


def forget() -> None:
    """Forget what was found by a list that is not used any more."""
    for remembered in (registered_domain, list_name, packed_list, _rules, _list, _ends_of_rules):
        remembered.cache_clear()


@lru_cache(maxsize=1)
def _ends_of_rules() -> frozenset[str]:
    """The last two labels of each rule, or its only one."""
    return frozenset(".".join(rule.lstrip("!").split(".")[-2:]) for rule in _rules().decode().splitlines())


@lru_cache(maxsize=1)
def _list() -> TLDExtract:
    return _list_of(_rules())


def _list_of(rules: bytes) -> TLDExtract:
    found = TLDExtract(None, ["rules"], fallback_to_snapshot=False, include_psl_private_domains=True)
    session: Any = _Rules(rules.decode())
    found("example.com", session=session)  # which reads them, once
    return found


class _Rules:
    """Stands for the session of requests by which ``tldextract`` gets its list, and for the answer: *text*."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get(self, *_: object, **__: object) -> _Rules:
        return self

    def raise_for_status(self) -> None:
        """It is no error."""


@lru_cache(maxsize=1)
def _rules() -> bytes:
    """The rules of the list that is used, one a line, in the order of their characters."""
    if _given:
        return _given[0]
    text = (files("publicsuffixlist") / "public_suffix_list.dat").read_text(encoding="utf-8")
    lines = {line.partition(" ")[0].strip() for line in text.splitlines()}
    return "\n".join(sorted(line for line in lines if line and not line.startswith("//"))).encode()


def _name_of(rules: bytes) -> str:
    return f"{blake2b(rules, digest_size=8).hexdigest()}, *"
