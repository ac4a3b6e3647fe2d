"""Which registered domain a host belongs to, offline: by the public suffix list that comes with tldextract, or that a job
began with.

What the list does not name is cut by its default rule, ``*``: the last label is the suffix (https://publicsuffix.org/list/).
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, cast

from tldextract import TLDExtract

if TYPE_CHECKING:
    from requests import Session

_GIVEN = "given:suffixes"
"""The address under which tldextract asks for a list that is given to it."""


class _GivenSuffixes:
    """Gives tldextract *text* as its list, in the place of a ``requests`` session and its response."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get(self, url: str, *, timeout: float | None) -> _GivenSuffixes:
        del url, timeout
        return self

    def raise_for_status(self) -> None:
        """Nothing."""


def _extract_by(*urls: str) -> TLDExtract:
    # Private suffixes count, too: each name below github.io belongs to somebody else.
    return TLDExtract(
        suffix_list_urls=urls, cache_dir=None, fallback_to_snapshot=not urls, include_psl_private_domains=True
    )


_extract = _extract_by()
_is_given = False
"""Whether it is not the list of tldextract any more."""

_MOST = 10_000_000
"""Most bytes of a list; that of 2025 has 150,000."""


_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)
"""The last label of an address, whole or cut short: no domain ends in one (https://url.spec.whatwg.org/#ends-in-a-number-checker)."""

_REMEMBERED = 100_000
"""Hosts whose domain is remembered: some 20 MB. Finding one takes 2.4 µs, and 0.07 µs if it is remembered."""


@lru_cache(maxsize=_REMEMBERED)
def registered_domain(host: str) -> str:
    """Registered domain of *host*; an address, or a name that has none, stands for itself."""
    found = _extract.extract_str(host)
    name, suffix = found.domain, found.suffix
    if not suffix and not _NUMBER.fullmatch(found.domain):
        name, suffix = found.subdomain.rpartition(".")[2], found.domain
    return f"{name}.{suffix}" if name and suffix else host


def has_public_suffix(name: str) -> bool:
    """Whether *name* ends as the name of a domain does, by the list: ``domains.txt`` and ``intranet`` do not."""
    return bool(_extract.extract_str(name).suffix)


@lru_cache(maxsize=1)
def list_name() -> str:
    """Which list that is: a digest of its suffixes, and that its default rule counts."""
    return _name_of(_suffixes())


@lru_cache(maxsize=1)
def packed_list() -> bytes:
    """The list itself, for :func:`use_list`: some 60 kB."""
    return zlib.compress(_suffixes())


def use_list(name: str, data: bytes) -> bool:
    """Use the list called *name*, whose :func:`packed_list` is *data*, from now on; False if that is damaged or of another name.

    A process has one list: False, too, if it already uses one that it was given.
    """
    global _extract, _is_given
    try:
        suffixes = zlib.decompressobj().decompress(data, _MOST)
    except zlib.error:
        return False
    if _is_given or _name_of(suffixes) != name:
        return False
    given = _extract_by(_GIVEN)
    given.update(fetch_now=True, session=cast("Session", _GivenSuffixes(suffixes.decode())))
    if _suffixes(given) != suffixes:
        return False
    _extract, _is_given = given, True
    for remembered in (registered_domain, list_name, packed_list):
        remembered.cache_clear()
    return True


def _suffixes(extract: TLDExtract | None = None) -> bytes:
    return "\n".join(sorted((extract or _extract).tlds)).encode()


def _name_of(suffixes: bytes) -> str:
    return f"{blake2b(suffixes, digest_size=8).hexdigest()}, *"
