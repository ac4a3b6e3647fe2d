"""Takes over what a crawl with scrapy-redis has left on its server; the server is only read.

- Its queue (``SPIDER:requests``) and its start URLs (``SPIDER:start_urls``) become seeds that wait beside the job, each a whole
  request: it is taken up once, whether the crawl runs, was stopped or has not begun.
- Of its fetched pages only fingerprints are left (``SPIDER:dupefilter``). Those that are not of queued requests lie beside the job
  from then on (:mod:`.earlier_crawl`).

Requests were pickled, or written as JSON. Nothing is unpickled: see :mod:`scrapy_aopic.web.plain_pickle`.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from scrapy_aopic.exceptions import ExchangeError, plainly
from scrapy_aopic.place.folder_place import seeds_folder
from scrapy_aopic.place.seed_files import lists, put_list
from scrapy_aopic.storage.address import Address
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.web.plain_pickle import NotPlainError, read_pickle
from scrapy_aopic.web.request_rows import PURPOSE, SEEDED, pack_values

from .adding import Seed
from .earlier_crawl import SCHEMES, beginning, earlier_crawl_of, write_earlier_crawl
from .seed_lists import url_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.storage.redis.connection import Connection
    from scrapy_aopic.web.networks import Networks

_AT_ONCE = 500
"""Requests that are read at once: about a megabyte."""

_OF_SCRAPY = re.compile(r"scrapy\.http\.(request\.)?(form\.|json_request\.)?\w*Request")
"""Classes whose requests are as good as plain ones once they are made."""

_OF_TRANSFERS = ("download_latency", "_auth_proxy", "_scheme_proxy")
"""Keys of ``meta`` that say what the transfer of the page was like that had the link."""

_TEXTS = ("url", "method", "callback", "errback", "encoding")


class OldCrawl(NamedTuple):
    """Where a crawl of scrapy-redis keeps what it has, on the server of *address*.

    Attributes:
        queue, start_urls, fingerprints: Keys; ``""`` for what is not to be taken over.
    """

    address: Address
    queue: str
    start_urls: str
    fingerprints: str


@dataclass(slots=True)
class Imported:
    """The result of :func:`import_crawl`.

    Attributes:
        requests: Of the queue.
        start_urls: That waited for the spider.
        fetched: Fingerprints of pages that are not fetched again.
        scheme: What made them; ``""`` if there are none.
        bad: Requests left out.
        first_bad: What is wrong with the first of them.
        refused: Requests that wait, but are refused as long as the settings are as they are.
        first_refused: The URL of the first of them.
    """

    requests: int = 0
    start_urls: int = 0
    fetched: int = 0
    scheme: str = ""
    bad: int = 0
    first_bad: str = ""
    refused: int = 0
    first_refused: str = ""
    hits: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, set[int]] = field(default_factory=dict)


def import_crawl(
    old: OldCrawl,
    place: Place,
    networks: Networks,
    *,
    scheme: str = "",
    skip_bad: bool = False,
    progress: bool = False,
) -> Imported:
    """Take over *old* into the job at *place*, all of it or nothing.

    Args:
        networks: Where the job may go.
        scheme: What made the fingerprints (:data:`.earlier_crawl.SCHEMES`); ``""`` to find out by the queue.
        skip_bad: Leave out requests that cannot be taken over, instead of refusing all.

    Raises:
        ExchangeError: If there is nothing, or not all of it can be taken over.
        StorageError: If a server cannot be reached, or the job cannot be written.
    """
    found = Imported()
    with closing(connect(old.address)) as link, TemporaryDirectory(prefix="scrapy-aopic-") as temporary:
        fetched: set[int] = set()
        if old.fingerprints:
            fetched = _read_fingerprints(link, old.fingerprints, progress=progress)
        rows = _rows(link, old, fetched, found, networks, progress=progress)
        folder = seeds_folder(Path(temporary))
        put_list(folder, rows)
        n = found.requests + found.start_urls
        if found.bad and not skip_bad:
            raise ExchangeError(
                f"{found.first_bad}. Requests that cannot be taken over: {found.bad} of {n + found.bad}, so none was taken: leave "
                "them out with --skip-bad, or let the old crawl fetch them first."
            )
        if not n and not fetched:
            raise ExchangeError(
                f"There is nothing of a crawl at {_server(old.address)} under {_names(old)}: give the spider's name as the old "
                "crawl had it, or the keys with --queue, --start-urls and --dupefilter."
            )
        if fetched:
            found.scheme = scheme or _scheme(found)
            kept = earlier_crawl_of(found.scheme, fetched - found.numbers[found.scheme])
            found.fetched = len(kept)
            write_earlier_crawl(place, kept)  # before the requests, none of which it has
        if n:
            place.add_seeds(lists(folder))
    return found


def _server(address: Address) -> str:
    return str(address).partition("#")[0]


def _names(old: OldCrawl) -> str:
    return ", ".join(filter(None, (old.queue, old.start_urls, old.fingerprints)))


def _scheme(found: Imported) -> str:
    """The kind of the fingerprints, found by those of the queued requests."""
    best = max(found.hits, key=lambda name: found.hits[name])
    if found.hits[best]:
        return best
    raise ExchangeError(
        "None of the queued requests is in the dupefilter by a fingerprint that is known here, so nothing can be said of the pages "
        f"that were fetched: say what made the fingerprints (--fingerprints {', '.join(SCHEMES)}), or leave them out with "
        "--dupefilter ''; then those pages are fetched again. Nothing was taken."
    )


# -- fingerprints


def _read_fingerprints(link: Connection, key: str, *, progress: bool) -> set[int]:
    """The beginnings of all fingerprints in the set *key*."""
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    kind = _kind(link, key)
    if kind == "none":
        return set()
    if kind != "set":
        raise ExchangeError(f"The key {key} holds a {kind}, and not a set of fingerprints.")
    found: set[int] = set()
    with tqdm(unit=" fingerprints", unit_scale=True, disable=None if progress else True, leave=False) as line:
        for members in link.walk((b"SSCAN", key.encode()), (b"COUNT", 2 * _AT_ONCE)):
            found |= {_number(member, key) for member in members}
            line.update(len(members))
    return found


def _number(member: bytes, key: str) -> int:
    """The beginning of a fingerprint in the set *key*."""
    try:
        return beginning(bytes.fromhex(member.decode("ascii")))
    except ValueError:
        raise ExchangeError(
            f"{member[:80]!r} in {key} is no fingerprint in hexadecimal: leave the dupefilter out with --dupefilter ''; then the "
            "pages that were fetched are fetched again. Nothing was taken."
        ) from None


def _kind(link: Connection, key: str) -> str:
    kind = link.ask((b"TYPE", key.encode()))[0]
    return kind.decode() if isinstance(kind, bytes) else str(kind)


# -- requests


def _rows(
    link: Connection, old: OldCrawl, fetched: set[int], found: Imported, networks: Networks, *, progress: bool
) -> Iterator[str]:
    """The rows of all requests that can be taken over, which are counted in *found*, and those that cannot."""
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    found.hits = dict.fromkeys(SCHEMES, 0)
    found.numbers = {name: set() for name in SCHEMES}
    refused: dict[str, list[str]] = {}
    for is_start, key in ((True, old.start_urls), (False, old.queue)):
        if not key:
            continue
        hides = None if progress else True
        rows = tqdm(_members(link, key), unit=" requests", unit_scale=True, disable=hides, leave=False)
        for number, data in enumerate(rows, 1):
            try:
                values = _start_values(data) if is_start else _queue_values(data)
                # Scrapy counts the depth of all that pages lead to: the rest was named by a person.
                is_named = is_start or not values.get("meta", {}).get("depth")
                if is_named:
                    values["meta"] = {**values.get("meta", {}), PURPOSE: SEEDED}
                seed = Seed(values["url"], None, pack_values(values))
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                found.bad += 1
                why = str(error) if type(error) in (ValueError, TypeError) else plainly(error)
                found.first_bad = found.first_bad or f"{key}, number {number}: {why}"
                continue
            if is_start:
                found.start_urls += 1
            else:
                found.requests += 1
                _note(values, fetched, found)
            if is_named:
                networks.name(seed.url)
            elif networks.refusal(seed.url, is_by_others=False):
                refused.setdefault(urlsplit(seed.url).netloc, []).append(seed.url)
            yield seed.line()
    for urls in refused.values():
        if networks.refusal(urls[0], is_by_others=False):  # none that was read later has named its host
            found.refused += len(urls)
            found.first_refused = found.first_refused or urls[0]


def _note(values: dict[str, Any], fetched: set[int], found: Imported) -> None:
    """Note the fingerprints of a queued request, which is not fetched yet although the dupefilter has it."""
    for name, fingerprint in SCHEMES.items():
        number = beginning(fingerprint(values.get("method", "GET"), values["url"], values.get("body", b"")))
        if number in fetched:
            found.hits[name] += 1
            found.numbers[name].add(number)


def _members(link: Connection, key: str) -> Iterator[bytes]:
    """All members of a list, a set or a sorted set, in the order in which they would be taken; nothing is removed."""
    kind, name = _kind(link, key), key.encode()
    if kind == "none":
        return
    if kind == "set":
        seen = set(chain.from_iterable(link.walk((b"SSCAN", name), (b"COUNT", _AT_ONCE))))
        yield from sorted(seen)  # the same order each time: see :mod:`scrapy_aopic.place.seed_files`
        return
    words = {"list": b"LRANGE", "zset": b"ZRANGE"}
    if kind not in words:
        raise ExchangeError(
            f"The key {key} holds a {kind}, and not a list, a set or a sorted set of requests."
        )
    at = 0
    while members := link.ask((words[kind], name, at, at + _AT_ONCE - 1))[0]:
        yield from members
        at += _AT_ONCE


def _start_values(data: bytes) -> dict[str, Any]:
    """A start URL, or JSON with one, as scrapy-redis reads it."""
    text = data.decode("utf-8").strip()
    values: dict[str, Any] = {"url": text}
    if text.startswith("{"):
        fields = json.loads(text)
        if others := fields.keys() - {"url", "meta", "method"}:
            raise ValueError(
                f"it has {min(others)!r} for a form: let a RedisSpider take it, or give it as a request of your own"
            )
        values = {"url": fields.get("url"), "meta": fields.get("meta") or {}}
        values["method"] = str(fields.get("method") or "GET").upper()
    return _checked({**values, "dont_filter": True})


def _queue_values(data: bytes) -> dict[str, Any]:
    """A request of the queue, which was pickled or written as JSON."""
    if data[:1] == b"\x80":
        try:
            fields = read_pickle(data)
        except NotPlainError as error:
            raise ValueError(f"the pickled request cannot be read as plain data: {error}") from error
    elif data[:1] == b"{":
        fields = json.loads(data)
    else:
        raise ValueError(
            f"{data[:40]!r} is neither a pickle nor JSON, so a SCHEDULER_SERIALIZER of its own wrote it"
        )
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        raise ValueError("it holds no request")
    if "_encoding" in fields:
        fields["encoding"] = fields.pop("_encoding")
    return _checked(fields)


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """What of a request, as Scrapy's ``to_dict`` says it, differs from the defaults.

    Raises:
        ValueError, TypeError: If it is no request.
    """
    if error := url_error(fields.get("url")):
        raise ValueError(error)
    values = {name: value for name, value in fields.items() if value}
    for name in _TEXTS:
        if not isinstance(values.get(name, ""), str):
            raise TypeError(f"its {name} ({values[name]!r}) is no text")
    if isinstance(values.get("body"), str):
        values["body"] = values["body"].encode()
    if not isinstance(values.get("body", b""), bytes):
        raise TypeError("its body is no bytes")
    for name, kind in (("meta", dict), ("cb_kwargs", dict), ("headers", dict), ("priority", int)):
        if not isinstance(values.get(name, kind()), kind):
            raise TypeError(f"its {name} is no {kind.__name__}")
    for name, default in (("method", "GET"), ("encoding", "utf-8")):
        if values.get(name) == default:
            del values[name]
    if _OF_SCRAPY.fullmatch(str(values.get("_class", ""))):
        del values["_class"]
        values.pop("dumps_kwargs", None)
    if "meta" in values:
        values["meta"] = _kept(values["meta"], values["url"])
    return {name: value for name, value in values.items() if value}


def _kept(meta: dict[Any, Any], url: str) -> dict[Any, Any]:
    """Of *meta* what the spider has put there."""
    of_slot = meta.get("download_slot") == urlsplit(url).hostname
    return {
        key: value
        for key, value in meta.items()
        if key not in _OF_TRANSFERS
        and not str(key).startswith("_aopic")
        and not (key == "download_slot" and of_slot)
    }
