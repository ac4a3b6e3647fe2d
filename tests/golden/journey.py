"""A crawl of an invented web by dice: it takes a job through all that can be stored, the same way for the same dice.

    python tests/golden/journey.py FOLDER

writes a store of each kind of job to FOLDER, as the code of today writes it. The files beside this one were written so
when their format was new; :mod:`test_golden` shows that later code reads them. They stay as they are; when FORMAT is
raised, new ones take their place.
"""

from __future__ import annotations

import gzip
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.fetched import Fetched
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore, Unlocated
from scrapy_aopic.core.layout import FORMAT
from scrapy_aopic.core.order import ORDERS
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Outcome, TransferResult
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.core.revisits import Recrawl, Version
from scrapy_aopic.core.window import Window
from scrapy_aopic.storage.memory import MemoryStore

NOW = 1_700_000_000.0
N_HOSTS, N_PAGES = 40, 30


def domain_of(host: str) -> str:
    """The last two labels of *host*."""
    return ".".join(host.split(".")[-2:])


def directory_of(request: bytes) -> bytes:
    """One of three on each host, by the last digit of the number of a page."""
    return b"" if request.endswith(b"/0") else b"%d" % (request[-1] % 3)


def purpose_of(request: bytes) -> bytes:
    """One of two: links and seeds have different ones."""
    return request[:5]


def policies() -> dict[str, Policy]:
    """A policy for each kind of job, by its name; together they use every optional part of a record."""
    order = ORDERS["aopic"]()
    order.branch_pages = 2
    plain = Policy(
        order=order,
        domain_of=domain_of,
        directory_of=directory_of,
        purpose_of=purpose_of,
        max_active=12,
        page_cache=50,
    )
    often = Recrawl(min_interval=600.0, max_interval=86_400.0)
    return {
        "plain": plain,
        "recrawl": replace(plain, order=ORDERS["aopic"](), recrawl=often, is_near=True, keep_links=True),
        "grouped": replace(
            plain,
            order=ORDERS["opic"](),
            by_domain=True,
            by_address=True,
            spending="chosen",
            chosen=frozenset({"d1.example"}),
            window=Window(5.0, "fixed"),
        ),
        "batch": replace(plain, order=ORDERS["pagerank"](), connections=8),
    }


class Journey:
    """*crawl*, driven by *dice* through an invented web.

    Attributes:
        now: Seconds since the epoch; it moves on by itself.
        leases: Pages in work.
    """

    def __init__(self, store: Store, policy: Policy, dice: random.Random, now: float = NOW) -> None:
        self.store = store
        self.policy = policy
        self.dice = dice
        self.now = now
        self.crawl = Crawl(store, policy, now)
        self.leases: list[tuple[Lease, bool]] = []

    def link(self, **how: Any) -> Link:
        """A link to some page, more often one of a few."""
        host = f"h{int(N_HOSTS * self.dice.random() ** 2)}"
        host = f"{host}.d{int(host[1:]) % 15}.example"
        number = int(N_PAGES * self.dice.random() ** 2)
        key = page_key(host_key(host), number.to_bytes(4, "big"))
        scheme = "http" if how.get("is_unfiltered") else "https"
        return Link(key, host, f"{scheme}://{host}/{number}".encode(), **how)

    def links(self) -> list[Link]:
        """The links of a page; some have a priority or ask for their page once more."""
        how = [{}] * 11 + [{"shift": -2}, {"again": True}, {"priority": 3}, {"priority": -20_261_128}]
        how.append({"again": True, "is_unfiltered": True})
        return [self.link(**self.dice.choice(how)) for _ in range(self.dice.randrange(12))]

    def run(self, n: int) -> None:
        """Take *n* steps, with a commit now and then."""
        for step in range(n):
            self.now += self.dice.random() * 20
            self.step()
            if step % 25 == 0:
                self.commit()

    def step(self) -> None:
        """Lease a page, or do something for one in work."""
        if self.dice.random() < 0.5 or not self.leases:
            self.take()
            return
        lease, is_released = self.leases.pop(self.dice.randrange(len(self.leases)))
        if not is_released:
            self.transfer(lease)
            self.leases.append((lease, True))
        elif self.dice.random() < 0.05:
            self.crawl.put_back(lease, Link(lease.key, lease.host, lease.request, priority=-1), self.now)
        else:
            self.settle(lease)

    def take(self) -> None:
        lease = self.crawl.lease(self.now)
        if isinstance(lease, Lease):
            self.leases.append((lease, False))
        elif isinstance(lease, Unlocated):
            self.crawl.locate(lease, f"192.0.2.{lease.key[0] % 8}", self.now)
        elif isinstance(lease, Empty) or self.dice.random() < 0.1:
            how = {"again": self.dice.random() < 0.3, "is_unfiltered": self.dice.random() < 0.3}
            self.crawl.seed(self.link(**how), self.now, worth=1.5)
        elif isinstance(lease, NotBefore) and not self.leases:
            self.now = max(self.now, lease.instant)

    def transfer(self, lease: Lease) -> None:
        """The host of *lease* answers, or does not."""
        answers = [Outcome.ANSWER] * 12 + [Outcome.ERROR, Outcome.DOWN, Outcome.OTHER, Outcome.BROKEN]
        host = lease.host
        always = {"h7": Outcome.DOWN, "h9": Outcome.SILENT}.get(host.partition(".")[0])
        outcome = always or self.dice.choice(answers)
        wish = 900.0 if outcome == Outcome.DOWN and self.dice.random() < 0.2 else 0.0
        address = f"192.0.2.{lease.key[0] % 8}" if self.policy.by_address else ""
        seconds = self.dice.random() * (3 if host.startswith("h3") else 0.2)
        self.crawl.transferred(
            host, TransferResult(seconds, outcome, retry_after=wish, at_least=0.0, address=address), self.now
        )
        self.crawl.release(lease, self.now)
        if self.dice.random() < 0.1:
            self.crawl.set_crawl_delay(host, 30.0, self.now)
            self.crawl.allow(host, 1)
        if self.dice.random() < 0.2:
            self.crawl.keep_robots(page_key(host_key(host), b"robots"), self.dice.randbytes(20))

    def settle(self, lease: Lease) -> None:
        """The page of *lease* has been visited."""
        dice, links = self.dice, self.links()
        outcome = dice.choice([""] * 12 + ["redirect", "http 404", "robots.txt"])
        how: dict[str, Any] = {"outcome": outcome, "is_failure": outcome[:1] == "h"}
        if not outcome and dice.random() < 0.5:
            words = " ".join(f"w{dice.randrange(12)}-{n}" for n in range(3)) * 40
            twin = self.crawl.judge(lease, text_of(words.encode(), has_sketch=self.policy.is_near)).first
            if twin and dice.random() < 0.5:
                links = []
        if links and (outcome == "redirect" or dice.random() < 0.1):
            how["same_as"] = links[0].key
        if self.policy.recrawl is not None:
            digest, age = dice.choice([b"old", b"new"]), dice.choice([0.0, 7200.0])
            how["version"] = Version(
                digest.ljust(8), b'"tag"', b"Mon", is_same=lease.visits > 0 and dice.random() < 0.3,
                changed_at=self.now - age if age else 0.0,
            )  # fmt: skip
        if outcome != "robots.txt":
            status = int(outcome[5:] or 200) if outcome[:1] != "r" else 301
            how["fetched"] = Fetched(
                status, dice.choice(["text/html"] * 5 + ["text/plain"]), dice.randrange(200_000)
            )
        self.crawl.settle(lease, links, self.now, Findings(n_links=len(links) + dice.randrange(3), **how))
        if dice.random() < 0.02:
            self.crawl.enrich(lease.key, self.now, 2.0)

    def commit(self, *, is_clean: bool = False) -> None:
        """Write all changes; the store must then hold every invariant."""
        if (rescore := self.crawl.scores.task()) is not None:
            self.crawl.rescored(rescore(), self.now)
        self.store.write(self.crawl.take_changes(self.now, is_clean=is_clean), sync=True)
        self.crawl.changes_landed()
        assert audit(self.store).violations == []

    def finish(self) -> None:
        """Settle everything in work, and commit."""
        for lease, is_released in self.leases:
            if not is_released:
                self.crawl.release(lease, self.now)
            self.crawl.settle(lease, [], self.now)
        self.leases.clear()
        self.commit(is_clean=True)


def rows(store: Store) -> list[list[list[bytes]]]:
    """Everything in *store*: the keys and values of each family."""
    return [[list(pair) for pair in store.scan(family)] for family in Family]


def read(file: Path) -> dict[Family, dict[bytes, bytes]]:
    """The rows in a golden file, as a batch."""
    families = msgspec.msgpack.decode(gzip.decompress(file.read_bytes()))
    return {family: dict(map(tuple, rows)) for family, rows in zip(Family, families, strict=False)}


def main(folder: Path) -> None:
    for name in policies():
        for ending in ("clean", "killed"):
            journey = Journey(MemoryStore(), policies()[name], random.Random(f"{name} {ending}"))
            journey.run(800)
            if ending == "clean":
                journey.finish()
            else:
                journey.commit()
                assert journey.leases, "a killed job has pages in work"
            data = gzip.compress(msgspec.msgpack.encode(rows(journey.store)), mtime=0)
            (folder / f"{FORMAT}-{name}-{ending}.gz").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
