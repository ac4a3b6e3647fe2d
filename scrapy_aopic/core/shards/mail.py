"""Letters that a shard sent and received, each in the same commit as its effect on the shard.

Rule 1: cash that leaves a page for another shard is written into the *outbox* by the batch that takes it from the page.
A letter may leave the process only when that batch has landed: :meth:`Mail.letters` gives no others.

Rule 2: letters to a shard are numbered from 1, without gaps. The receiver applies only the letter after the last one
that it applied, and stores its number in the batch that has the letter's effect.

Rule 3: a letter is deleted when the receiver's batch has landed: the receiver says so (:meth:`Mail.received_landed`),
and the sender is told (:meth:`Mail.acknowledged`). Until then it may be sent any number of times.

So cash is conserved in every state that the disks can be in, whichever commits of which shard landed: the shards, and
the letters that their receivers have not applied, always hold as much as the shards started with.

======  ================  =====================================================================
letter  key               value
======  ================  =====================================================================
``N``                     number of this shard, number of all shards, and the names of domains that are spread
``M``   shard number      a letter in the outbox
``S``   shard             last letter that was acknowledged, last that was written, units sent
``R``   shard             last letter that was applied, units received
======  ================  =====================================================================
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from scrapy_aopic.core.layout import OUTBOX, RECEIVED, SENT, SHARD, Family
from scrapy_aopic.core.records import HOST_BYTES, NO_RECORD, PAGE_BYTES, Link, pack, unpack
from scrapy_aopic.core.tables import BlobTable
from scrapy_aopic.exceptions import CallError, StorageError

from .cut import WHOLE, Cut, ShardId, shard_of_address
from .letters import (
    MAX_REQUEST,
    VERSION,
    Bequest,
    Grant,
    Letter,
    PageClaim,
    PageRef,
    Payment,
    SeedNote,
    host_bytes,
    write_letter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scrapy_aopic.core.ledger import Totals
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store

_MAX_MESSAGES = 2000
"""Most messages of a letter, some 50 kB: a receiver applies them in one step, in some 20 ms."""

_MAX_BYTES = MAX_REQUEST
"""Bytes of requests from which on a letter gets no more, so that it can be read however long each of them is."""


class Posted(NamedTuple):
    """Counts of the letters to a shard: the last one acknowledged, the last one written, and the units of all."""

    acknowledged: int = 0
    last: int = 0
    units: int = 0


class Got(NamedTuple):
    """Counts of the letters from a shard: the last one applied, and the units of all."""

    last: int = 0
    units: int = 0


class _Grants(NamedTuple):
    """The cash that a seed gets; see :class:`~.letters.SeedNote`."""

    worth: float
    is_endowed: bool
    enriches: bool


@dataclass(slots=True)
class _Due:
    """What a page of another shard gets with the next letter; as a seed, if *seed* is set."""

    link: Link
    units: int = 0
    found: int = 0
    finders: dict[bytes, None] = field(default_factory=dict)
    seed: _Grants | None = None


@dataclass(slots=True)
class _Open:
    """Messages to a shard that are not in a letter yet.

    Attributes:
        payments: By page key, so that a page gets one message however many links lead to it.
        single: Messages that cannot be added up: seeds, and links that require a fetch of their own.
    """

    payments: dict[bytes, _Due] = field(default_factory=dict)
    single: list[_Due] = field(default_factory=list)
    words: list[PageClaim | Grant | Bequest] = field(default_factory=list)


class Mail:
    """The outbox of a shard, and counts of the letters that it has received; all empty in a job in one piece.

    Args:
        cut: Which shard each host is in.
        totals: The shard's sums of cash; their ``balance`` is kept here.

    Attributes:
        way_of: Gives the key of a domain and those of its discoverers; set by the owner of the domains.
        level: How far its letters are compressed; see :func:`~.letters.write_letter`.
        family: That of its rows.
    """

    family = Family.META
    level = 1

    def __init__(self, store: Store, cut: Cut, totals: Totals) -> None:
        self.cut = cut
        self.way_of: Callable[[bytes], bytes] = bytes
        self._totals = totals
        self._rows = BlobTable(store, Family.META)
        self._open: defaultdict[int, _Open] = defaultdict(_Open)
        posted, got = read_counts(store)
        self._posted = dict(posted)
        self._got = dict(got)
        self._landed_posted = dict(posted)
        self._landed_got = dict(got)
        self._taken: tuple[dict[int, Posted], dict[int, Got]] = ({}, {})
        if cut.has_others and read_shard(store) is None:
            self._rows.put(SHARD, pack_cut(cut))

    # -- what leaves

    def elsewhere(self, links: Iterable[Link]) -> dict[bytes, int]:
        """Shards of the pages of *links* that are in other shards, by page key.

        Raises:
            CallError: If a request is longer than a letter may be.
        """
        if not self.cut.has_others:
            return {}
        own, of_host = self.cut.own.number, self.cut.of_host
        away = {}
        for link in links:
            if link.host and (shard := of_host(link.host)) != own:
                away[link.key] = shard
                if len(link.request) > MAX_REQUEST:
                    raise CallError(
                        f"settle: a request to a page of another shard may take {MAX_REQUEST} bytes at most; one to "
                        f"{link.host!r} takes {len(link.request)}"
                    )
        return away

    def pay(self, shard: int, link: Link, units: int, *, found: int = 0, finder: bytes = b"") -> None:
        """Send *units*, which the caller has taken from elsewhere, to the page of *link* in another *shard*.

        Args:
            link: Without host and request if the page is certainly known there.
            found: Visits that found the link, if the order counts them.
            finder: Key of the domain that links to it, if domains count.
        """
        box = self._open[shard]
        due = None if link.again else box.payments.get(link.key)
        if due is None:
            due = _Due(link)
            if link.again:
                box.single.append(due)
            else:
                box.payments[link.key] = due
        elif link.host and (not due.link.host or (due.link.is_unfiltered and not link.is_unfiltered)):
            due.link = link
        elif link.value > due.link.value > 0:  # as a page is worth what its best link is
            due.link = replace(due.link, value=link.value, lead=link.lead)
        due.units += units
        due.found += found
        if finder:
            due.finders[finder] = None
        self._totals.balance -= units

    def pay_on(self, where: bytes, units: int, *, found: int = 0) -> None:
        """Send *units* to the page at the address *where*, with which another page was merged."""
        self.pay(shard_of_address(where), Link(where[:PAGE_BYTES], "", b""), units, found=found)

    def seed(
        self, shard: int, link: Link, worth: float, *, is_endowed: bool, enriches: bool, finder: bytes = b""
    ) -> None:
        """Let *shard* queue the page of *link*; see :class:`~.letters.SeedNote`."""
        finders: dict[bytes, None] = {finder: None} if finder else {}
        due = _Due(link, finders=finders, seed=_Grants(worth, is_endowed, enriches))
        self._open[shard].single.append(due)

    def enrich_at(self, where: bytes, worth: float) -> None:
        """Let the virtual page of another shard grant *worth* seeds' cash to the page at the address *where*."""
        link = Link(where[:PAGE_BYTES], "", b"")
        self.seed(shard_of_address(where), link, worth, is_endowed=False, enriches=True)

    def tell(self, shard: int, word: PageClaim | Grant | Bequest) -> None:
        """Send *word* to *shard*; the caller has taken the units of a bequest from elsewhere."""
        self._open[shard].words.append(word)
        if isinstance(word, Bequest):
            self._totals.balance -= word.units

    def letters(self, shard: int, after: int = 0, n: int = 16) -> list[bytes]:
        """Letters to *shard* that may leave, in order: at most *n* of those after number *after*, and acknowledged."""
        posted = self._landed_posted.get(shard, Posted())
        begin = max(after, self._posted.get(shard, posted).acknowledged) + 1
        numbers = range(begin, min(posted.last, begin + n - 1) + 1)
        found = self._rows.get_many([row_of(OUTBOX, shard, number) for number in numbers])
        for number, letter in zip(numbers, found, strict=True):
            if letter is None:
                raise StorageError(
                    f"{self.cut.own} has no letter {number} to shard {shard} any more: its store is damaged, and the job's "
                    "cash cannot be whole without it."
                )
        return [letter for letter in found if letter is not None]

    def waiting(self) -> dict[int, tuple[int, int]]:
        """Numbers of the first and the last letter that may leave, by shard."""
        return {
            shard: (first, posted.last)
            for shard, posted in self._landed_posted.items()
            if (first := self._posted[shard].acknowledged + 1) <= posted.last
        }

    def acknowledged(self, shard: int, number: int) -> bool:
        """Delete all letters to *shard* up to *number*, which are in a commit of it that has landed.

        Returns:
            Whether that is news: false if they were acknowledged before.

        Raises:
            StorageError: If it has received a letter that this shard has not written.
        """
        landed = self._landed_posted.get(shard, Posted())
        if number > landed.last:
            raise StorageError(
                f"Shard {shard} has received letter {number} from {self.cut.own}, whose last one is {landed.last}: this store "
                "is older than its mail, as a restored backup or a server that lost its last second is. All shards of a job "
                "must be put back to one moment. Nothing was changed."
            )
        posted = self._posted.get(shard, landed)
        if number <= posted.acknowledged:
            return False
        for old in range(posted.acknowledged + 1, number + 1):
            self._rows.delete(row_of(OUTBOX, shard, old))
        self._note_posted(shard, posted._replace(acknowledged=number))
        return True

    # -- what comes

    def expected(self, sender: int) -> int:
        """Number of the letter that comes next from *sender*."""
        return self._got.get(sender, Got()).last + 1

    def applied(self, letter: Letter) -> None:
        """Note that the caller applies *letter*, the next one of its sender, in this step."""
        got = self._got.get(letter.sender, Got())
        got = self._got[letter.sender] = Got(letter.number, got.units + letter.units)
        self._rows.put(row_of(RECEIVED, letter.sender), pack(tuple(got)))
        self._totals.balance += letter.units

    def sent_landed(self) -> dict[int, int]:
        """The last letter to each shard that is in a commit that has landed."""
        return {shard: posted.last for shard, posted in self._landed_posted.items()}

    def received_landed(self) -> dict[int, int]:
        """The last letter of each sender that is in a commit that has landed: up to it, the sender may delete them."""
        return {sender: got.last for sender, got in self._landed_got.items()}

    def units_landed(self) -> tuple[dict[int, int], dict[int, int]]:
        """Units in all letters written to, and in all applied from, each shard, as of the last commit that landed."""
        sent = {shard: posted.units for shard, posted in self._landed_posted.items()}
        return sent, {sender: got.units for sender, got in self._landed_got.items()}

    # -- commits

    def take(self) -> dict[bytes, bytes | None]:
        """Put all messages into letters, move all changes in flight and return them as rows."""
        for shard, box in self._open.items():
            for letter in self._letters(shard, box):
                self._rows.put(row_of(OUTBOX, shard, letter.number), write_letter(letter, self.level))
        self._open.clear()
        self._taken = dict(self._posted), dict(self._got)
        return self._rows.take()

    def landed(self) -> None:
        """The rows in flight are in the store."""
        self._landed_posted, self._landed_got = self._taken
        self._rows.landed()

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""
        self._rows.failed()

    def _note_posted(self, shard: int, posted: Posted) -> None:
        self._posted[shard] = posted
        self._rows.put(row_of(SENT, shard), pack(tuple(posted)))

    def _letters(self, shard: int, box: _Open) -> Iterator[Letter]:
        """Put all messages of *box* into letters to *shard*, and count them."""
        dues, words = iter([*box.payments.values(), *box.single]), iter(box.words)
        while True:
            writer = _LetterWriter(self.way_of)
            writer.add_pages(dues)
            writer.add_words(words)
            if not writer.n:
                return
            posted = self._posted.get(shard, Posted())
            letter = writer.letter(self.cut.own, shard, posted.last + 1)
            self._note_posted(shard, posted._replace(last=letter.number, units=posted.units + letter.units))
            yield letter


class _LetterWriter:
    """Fills a letter.

    Attributes:
        n: Messages in it.
    """

    def __init__(self, way_of: Callable[[bytes], bytes]) -> None:
        self.n = 0
        self._way_of = way_of
        self._n_bytes = self._units = 0
        self._hosts: dict[str, int] = {}
        self._ways: dict[bytes, int] = {}
        self._payments: list[Payment] = []
        self._seeds: list[SeedNote] = []
        self._claims: list[PageClaim] = []
        self._grants: list[Grant] = []
        self._bequests: list[Bequest] = []
        self._values: list[int] = []
        self._leads: list[bytes] = []

    @property
    def _has_room(self) -> bool:
        return self.n < _MAX_MESSAGES and self._n_bytes < _MAX_BYTES

    def add_pages(self, dues: Iterator[_Due]) -> None:
        """Take as many of *dues* as there is room for."""
        while self._has_room and (due := next(dues, None)) is not None:
            self.n += 1
            self._n_bytes += len(due.link.request) + len(due.link.lead)
            target = self._target(due.link)
            finders = tuple(self._ways.setdefault(finder, len(self._ways)) for finder in due.finders)
            if due.seed is not None:
                self._seeds.append(SeedNote(target, *due.seed, finders[0] if finders else -1))
            else:
                self._payments.append(Payment(target, due.units, due.found, finders))
                self._values.append(due.link.value)
                self._leads.append(due.link.lead)
                self._units += due.units

    def add_words(self, words: Iterator[PageClaim | Grant | Bequest]) -> None:
        """Take as many of *words* as there is room for, but only after all payments: words may name their pages."""
        while self._has_room and (word := next(words, None)) is not None:
            self.n += 1
            if isinstance(word, PageClaim):
                self._claims.append(word)
            elif isinstance(word, Grant):
                self._grants.append(word)
            else:
                self._bequests.append(word)
                self._units += word.units

    def letter(self, own: ShardId, to: int, number: int) -> Letter:
        """The letter to the shard *to*."""
        hosts = [host_bytes(host) for host in self._hosts]
        ways = [self._way_of(finder) for finder in self._ways]
        return Letter(VERSION, own.number, to, own.of, number, self._units, hosts, ways, self._payments, self._seeds,
                      self._claims, self._grants, self._bequests,
                      self._values if any(self._values) else [], self._leads if any(self._leads) else [])  # fmt: skip

    def _target(self, link: Link) -> PageRef:
        if not link.host:
            return PageRef(-1, link.key)
        host = self._hosts.setdefault(link.host, len(self._hosts))
        return PageRef(
            host,
            link.key[HOST_BYTES:],
            link.request,
            link.shift,
            link.again,
            link.priority,
            link.is_unfiltered,
        )


def open_cut(store: Store, policy: Policy, shard: ShardId, *, is_new: bool) -> Cut:
    """How the job in *store* is cut, if it is opened as *shard*.

    Raises:
        CallError: If there is no such shard, or *policy* does not work with several shards.
        StorageError: If the store holds another shard, or a job that is cut differently.
    """
    cut = Cut(shard, policy.domain_of, policy.spread)
    known, spread = _read_cut(store)
    stored = known if known is not None or is_new else WHOLE
    if stored is not None and stored != shard:
        raise StorageError(
            f"This store holds {stored}, and was opened as {shard}: the number of shards of a job is fixed when it begins, and "
            "each shard has a store of its own. Nothing was changed."
        )
    if known is not None and spread != policy.spread:
        raise StorageError(
            f"This store is of a job that spreads the hosts of {', '.join(sorted(spread)) or 'no domain'} over its shards, which is fixed "
            f"when a job begins, and was opened to spread those of {', '.join(sorted(policy.spread)) or 'none'}. Nothing was changed."
        )
    if cut.has_others and (why := policy.why_not_in_shards):
        raise CallError(why)
    return cut


# -- rows, also for what reads a store without a crawl


def row_of(letter: bytes, shard: int, number: int | None = None) -> bytes:
    """Key of a row in ``META``; see the table above."""
    row = letter + shard.to_bytes(2, "big")
    return row if number is None else row + number.to_bytes(8, "big")


def read_shard(store: Store) -> ShardId | None:
    """The shard that *store* holds; ``None`` if it holds a job in one piece.

    Raises:
        StorageError: If its row cannot be read.
    """
    return _read_cut(store)[0]


def cut_of(stores: Sequence[Store], domain_of: Callable[[str], str]) -> Cut:
    """How the job in *stores*, one for each shard, is cut, as the first that is there says it: from the point of view of shard 0.

    Raises:
        StorageError: If its row cannot be read.
    """
    spread = next((spread for shard, spread in map(_read_cut, stores) if shard is not None), frozenset())
    return Cut(ShardId(0, len(stores)), domain_of, spread)


def pack_cut(cut: Cut) -> bytes:
    """The row of the shard that *cut* is of: its numbers, and the domains that are spread."""
    return pack((*cut.own, *sorted(cut.spread)))


def _read_cut(store: Store) -> tuple[ShardId | None, frozenset[str]]:
    data = store.get_many(Family.META, (SHARD,))[0]
    if data is None:
        return None, frozenset()
    try:
        number, of, *spread = unpack(data)
        return ShardId(int(number), int(of)), frozenset(map(str, spread))
    except NO_RECORD as error:
        raise StorageError(
            "Which shard of its job this store holds is damaged. Nothing was changed."
        ) from error


def read_counts(store: Store) -> tuple[Mapping[int, Posted], Mapping[int, Got]]:
    """Counts of the letters that the shard in *store* wrote and applied, by the other shard.

    Raises:
        StorageError: If a row cannot be read.
    """
    try:
        posted = {int.from_bytes(row[1:], "big"): Posted(*unpack(data)) for row, data in _rows(store, SENT)}
        got = {int.from_bytes(row[1:], "big"): Got(*unpack(data)) for row, data in _rows(store, RECEIVED)}
    except NO_RECORD as error:
        raise StorageError(
            "The counts of the mail of this shard are damaged. Nothing was changed."
        ) from error
    return posted, got


def read_outbox(store: Store, shard: int) -> Iterator[tuple[int, bytes]]:
    """Numbers and bytes of all letters to *shard* that are in the outbox in *store*."""
    for row, data in _rows(store, row_of(OUTBOX, shard)):
        yield int.from_bytes(row[-8:], "big"), data


def balance_of(store: Store) -> int:
    """Units that the shard in *store* received, minus those that it sent."""
    posted, got = read_counts(store)
    return sum(each.units for each in got.values()) - sum(each.units for each in posted.values())


def _rows(store: Store, beginning: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Rows of ``META`` whose keys begin with *beginning*."""
    end = (int.from_bytes(beginning, "big") + 1).to_bytes(len(beginning), "big")
    return store.scan(Family.META, beginning, end)
