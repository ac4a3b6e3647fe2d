"""One job in P shards beside the same job in one piece: order, estimates, mail and CPU, on a real graph.

    python benchmarks shards cnr-2000.npz --hosts cnr-2000.pseudo_host.npy [--shards 1 2 8 32] [--workers 1 8]

All shards are in this process, on stores in memory. *Workers* make the same number of fetches each, by turns, as so many
processes would: each has P / workers shards and leases the best page over these. After every ``--commit`` fetches all
shards commit, mail that has landed is carried, and each shard learns the sums of the others; so a link to a page of
another shard is late by one commit, and its acknowledgement by another.

It prints, for each number of shards and workers, means over the seed sets:

==========  ===========================================================================================
gathered    share of PageRank(0.85) gathered, mean over the crawl
same pages  part of the visited pages that the job in one piece visited, too
off         estimates of importance off those of one piece: half the sum of the differences, 0 to 1
known off   the same of the estimates of one piece from another seed set, as a yardstick
top         part of the thousand most important pages that is the same
away        part of the links that lead to another shard
mail        bytes of letters for a visited page
CPU         time for a visited page, with commits and mail, over that of one piece
==========  ===========================================================================================

Every run is audited at the end: each shard, the mail between them, and that all cash is there.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from scrapy_aopic.core import Lease, Link, NotBefore, Shard, ShardId, Sums, audit, host_key, page_key
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.lab.comparison import draw_seed_sets, gather, policy_of
from scrapy_aopic.lab.graphs import Graph, load_graph, pagerank
from scrapy_aopic.storage.memory import MemoryStore

TOP = 1000


@dataclass
class Crawled:
    """What came of a crawl."""

    visited: list[int] = field(default_factory=list)
    importance: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    links: int = 0
    away: int = 0
    mail: int = 0


class Job:
    """A job of *of* shards, dealt to *workers* by turns."""

    def __init__(self, graph: Graph, of: int, workers: int) -> None:
        self.graph = graph
        self.policies = [policy_of({}, "aopic") for _ in range(of)]
        self.stores = [MemoryStore() for _ in range(of)]
        self.shards = [
            Shard(store, policy, 0.0, ShardId(number, of))
            for number, (store, policy) in enumerate(zip(self.stores, self.policies, strict=True))
        ]
        self.workers = [self.shards[number::workers] for number in range(workers)]
        self.links: dict[int, Link] = {}
        self.done = Crawled()

    def link(self, page: int) -> Link:
        found = self.links.get(page)
        if found is None:
            host = self.graph.hosts[page]
            # As long as a URL, as letters are mostly these.
            request = b"https://%s/section/of/the/site/page-%d.html" % (host.encode(), page)
            key = page_key(host_key(host), page.to_bytes(6, "big"))
            found = self.links[page] = Link(key, host, request)
        return found

    def crawl(self, seeds: list[int], fetches: int, commit: int) -> Crawled:
        done, turn = self.done, 0
        number_of = {}
        for page in seeds:
            link = self.link(page)
            number_of[link.key] = page
            self.shards[self.shards[0].shard_of(link.host)].seed(link, 0.0)
        idle = 0
        while len(done.visited) < fetches and idle <= 2 * len(self.workers):
            worker = self.workers[turn % len(self.workers)]
            turn += 1
            begin = time.process_time()
            lease = self.lease(worker)
            done.seconds += time.process_time() - begin
            if lease is None:
                idle += 1
                if idle % len(self.workers) == 0:
                    self.exchange()
                continue
            idle = 0
            shard, found = lease
            page = number_of[found.key]
            targets = self.graph.out_links(page)
            links = [self.link(target) for target in targets]
            for target, link in zip(targets, links, strict=True):
                number_of[link.key] = target
                done.away += len(self.shards) > 1 and shard.shard_of(link.host) != shard.id.number
            done.links += len(links)
            done.visited.append(page)
            begin = time.process_time()
            shard.release(found, 0.0)
            shard.settle(found, links, 0.0)
            done.seconds += time.process_time() - begin
            if len(done.visited) % commit == 0:
                self.exchange()
        for _ in range(3):
            self.exchange()
        self.check()
        for key, page in number_of.items():
            link = self.links[page]
            shard = self.shards[self.shards[0].shard_of(link.host)]
            known = shard.page(key)
            if known is not None:
                done.importance[page] = shard.ledger.importance(known)
        return done

    def lease(self, worker: list[Shard]) -> tuple[Shard, Lease] | None:
        if len(worker) == 1:
            shard = worker[0]
        else:
            ranked = [(best, each.id.number) for each in worker if (best := each.best(0.0)) is not None]
            if not ranked:
                return None
            shard = self.shards[min(ranked)[1]]
        found = shard.lease(0.0)
        assert not isinstance(found, NotBefore), "no host has to wait"
        return (shard, found) if isinstance(found, Lease) else None

    def exchange(self) -> None:
        begin = time.process_time()
        for store, shard in zip(self.stores, self.shards, strict=True):
            store.write(shard.take_changes(0.0), sync=True)
            shard.changes_landed()
        for shard in self.shards:
            for sender, number in shard.mail.received_landed().items():
                self.shards[sender].acknowledged(shard.id.number, number)
        for shard in self.shards:
            for to in shard.mail.waiting():
                letters = shard.letters(to, n=1000)
                self.done.mail += sum(map(len, letters))
                self.shards[to].receive(letters, 0.0)
        sums = [shard.sums for shard in self.shards]
        whole = [sum(each) for each in zip(*sums, strict=True)]
        for shard, own in zip(self.shards, sums, strict=True):
            shard.learn(Sums(*(all_ - part for all_, part in zip(whole, own, strict=True))))
        self.done.seconds += time.process_time() - begin

    def check(self) -> None:
        for store, policy in zip(self.stores, self.policies, strict=True):
            assert audit(store, policy.order).violations == []
        assert audit_shards(self.stores, self.policies[0].domain_of).violations == []


def off(one: Crawled, other: Crawled) -> float:
    """Half the sum of the differences of what two crawls estimate."""
    pages = one.importance.keys() | other.importance.keys()
    return sum(abs(one.importance.get(page, 0) - other.importance.get(page, 0)) for page in pages) / 2


def top(crawled: Crawled) -> set[int]:
    return set(sorted(crawled.importance, key=crawled.importance.__getitem__, reverse=True)[:TOP])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", type=Path)
    parser.add_argument("--hosts", type=Path, help="an .npy file with the number of the host of each page")
    parser.add_argument("--urls", type=Path, help="a file with the URL of each page")
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--fetches", type=int, default=20_000)
    parser.add_argument("--sets", type=int, default=2, help="seed sets")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of a set")
    parser.add_argument("--commit", type=int, default=500, help="fetches of the job between two commits")
    args = parser.parse_args()
    graph = load_graph(args.graph, hosts=args.hosts, urls=args.urls)
    rank = pagerank(graph.indptr, graph.indices)
    rank /= rank.sum()
    fetches = min(args.fetches, len(graph))
    sets = list(draw_seed_sets(graph, args.seeds, args.sets + 1, 1).values())
    *alone, another = [Job(graph, 1, 1).crawl(seeds, fetches, args.commit) for seeds in sets]
    others = [*alone[1:], another]
    yardstick = mean(off(one, other) for one, other in zip(alone, others, strict=True))
    print(
        f"{graph.name}: {len(graph)} pages, {fetches} fetches, {args.sets} seed sets; known off {yardstick:.3f}"
    )
    print("shards workers  gathered  same pages    off    top   away  mail  CPU")
    cases = [(1, 1), *((of, n) for of in args.shards for n in args.workers if n <= of)]
    for of, workers in cases:
        rows = defaultdict(list)
        for seeds, one in zip(sets, alone, strict=False):
            plain = Job(graph, 1, 1).crawl(
                seeds, fetches, args.commit
            )  # beside it, as the machine may slow down
            done = Job(graph, of, workers).crawl(seeds, fetches, args.commit)
            n = len(done.visited)
            rows["gathered"].append(float(gather(done.visited, rank, fetches).mean()))
            rows["same"].append(len(set(done.visited) & set(one.visited)) / n)
            rows["off"].append(off(done, one))
            rows["top"].append(len(top(done) & top(one)) / min(TOP, len(one.importance)))
            rows["away"].append(done.away / max(done.links, 1))
            rows["mail"].append(done.mail / n)
            rows["cpu"].append((done.seconds / n) / (plain.seconds / len(plain.visited)))
        row = {name: mean(values) for name, values in rows.items()}
        print(
            f"{of:6} {workers:7} {row['gathered']:9.3f} {row['same']:11.3f} {row['off']:6.3f} {row['top']:6.3f} "
            f"{row['away']:6.3f} {row['mail']:5.0f} {row['cpu']:4.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
