"""Origins of a registered domain that have the same pages, such as those with and without ``www``, by http and by https.

An origin is what the caller names for a request: its scheme, host and port. Two of a domain are *mirrors* once
:attr:`.order.Order.mirror_pages` pages of one were merged with pages of the other under the same path and query that had the same
text, links and data, each another text: pages of errors and parked names do not make mirrors. A mirror of a mirror is one, too;
the *main* one of a group is that whose pages stand for those of the others.

A page of a mirror waits in the last front queue of its priority if it was read at another origin of the group, or waits at the
main one (:meth:`.pages.Pages.lower`). Nothing is dropped, so a mistaken mirror only delays.

Rule: what is known of the origins of a domain is in its record (:mod:`.domain`), all hosts of which are in one shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .records import N_FRONT_QUEUES, QUEUED, VISITED, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .domains import Domains
    from .frontier.host_state import HostState

MIRRORED = N_FRONT_QUEUES
"""Front queues by which a page of a mirror waits lower: behind all others."""

_MARK = 4
"""Bytes of the digest of a text by which different ones are counted."""

_READ = ("", "duplicate", "canonical")
"""Outcomes of pages whose content was read."""


class Mirrors:
    """The mirrors of all domains.

    Args:
        enough: Pages of two origins that must be the same.
        origin_of: Name of the origin that a request is for.
        key_at: Key of the page that a request would be for at an origin if it were for nothing but its URL.
    """

    def __init__(
        self,
        domains: Domains,
        enough: int,
        origin_of: Callable[[bytes], str],
        key_at: Callable[[bytes, str], bytes],
    ) -> None:
        self._domains = domains
        self._enough = enough
        self._origin_of = origin_of
        self._key_at = key_at

    def merged(self, domain: bytes, request: bytes, root: bytes, of_root: bytes, words: bytes) -> None:
        """The page of *request* was merged with the page *root*, of the request *of_root*, which is the same and of the same *domain*.

        Args:
            words: Digest of their words.
        """
        origin, main = self._origin_of(request), self._origin_of(of_root)
        if origin != main and self._key_at(request, main) == root:
            self._domains.note_same(domain, origin, main, words[:_MARK], self._enough)

    def is_behind(
        self,
        key: bytes,
        host: HostState,
        request: Callable[[], bytes],
        get_many: Callable[[Sequence[bytes]], list[Page | None]],
    ) -> bool:
        """Whether the page of *request*, under *key*, was read at another origin of its group, or waits at the main one.

        Args:
            get_many: The pages under some keys.
        """
        mains = self._domains.get(self._domains.key(host)).mirrors
        if not mains:
            return False
        data = request()
        origin = self._origin_of(data)
        main = mains.get(origin, origin)
        others = [each for each in (main, *mains) if each != origin and mains.get(each, each) == main]
        if not others or self._key_at(data, origin) != key:
            return False
        pages = get_many([self._key_at(data, each) for each in others])
        waits = origin != main and pages[0] is not None and pages[0].state == QUEUED
        return waits or any(
            page is not None and page.state == VISITED and page.outcome in _READ for page in pages
        )
