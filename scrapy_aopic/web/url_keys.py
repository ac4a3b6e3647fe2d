"""The page key of a request under Scrapy's own fingerprinter, of what it is for alone: without a request, and without Scrapy.

:class:`~.page_keys.PageKeys` compares it with Scrapy's when a crawl starts.
"""

from __future__ import annotations

import json
import re
from hashlib import sha1
from itertools import product
from string import hexdigits
from urllib.parse import urlsplit

from w3lib.url import canonicalize_url

from scrapy_aopic.core.records import host_key, page_key

from .request_rows import url_of
from .urls import plain_host


def key_of_url(url: str) -> tuple[str, bytes]:
    """Host and page key of a plain request for *url*."""
    name = plain_host(url)
    if not name:
        return key_of_parts(urlsplit(url).hostname or "", url)
    return name, key_of_plain_url(name, url)


def key_at(data: bytes, origin: str) -> bytes:
    """Page key of the request written as *data*, if it were for nothing but its URL, at *origin*; empty if it has no URL."""
    parts = url_of(data).split("/", 3)
    try:
        return key_of_url(f"{origin}/{parts[3]}")[1]
    except (IndexError, ValueError):
        return b""


def key_of_plain_url(name: str, url: str) -> bytes:
    """Page key of a plain request for *url* on the host *name*, which is plain (:func:`~.urls.plain_host`)."""
    if "?" in url or "%" in url or "#" in url:
        url = _canonical(url.partition("#")[0])
    data = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'  # what Scrapy hashes
    return page_key(host_key(name), sha1(data.encode(), usedforsecurity=False).digest())


_SAFE = r"A-Za-z0-9_.~\-"
"""What w3lib's canonical form leaves as it is, wherever it is."""

_is_safe = re.compile(f"[{_SAFE}]*=[{_SAFE}]*(?:&[{_SAFE}]*=[{_SAFE}]*)*").fullmatch

_ESCAPED = {f"%{digits}": chr(int(digits, 16)) for digits in map("".join, product(hexdigits, repeat=2))}
_IN_PATHS, _IN_QUERIES = (
    {escape: of if re.match(f"[{_SAFE}{others}]", of) else escape.upper() for escape, of in _ESCAPED.items()}
    for others in (r":@!$&'()*+,=|\[\]", "")
)
_IN_QUERIES |= {of: escape.upper() for escape, of in _ESCAPED.items()} | {"%20": "+"}
_MEANT = _ESCAPED | {"+": " "}

_HIGH = "(?![89A-F][0-9A-F])"
"""Goes behind a "%" where escapes of no ASCII are passed over, which stay as they are: most are."""

_ESCAPE = re.compile(f"%{_HIGH}..")
_UNSAFE = re.compile(f"[^{_SAFE}&=+%/:]|%{_HIGH}(?:[0-9A-Fa-f]{{2}})?")
_MEANS_OTHER = re.compile(r"%..|\+")


def _canonical(url: str) -> str:
    """The form that w3lib's ``canonicalize_url`` gives *url*, which is plain and has no fragment, in a tenth of its time.

    Escapes of what a path may have are undone, and parameters are sorted by what they mean.
    """
    path, _, query = url.partition("?")
    if "%" in path:
        path = _ESCAPE.sub(lambda escape: _IN_PATHS[escape[0]], path)
    if _is_safe(query):
        if "&" in query:  # "!" comes before whatever a name may go on with
            query = "&".join(sorted(query.replace("=", "!").split("&"))).replace("!", "=")
        return f"{path}?{query}"
    query = _UNSAFE.sub(lambda unsafe: _IN_QUERIES[unsafe[0]], query)
    query = query.replace("/", "%2F").replace(":", "%3A")  # most are of URLs
    parameters = [parameter.partition("=") for parameter in query.split("&") if parameter]
    if len(parameters) > 1:
        names = {name for name, _, _ in parameters}
        is_by_name = len(names) == len(parameters) and not _MEANS_OTHER.search("".join(names))
        parameters.sort(key=None if is_by_name else _meaning)
    query = "&".join([f"{name}={value.replace('=', '%3D')}" for name, _, value in parameters])
    return f"{path}?{query}" if query else path


def _meaning(parameter: tuple[str, str, str]) -> tuple[str, str]:
    """The bytes that the name and the value of a *parameter* stand for, each as the character of its number."""
    name, _, value = parameter
    if "%" in name or "+" in name:
        name = _MEANS_OTHER.sub(_meant, name)
    if "%" in value or "+" in value:
        value = _MEANS_OTHER.sub(_meant, value)
    return name, value


def _meant(escape: re.Match[str]) -> str:
    return _MEANT[escape[0]]


def key_of_parts(
    name: str, url: str, method: str = "GET", body: bytes = b"", *, is_verbatim: bool = False
) -> tuple[str, bytes]:
    """Host *name* and page key of a request that is more than a plain URL."""
    url = url if is_verbatim else canonicalize_url(url)
    data = json.dumps({"body": body.hex(), "headers": {}, "method": method, "url": url}, sort_keys=True)
    return name, page_key(host_key(name), sha1(data.encode(), usedforsecurity=False).digest())
