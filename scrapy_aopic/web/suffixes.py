"""Which registered domain a host belongs to, by the public suffix list that comes with tldextract; offline.

What the list does not name is cut by its default rule, ``*``: the last label is the suffix (https://publicsuffix.org/list/).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.metadata import version

from tldextract import TLDExtract

# Private suffixes count, too: each name below github.io belongs to somebody else.
_extract = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


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


@cache
def list_name() -> str:
    """Which list that is: version of tldextract, a digest of its suffixes, and that its default rule counts."""
    digest = blake2b("\n".join(sorted(_extract.tlds)).encode(), digest_size=4).hexdigest()
    return f"{version('tldextract')} ({digest}, *)"
