"""Letters between shards, as bytes: a letter has the messages of one commit to one shard; many make several letters.

Rule 1: a letter is data from outside. :func:`read_letter` checks everything that can be checked without the store, and
raises one sentence before anything is changed; it takes time and memory in proportion to the letter's bytes.

Rule 2: a letter says how many units it carries, and its messages carry exactly that many.

Rule 3: messages about one page are in the order in which they must be applied: payments make the page known that a
claim names.

Host names and the ways of domains are written once in a letter, and messages refer to them by number. A letter is
MessagePack, compressed by zlib, whose checksum detects bytes that changed on the way.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from scrapy_aopic.core.domain import KEY_BYTES
from scrapy_aopic.core.focus.leads import MOST_BYTES
from scrapy_aopic.core.order import LARGEST_VALUE
from scrapy_aopic.core.records import HOST_BYTES, MOST_PRIORITY, NO_RECORD, PAGE_BYTES, Link, host_key
from scrapy_aopic.core.sponsors import MAX_LEVEL
from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from .cut import Cut

VERSION = 1
"""Version of the layout of letters."""

MAX_REQUEST = 16 << 20
"""Most bytes of a request to a page of another shard, so that every letter can be read."""

_MAX_LETTER = 4 * MAX_REQUEST
"""Most bytes of an unpacked letter: a bound on the memory that bytes from outside can take."""

MAX_WORTH = 1e12
"""Most cash of one seed, in seeds: far more than the virtual page can grant."""

_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Number = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
_Shift = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
_Priority = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]
_PageKey = Annotated[bytes, Meta(min_length=PAGE_BYTES, max_length=PAGE_BYTES)]
_Value = Annotated[int, Meta(ge=0, le=LARGEST_VALUE)]
_Lead = Annotated[bytes, Meta(max_length=MOST_BYTES)]
_Worth = Annotated[float, Meta(ge=0.0, le=MAX_WORTH)]


class PageRef(Struct, array_like=True, frozen=True, gc=False):
    """A page that a message is about.

    Attributes:
        host: Number of its host's name in the letter; -1 if only its key is known, as it is of a known page.
        page: The second half of its key; all of it if the host is -1.
        request: Bytes of the request; empty if the host is -1.
        shift: Front queues by which it waits higher than its cash says.
        again: Fetch it even if it is known.
        priority: See :class:`~scrapy_aopic.core.records.Link`.
        is_unfiltered: Whether that does not make it known to links.
    """

    host: int
    page: bytes
    request: bytes = b""
    shift: _Shift = 0
    again: bool = False
    priority: _Priority = 0
    is_unfiltered: bool = False


class Payment(Struct, array_like=True, frozen=True, gc=False):
    """Cash for a page that visited pages of the sender link to.

    Attributes:
        units: Cash that the page gets.
        found: Visits that found a link to it, for orders that count them.
        finders: Numbers of the ways, in the letter, of the domains that link to it.
    """

    target: PageRef
    units: _Count
    found: _Count = 0
    finders: tuple[int, ...] = ()


class SeedNote(Struct, array_like=True, frozen=True, gc=False):
    """A seed that was given to the sender and is a page of the receiver.

    Attributes:
        worth: How many seeds' cash the receiver's virtual page grants it.
        is_endowed: Whether it gets that cash if it is new.
        enriches: Whether it gets that cash if it is known.
        finder: Number of the way of the domain that links to it; -1 if it is a seed.
    """

    target: PageRef
    worth: _Worth
    is_endowed: bool
    enriches: bool
    finder: int = -1


class PageClaim(Struct, array_like=True, frozen=True, gc=False):
    """A visited page of the sender says that it is one with a page of the receiver.

    Attributes:
        page: Key of the page that was visited.
        origin: Its shard, to which the grant goes.
        other: Key of the page that it claims to be.
        visits: How often it had been visited then.
        height: Hops to it from pages that were merged with it.
        is_if_same: Whether the claim counts only if both have the same words.
        digest, sketch: Its text, if so.
    """

    page: _PageKey
    origin: _Count
    other: _PageKey
    visits: _Number
    height: _Count = 0
    is_if_same: bool = False
    digest: Annotated[bytes, Meta(max_length=64)] = b""
    sketch: Annotated[bytes, Meta(max_length=64)] = b""


class Grant(Struct, array_like=True, frozen=True, gc=False):
    """The decision on a claim: the receiver's page under *page*, visited *visits* times, is the sender's under *root*.

    If *root* equals *page*, the claim is refused, and the page stands for itself.
    """

    page: _PageKey
    visits: _Number
    root: _PageKey


class Bequest(Struct, array_like=True, frozen=True, gc=False):
    """Cash and history of a page that was merged with the receiver's page under *root*.

    Attributes:
        units: Its cash.
        history: Its history, as big-endian bytes: in a long crawl it outgrows 64 bits.
        score: Visits that found a link to it, if the order counts them.
        height: Hops to the root from pages that were merged with it.
    """

    root: _PageKey
    units: _Count
    history: Annotated[bytes, Meta(max_length=64)] = b""
    score: _Count = 0
    height: _Count = 0


class Letter(Struct, array_like=True, frozen=True):
    """All messages of a commit, or of a part of one, to one shard.

    Attributes:
        sender, to, of: Numbers of the two shards, and the number of shards of the job.
        number: Counts the letters of this sender to this shard, from 1.
        units: Cash that it carries.
        hosts: Names of hosts, as :func:`host_bytes` writes them.
        ways: Keys of domains, each with those of its discoverers up to a seed's domain.
        values: Value of each payment's page for a topic; empty if no link has one.
        leads: The lead of each payment's link, to keep while its page waits; empty if no link has one.
    """

    version: int
    sender: _Count
    to: _Count
    of: _Count
    number: _Number
    units: _Count
    hosts: list[bytes] = []
    ways: list[bytes] = []
    payments: list[Payment] = []
    seeds: list[SeedNote] = []
    claims: list[PageClaim] = []
    grants: list[Grant] = []
    bequests: list[Bequest] = []
    values: list[_Value] = []
    leads: list[_Lead] = []

    def __str__(self) -> str:
        return f"letter {self.number} from shard {self.sender} to shard {self.to}"

    def link(self, target: PageRef) -> Link:
        """The link to *target*; without host and request if only the key is known."""
        if target.host < 0:
            return Link(target.page, "", b"")
        host = host_name(self.hosts[target.host])
        return Link(
            host_key(host) + target.page,
            host,
            target.request,
            target.shift,
            target.again,
            priority=target.priority,
            is_unfiltered=target.is_unfiltered,
        )


def host_bytes(name: str) -> bytes:
    """The name of a host as bytes; like any string of Python it may contain half a surrogate pair."""
    return name.encode("utf-8", "surrogatepass")


def host_name(data: bytes) -> str:
    """What :func:`host_bytes` has written."""
    return data.decode("utf-8", "surrogatepass")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Letter).decode


def write_letter(letter: Letter, level: int = 1) -> bytes:
    """The bytes of *letter*, compressed at a *level* of zlib: with 6 they are some 5 % shorter than with 1 and take three times as
    long; with 0, for letters that stay on a machine, they are half as long again, and take a tenth of the time."""
    return zlib.compress(_encode(letter), level)


def read_letter(data: bytes, cut: Cut) -> Letter:
    """Decode *data* as a letter to the shard of *cut*.

    Raises:
        StorageError: If it is not a valid letter, or is for another shard or job.
    """
    try:
        letter = _decode(_inflate(data))
        hosts = list(map(host_name, letter.hosts))
    except (zlib.error, *NO_RECORD) as error:
        raise StorageError(
            f"A letter to {cut.own} cannot be read: its sender still has it, and sends it again. "
            "Nothing was changed."
        ) from error
    if fault := _fault(letter, hosts, cut):
        raise StorageError(f"The {letter} was refused by {cut.own}: {fault}. Nothing was changed.")
    return letter


def _inflate(data: bytes) -> bytes:
    """Decompress all of *data*.

    Raises:
        ValueError: If it is cut short, too long, or followed by anything.
    """
    inflater = zlib.decompressobj()
    whole = inflater.decompress(data, _MAX_LETTER)
    if not inflater.eof or inflater.unused_data:
        raise ValueError(f"it is cut short, or longer than {_MAX_LETTER} bytes")
    return whole


def _fault(letter: Letter, hosts: list[str], cut: Cut) -> str:
    """A sentence on the first fault of *letter*, which names *hosts*; empty if it has none."""
    own = cut.own
    if letter.version != VERSION:
        return f"it is of version {letter.version}, and this scrapy-aopic reads version {VERSION}"
    if (letter.to, letter.of) != own or letter.sender == own.number or letter.sender >= own.of:
        return f"it is for shard {letter.to} of {letter.of}"
    for host in hosts:
        if (shard := cut.of_host(host)) != own.number:
            return (
                f"its host {host!r} belongs to shard {shard} here. All workers of a job, and all its runs, need the "
                "same list of public suffixes"
            )
    carried = sum([payment.units for payment in letter.payments])
    carried += sum([bequest.units for bequest in letter.bequests])
    if carried != letter.units:
        return f"it carries {carried} units, not {letter.units}"
    return _loose_end(letter, own.of)


def _loose_end(letter: Letter, of: int) -> str:
    """A sentence on the first reference in *letter* that leads nowhere; empty if there is none."""
    n_payments = len(letter.payments)
    if not {len(letter.values), len(letter.leads)} <= {0, n_payments}:
        return "it has values of other payments than it has"
    n_hosts, n_ways, longest = len(letter.hosts), len(letter.ways), KEY_BYTES * (MAX_LEVEL + 1)
    targets = [each.target for each in letter.payments] + [each.target for each in letter.seeds]
    finders = [finder for payment in letter.payments for finder in payment.finders]
    finders += [seed.finder for seed in letter.seeds if seed.finder != -1]
    if not all(way and len(way) % KEY_BYTES == 0 and len(way) <= longest for way in letter.ways):
        return "it has an unusable way"
    if any(_is_none(target, n_hosts) for target in targets):
        return "it has a message to no page"
    if not all(0 <= finder < n_ways for finder in finders):
        return "it has a message from no domain"
    return "" if all(claim.origin < of for claim in letter.claims) else "it has a claim from no shard"


def _is_none(target: PageRef, n_hosts: int) -> bool:
    """Whether *target* is not valid in a letter that names *n_hosts* hosts."""
    if target.host == -1:
        return len(target.page) != PAGE_BYTES or bool(target.request) or target.again
    return (
        not 0 <= target.host < n_hosts
        or len(target.page) != PAGE_BYTES - HOST_BYTES
        or len(target.request) > MAX_REQUEST
    )
