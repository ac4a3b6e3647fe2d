"""Opens the job of a crawl: its settings, its lock, the seeds that it starts from, its store; and releases them."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from scrapy.utils.job import job_dir

from scrapy_aopic.exceptions import ExchangeError, SettingError, StorageError, storage_errors
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.cutting import (
    begin_cut,
    begin_in_folder,
    check_cut,
    check_suffixes,
    new_sharding,
    open_part,
    shards_for,
)
from scrapy_aopic.place.folder_place import (
    FolderPlace,
    check_job_folder,
    seeds_folder,
    store_folder,
    worker_number,
)
from scrapy_aopic.place.seed_files import START
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.place.shard_places import InFolder, ShardPlaces
from scrapy_aopic.place.stored_control import ControlWatch
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.seeds.earlier_crawl import read_earlier_crawl
from scrapy_aopic.seeds.server_seeds import ServerSeeds
from scrapy_aopic.settings import idle_options, read_address, read_policy, read_values, store_memory
from scrapy_aopic.settings.parse import domain
from scrapy_aopic.storage import Address, exists, lock_job
from scrapy_aopic.storage.folder_workers import board_address, clear_board
from scrapy_aopic.storage.lock import Lock, lock_briefly
from scrapy_aopic.storage.registry import SERVER
from scrapy_aopic.view.dropped import FILE_NAME as DROPPED
from scrapy_aopic.view.dropped import Dropped
from scrapy_aopic.view.history import FILE_NAME, History
from scrapy_aopic.view.text import n_of
from scrapy_aopic.web.page_keys import PageKeys

from .compared import compared_by
from .idle_settings import warn_of_idle_queues
from .links.admission import Admission
from .spider_state import StateKeeper
from .topic.given_topic import GivenTopic
from .whose_queue import check_queue
from .worker_link import has_parent

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings, Settings

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.place.place import Place

logger = logging.getLogger(__name__)


def _longest_of(policy: Policy, host: str) -> float:
    """Seconds after a visit within which *policy* wants a page of *host* to be visited again; infinite if it does not."""
    recrawl = policy.recrawl
    return inf if recrawl is None or recrawl.once else recrawl.under(policy.rules.of(host)).max_interval


_FEW_DOMAINS = 16
"""A spider's domains are spread over shards by host if they are fewer than this: chance deals that few unevenly."""


class OpenJob:
    """The job of *crawler*, and what else must be released when it ends.

    Attributes:
        job: The job itself.
        admission: The rules on URLs and content types.
        earlier: Pages that an earlier crawl has fetched, with which the job goes on; ``None`` if there was none.
        persists: Whether what is queued is there in the next run.
        recrawl: How pages are visited again, ``None`` for not at all.
        never_ends: Whether they are for as long as the crawl runs.
        longest_of: Seconds after a visit within which a page of the host with some name is to be visited again.
        compared: Gives what of a response is compared with that of the visit before; ``None`` for its bytes.
        max_wait: Seconds that a crawl waits with nothing else to do (``AOPIC_MAX_WAIT``).
        min_convergence: 1/|H| below which the crawl ends (``AOPIC_MIN_CONVERGENCE``).
        content_seen: When texts count as the same (``AOPIC_CONTENT_SEEN``).
        topic: The topic of the crawl; ``None`` for none.
        reports: Whether a report is printed at the end (``AOPIC_REPORT``).
        place: Where the job is when the run is over; ``None`` if it is gone then.
        history: The history of the crawl; ``None`` if it is not kept.
        dropped: Links that do not reach the queue.
        seeds: The job folder in which seeds wait, or a temporary one; ``None`` if none can.

    Raises:
        SettingError, StorageError: If a setting or the job folder cannot be used; nothing is left open.
    """

    def __init__(self, crawler: Crawler, spider: Spider) -> None:
        self._crawler = crawler
        self._extra = {"spider": spider}
        self._lock: Lock | None = None
        self._job_lock: Lock | None = None  # of a worker that has the folder alone
        self._temporary: TemporaryDirectory[str] | None = None
        self._state: StateKeeper | None = None
        self._server_seeds: ServerSeeds | None = None
        self.control: ControlWatch | None = None
        settings = crawler.settings
        self._values = values = read_values(settings)
        try:
            policy = replace(
                read_policy(values, crawler.spider), has_url_keys=_has_url_keys(crawler), looks_up=True
            )
            warn_of_idle_queues(crawler)
            # reads the public suffix list, a tenth of a second, before anything has to be in time
            policy.domain_of("")
            self.recrawl = how = policy.recrawl
            self.never_ends = how is not None and (not how.once or how.every > 0)
            self.longest_of = partial(_longest_of, policy)
            self.compared = compared_by(how.by, spider) if how is not None else None
            self.admission = Admission(crawler)
            self.max_wait = values.max_wait
            self.min_convergence = values.min_convergence
            self.content_seen = values.content_seen
            self.reports = values.report
            kind, given = values.store, values.topic
            folder = _job_folder(settings)
            self.topic = GivenTopic(given, crawler, folder) if given is not None else None
            self._folders = self._count_folders(folder)
            address = read_address(values, spider.name) if kind == SERVER or self._folders else None
            place = _place_of(folder, address)
            self._number = self._worker_number(folder)
            self._shards, policy = self._check_cut(folder, address, policy, spider)
            self.persists = (folder is not None or address is not None) and kind != "memory"
            self.place = place if self.persists else None
            # Before the seeds that it starts from: they are part of it.
            self._lock = self._take_lock(folder)
            self.seeds = self._give_seeds(folder, address, policy)
            self.earlier, self.bodies_file = read_earlier_crawl(place), place.bodies_file() if place else None
            self.control = self._watch_control(folder, address)
            self.job = self._open_job(folder, policy, address, kind, spider)
        except (SettingError, StorageError):
            self.release()
            StateKeeper.replacing(crawler, None)
            raise
        self.admission.refused = self.job.crawl.counters.refused
        self.dropped = Dropped(
            self._lock.around.where / DROPPED if self._lock is not None and self.persists else None
        )
        self.history: History | None = None
        if self._lock is not None and self.persists and not self._number:
            self.history = History(self._lock.around.where / FILE_NAME)
        self._tell(folder if address is None else None)
        self._state = StateKeeper.replacing(crawler, self._lock)

    def _count_folders(self, folder: Path | None) -> int:
        """Among how many job folders the shards of the job were divided, of which some are, or will be, in *folder*; else 0.

        Raises:
            SettingError: If no shard can be there.
            StorageError: If what is in the folder cannot be read.
        """
        kind, folders = self._values.store, self._values.shards.folders
        if kind not in {SERVER, "memory"} and folder is not None:
            job = FolderPlace(folder)
            if (sharding := job.read_sharding()) is not None:
                check_suffixes(job, sharding)  # a server that has lost the list is told of it again
                return sharding.folders
            if not folders and (part := job.read_part()) is not None:
                raise StorageError(
                    f"The folder {folder} is for shards of the job in {part.job}: set AOPIC_SHARDS as it was, or choose another JOBDIR."
                )
            return folders
        if folders:
            raise SettingError(
                'AOPIC_SHARDS with an "x" is for shards in job folders: set a JOBDIR, and no AOPIC_STORE = "redis" or "memory"; or set '
                "AOPIC_SHARDS to a number."
            )
        return 0

    def _worker_number(self, folder: Path | None) -> int:
        """The number of this worker, if several have the job in *folder*, or could have; else 0."""
        if folder is None or self._values.store in {SERVER, "memory"}:
            return 0
        if self._values.workers > 1 and not worker_number():
            raise SettingError(
                f"AOPIC_WORKERS ({self._values.workers}) is for the commands of Scrapy, with scrapy_aopic.Addon, and for "
                "'scrapy aopic crawl', which start so many processes: set it to 1."
            )
        if number := worker_number():
            if exists(store_folder(folder)):
                raise StorageError(
                    f"The job in {folder} is in one piece, because it began with one worker, and is crawled by one: leave out "
                    f"AOPIC_WORKERS (--workers), or cut it first: 'scrapy aopic salvage {quote(str(folder))} NEW --shards "
                    f"{shards_for(self._values.workers)}' makes NEW, a JOBDIR with which several go on. Nothing was changed."
                )
            return number
        return int(self._folders > 0 or FolderPlace(folder).read_sharding() is not None)

    def _check_cut(
        self, folder: Path | None, address: Address | None, policy: Policy, spider: Spider
    ) -> tuple[int, Policy]:
        """Check that the job may be cut as the settings say; returns its number of shards, and *policy* with what is spread over them.

        Workers of a folder have that with which the job began, unless one is set.
        """
        place, values = _place_of(folder, address), self._values
        if place is not None and (to := place.moved_to()):
            raise StorageError(
                f"The job in {place} was moved to {to}: crawl it there. If that was interrupted, give the same command again. For another job, "
                "choose another place."
            )
        shards = values.shards.n
        if self._number and folder is not None and shards == 1:
            sharding = FolderPlace(folder).read_sharding()
            shards = sharding.shards if sharding is not None else shards_for(values.workers)
        place = place if address is not None or self._number else None
        policy = replace(policy, spread=_spread(place, shards, policy, spider))
        check_cut(place, shards, policy, interval=values.durability, folders=self._folders)
        for idle in idle_options(policy, shards):
            logger.warning(
                "AOPIC_HOST_RULES: %(idle)s, and changes nothing", {"idle": idle}, extra=self._extra
            )
        return shards, policy

    def _take_lock(self, folder: Path | None) -> Lock | None:
        """Lock the job in *folder*; if it has several workers, what is this one's, for whoever has started them has the job."""
        if folder is None:
            return None
        if not self._number:
            return lock_job(store_folder(folder), "crawl")
        if not worker_number():
            self._job_lock = lock_job(store_folder(folder), "crawl")
            clear_board(folder)
        elif not has_parent():  # another command may have begun
            raise StorageError(
                f"The command that started worker {self._number} of the job in {folder} is gone."
            )
        own = store_folder(FolderPlace(folder).of_worker(self._number))
        return lock_briefly(own.with_name(f"{own.name}.lock"), own)

    def _watch_control(self, folder: Path | None, address: Address | None) -> ControlWatch | None:
        """Watch the control settings of the job, if it outlives this run."""
        if address is not None:
            return ControlWatch(ServerPlace(address))
        if folder is not None and self.persists:
            return ControlWatch(self._in(folder))
        return None

    def _in(self, folder: Path) -> FolderPlace:
        """The job *folder*, which this process may have locked."""
        lock = None if self._number else self._lock
        return FolderPlace(folder, lock.around.where if lock is not None else None)

    def _open_job(
        self, folder: Path | None, policy: Policy, address: Address | None, kind: str, spider: Spider
    ) -> Job:
        """Open the job itself, or this process's part of it."""
        values, place = self._values, _place_of(folder, address)
        if self._shards > 1 and place is not None and (sharding := place.read_sharding()) is not None:
            policy = replace(policy, spread=sharding.domains)  # as the worker says that has begun it
        if place is not None and place.has_job():
            check_queue(FolderPlace(folder) if folder is not None and self._folders else place, spider)
        places: ShardPlaces | None = None
        if self._number and folder is not None and self._lock is not None:
            job, memory = FolderPlace(folder), store_memory(values)
            address = address or board_address(folder)
            sharding = job.read_sharding()
            assert sharding is not None, "it has just begun, if it had not"
            places = InFolder(job, address, self._lock, sharding, policy, kind=kind, memory_mb=memory)
        return Job(
            folder,
            policy,
            address=address,
            shards=self._shards,
            places=places,
            lock=self._lock,
            kind=kind,
            interval=values.durability,
            memory_mb=store_memory(values),
            server_seeds=self._server_seeds,
            topic=self.topic.topic.sign if self.topic is not None else None,
        )

    def _give_seeds(self, folder: Path | None, address: Address | None, policy: Policy) -> FolderPlace | None:
        """Let the seeds that the job starts from wait, unless it has begun; returns where seeds wait."""
        source, shards = self._values.seeds, self._shards
        if folder is None:
            if not source and address is None:
                return None
            self._temporary = TemporaryDirectory(prefix="scrapy-aopic-")
            folder = Path(self._temporary.name)
        place = ServerPlace(address) if address is not None else FolderPlace(folder)
        # Before the job begins: a crash from here on leaves a job that knows of them, or none.
        begin = partial(self._put_seeds, source, place)
        sharding = new_sharding(shards, policy, self._folders)
        if address is not None and shards > 1:
            has_begun = not begin_cut(address, sharding, begin)
            if self._folders:
                open_part(FolderPlace(folder), address)
        elif self._number:
            has_begun = not begin_in_folder(FolderPlace(folder), sharding, begin)
        elif not (has_begun := place.has_job()):
            begin()
        if policy.spread and not has_begun:
            logger.info(
                "Each host of %(domains)s may be in another of the %(shards)d shards, so that several workers crawl it",
                {"domains": sharding.spread.replace(" ", ", "), "shards": shards},
                extra=self._extra,
            )
        if has_begun and source:
            logger.info(
                "AOPIC_SEEDS (%(source)s) is not read, because the job in %(folder)s has begun",
                {"source": source, "folder": place},
                extra=self._extra,
            )
        if address is not None:
            self._server_seeds = ServerSeeds(address, seeds_folder(folder))
        return self._in(folder)

    def _put_seeds(self, source: str, place: Place) -> None:
        """Let the seeds of *source*, if it is one, wait for the job that begins at *place*."""
        if not source:
            return
        try:
            added = add_seeds(place, [source], name=START, allowed=self._values.allow_networks)
        except ExchangeError as error:
            raise SettingError(f"AOPIC_SEEDS ({source!r}) cannot be used: {error}") from error
        logger.info(
            "The crawl starts from %(rows)s of %(source)s",
            {"rows": n_of(added.rows, "seed"), "source": source},
            extra=self._extra,
        )

    def _tell(self, folder: Path | None) -> None:
        """Say that a crawl in *folder* does not go on with what another scheduler has left there."""
        if folder is not None and not self.job.crawl.is_resumed and (folder / "requests.queue").exists():
            logger.warning(
                "%(folder)s holds a queue of another scheduler, which is not read; this crawl begins anew.",
                {"folder": folder},
                extra=self._extra,
            )

    def release(self) -> None:
        """Remove what is temporary, and let others have the job, unless the spider's state is still to be written to it."""
        if self._server_seeds is not None:
            self._server_seeds.close()
        if self.control is not None:
            self.control.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        if self._lock is not None and (self._state is None or self._crawler.engine is None):
            self._lock.release()
        if self._job_lock is not None:
            self._job_lock.release()


def _spread(place: Place | None, shards: int, policy: Policy, spider: Spider) -> frozenset[str]:
    """Names of the domains of which each host may be in another of the *shards* of the job at *place*.

    They are as when it began. Then they are those that the rules name, and those that *spider* stays in if they are few, as some
    shards would have no host else, or many more than others.
    """
    if place is None or shards == 1:
        return frozenset()
    if (sharding := place.read_sharding()) is not None:
        return sharding.domains
    named = set()
    for name in getattr(spider, "allowed_domains", None) or getattr(spider, "seed_domains", None) or ():
        with suppress(ValueError, TypeError):
            named.add(policy.domain_of(domain(name)))
    is_few = len(named) < max(shards, _FEW_DOMAINS) and not policy.by_domain
    return policy.rules.spread | (named if is_few else frozenset())


def _has_url_keys(crawler: Crawler) -> bool:
    """Whether *crawler* makes page keys of URLs."""
    assert crawler.request_fingerprinter is not None
    return PageKeys(crawler.request_fingerprinter).are_of_urls


def _job_folder(settings: BaseSettings) -> Path | None:
    """The folder of the job, which is made if need be; ``None`` if it has none.

    Raises:
        StorageError: If there can be none, or it holds the copy of a job in shards.
    """
    if given := settings.get("JOBDIR"):
        check_job_folder(Path(given))
    with storage_errors(f"The job folder {given} cannot be made"):
        path = job_dir(cast("Settings", settings))
    return Path(path) if path else None


def _place_of(folder: Path | None, address: Address | None) -> Place | None:
    """Where the job is; ``None`` if it is in memory only, or in a temporary folder."""
    if address is not None:
        return ServerPlace(address)
    return FolderPlace(folder) if folder is not None else None
