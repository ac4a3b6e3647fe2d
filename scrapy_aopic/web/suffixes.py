"""Which registered domain a host belongs to, by the public suffix list that comes with tldextract; offline."""

from __future__ import annotations

from functools import lru_cache

from tldextract import TLDExtract

# Private suffixes count, too: who has a name below github.io has it alone.
_extract = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


@lru_cache(maxsize=100_000)
def registered_domain(host: str) -> str:
    """Registered domain of *host*; an address, or a name that has none, stands for itself."""
    found = _extract.extract_str(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else host
