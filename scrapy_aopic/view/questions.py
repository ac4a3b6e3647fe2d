"""Questions that take a look at the store: answered from a snapshot of it, in the thread that was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_aopic.place.stored_control import read_control

from .domain_spread import top_domains
from .dropped import FILE_NAME, Sample, read_dropped
from .job_view import open_view
from .queries import hosts_by, top_pages
from .shard_states import read_states
from .traps import Trap, find_traps
from .url_settings import CrawlRules
from .why import Explanation, say_dropped
from .why_in_shards import say_control, why_in_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.place.place import Place

    from .snapshot import HostRow

_LONGEST = 8192
"""Characters of a question: more than a URL that is crawled has."""


class Questions:
    """Answers for the job at *job*, in one piece or in shards.

    Args:
        settings: The settings of its crawl, for the rules on URLs.
        dropped: Returns samples of dropped links, ``None`` for none; by default those in the job folder.
    """

    def __init__(
        self,
        job: Place,
        settings: Mapping[Any, Any],
        dropped: Callable[[], Mapping[str, Sample] | None] | None = None,
    ) -> None:
        self._dropped = dropped or self._read_dropped
        self._job = job
        self._settings = settings
        self._rules: CrawlRules | None = None

    def top_pages(self, n: int) -> list[dict[str, Any]]:
        """The *n* most important pages.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return [row._asdict() for row in top_pages(view, n)]

    def top_domains(self, n: int, *, has_importance: bool = False) -> dict[str, Any]:
        """How fetches are spread over domains; see :func:`scrapy_aopic.view.domain_spread.top_domains`.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return top_domains(view, n, has_importance=has_importance)

    def traps(self) -> list[Trap]:
        """Parts of sites that may be traps.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return find_traps(view, str(self._job))

    def hosts(self, kind: str, n: int, part: str) -> list[HostRow]:
        """The *n* hosts that come first of a *kind*, of those with *part* in their names.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return hosts_by(view, kind, n, part)

    def _read_dropped(self) -> Mapping[str, Sample] | None:
        folder = self._job.folder
        return read_dropped(folder / FILE_NAME) if folder is not None else None

    def why(self, question: str) -> Explanation:
        """Why a URL, or a host, is crawled or not.

        Raises:
            StorageError: If the store cannot be read.
            SettingError: If the rules of the crawl cannot be known.
        """
        rules = self._rules = self._rules or CrawlRules(self._settings)
        with open_view(self._job) as view:
            states = read_states(self._job)
            found = why_in_shards(view, question[:_LONGEST], rules, states.workers() if states else None)
        samples = self._dropped()
        if samples is not None:
            say_dropped(found, samples, rules)
        say_control(found, rules, read_control(self._job))
        return found
