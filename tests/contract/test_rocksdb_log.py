"""What is at the end of RocksDB's log: a commit that had not landed is cut off, damage is refused."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from support.short_forms import some_of

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import open_snapshot, open_store
from scrapy_aopic.storage.commit_number import forget_landed

pytest.importorskip("rocksdict")

N = 8
BLOCK = 4096


SIZES = {"many blocks": 60_000, "many in a block": 100, "one in a block": 3_000}
one_size = pytest.mark.parametrize("crashed", some_of(SIZES), indirect=True)


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def crashed(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, list[int]]:
    """A store as a kill leaves it after N commits, and where in its log each of them ends."""
    folder, ends = tmp_path / "killed", [0]
    dice = random.Random(1)
    with closing(open_store(tmp_path / "live", "rocksdb")) as store:
        (log,) = (path for path in (tmp_path / "live").glob("*.log"))
        for n in range(N):
            rows = {b"row %d" % n: dice.randbytes(request.param), b"count": b"%d" % (n + 1)}
            store.write({Family.PAGES: rows, Family.META: rows}, sync=True)
            ends.append(log.stat().st_size)
        shutil.copytree(tmp_path / "live", folder)
    return folder, ends


def spoil(folder: Path, begin: int, end: int, data: bytes = b"") -> Path:
    """Put *data* in the place of what is from *begin* to *end* in the log."""
    (log,) = (path for path in folder.glob("*.log") if path.stat().st_size)
    old = log.read_bytes()
    log.write_bytes(old[:begin] + data + old[end:])
    return log


def count(folder: Path) -> int:
    """Commits that are there, as a snapshot says and as the store says."""
    found = []
    for opening in (open_snapshot, open_store):
        with closing(opening(folder)) as store:
            value = store.get_many(Family.META, [b"count"])[0]
            rows = [key for key, _ in store.scan(Family.PAGES) if key != b"count"]
            assert len(rows) == int(value or 0)
            found.append(len(rows))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.slow
@one_size
def test_blocks_that_are_missing_in_a_commit_that_had_not_landed_cost_that_commit_only(crashed, caplog):
    folder, ends = crashed
    begin, end = ends[-2:]
    cuts = sorted({begin, *range(begin - begin % BLOCK + BLOCK, end, BLOCK), end})
    dice = random.Random(2)
    for case in range(12):
        copy = folder.with_name(f"case {case}")
        shutil.copytree(folder, copy)
        forget_landed(copy)  # it had not
        pieces = list(pairwise(cuts))
        for first, last in dice.sample(pieces, dice.randint(1, len(pieces))):
            spoil(copy, first, last, bytes(last - first))
        assert count(copy) == N - 1
        assert count(copy) == N - 1  # and again, once it was opened for writing
    messages = [record.message for record in caplog.records if "is not whole" in record.message]
    assert all("as a power failure leaves one that had not landed" in message for message in messages)


@pytest.mark.slow
@one_size
def test_a_damaged_commit_that_had_landed_is_refused_and_nothing_is_changed(crashed):
    """Each byte of the header of each commit, and some of its rows, is damaged in turn."""
    folder, ends = crashed
    for n in range(N):
        places = {*range(ends[n], ends[n] + 19), *random.Random(n).sample(range(ends[n], ends[n + 1]), 3)}
        for at in sorted(places, key=lambda at: (at * 7919) % 101)[:6]:
            copy = folder.with_name("copy")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            changed = next(folder.glob("*.log")).read_bytes()[at] ^ 0x41
            log = spoil(copy, at, at + 1, bytes([changed]))
            before = log.read_bytes()
            for opening in (open_snapshot, open_store):
                with pytest.raises(StorageError, match=r"is damaged: .* 'scrapy aopic salvage'"):
                    opening(copy)
                assert log.read_bytes() == before


def test_without_the_note_the_commits_behind_it_still_say_that_a_commit_had_landed(crashed):
    folder, ends = crashed
    forget_landed(folder)
    for n in (0, N // 2, N - 2):
        copy = folder.with_name(f"commit {n}")
        shutil.copytree(folder, copy)
        spoil(copy, ends[n] + 4, ends[n] + 6, b"\xff\xff")  # a length that reaches behind the end
        for opening in (open_snapshot, open_store):
            with pytest.raises(StorageError, match=r"commits (behind a damaged one|before its log)"):
                opening(copy)


@pytest.mark.parametrize("left", [0, 10_000_000])
def test_a_log_that_is_empty_or_gone_is_missed(crashed, left):
    folder, _ = crashed
    log = spoil(folder, left, 10_000_000)
    if left:
        log.unlink()
    for opening in (open_snapshot, open_store):
        with pytest.raises(StorageError, match=r"its last commit is number 0, but number \d+ had landed"):
            opening(folder)
