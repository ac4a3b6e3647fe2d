"""Forms: what a new URL of each form costs until its page key is known, the quick way and the slow one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from measure import Runner, cpu
from scrapy.linkextractors import IGNORED_EXTENSIONS
from support.ordinary_urls import slow_way

from scrapy_aopic.web.link_extraction import LinkJoiner
from scrapy_aopic.web.networks import Allowed, Networks
from scrapy_aopic.web.url_keys import key_of_plain_url, key_of_url
from scrapy_aopic.web.urls import Normaliser

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMS = {
    "words": "https://www.site{host}.test/docs/page-{n}.html",
    "a port": "http://www.site{host}.test:54321/docs/page-{n}.html",
    "an address": "http://93.184.216.{host}/docs/page-{n}.html",
    "brackets, colons": "https://www.site{host}.test/wiki/Talk:Page_{n}_(history)",
    "a fragment": "https://www.site{host}.test/docs/page-{n}.html#top",
    "escapes": "https://www.site{host}.test/wiki/Caf%C3%A9_{n}",
    "a parameter": "https://www.site{host}.test/view?id={n}",
    "three parameters": "https://www.site{host}.test/view.php?page={n}&lang=en&cat=books",
    "parameters with escapes": "https://www.site{host}.test/search?q=caf%C3%A9+noir&page={n}",
    "parameters with a URL": "https://www.site{host}.test/login?next=/docs/{n}&lang=en",
    "tracking": "https://www.site{host}.test/a/{n}?utm_source=x&utm_medium=y&id=3",
    "capitals": "HTTP://WWW.Site{host}.test/docs/page-{n}.html",
    "a host in another script": "https://www.b\u00fccher{host}.test/docs/page-{n}.html",
    "a semicolon": "https://www.site{host}.test/a;b={n}",
}
"""URLs of pages; the last form has no quick way."""

_HOSTS = 40
_PARTS = 20


def take(n: int, *, is_slow: bool) -> dict[str, Any]:
    """CPU microseconds of a link with a new URL of each form, joined, judged and given its key: the best of some parts of *n*."""
    page = "http://www.site.test/docs/index.html"
    joiner = LinkJoiner(page, page, "utf-8")
    join = joiner.join_by_all_steps if is_slow else joiner.join
    judge = Normaliser(
        networks=Networks(Allowed()), extensions=frozenset(IGNORED_EXTENSIONS), last_year=2028
    ).judge

    def find(links: Sequence[str]) -> None:
        for link in links:
            normal, _, host = judge(join(link) or "")
            _ = key_of_plain_url(host, normal) if host else key_of_url(normal)

    def best(urls: Sequence[str]) -> float:
        find(urls[:_HOSTS])  # what is known of hosts
        times = []
        for begin in range(0, n, -(-n // _PARTS)):
            some = urls[begin : begin + -(-n // _PARTS)]
            with cpu(len(some)) as found:
                find(some)
            times.append(found["own_us"])
        return min(times)

    with slow_way() if is_slow else nullcontext():
        return {
            name: best([form.format(host=number % _HOSTS, n=number) for number in range(n)])
            for name, form in FORMS.items()
        }


def part(run: Runner) -> None:
    """URLs of each form."""
    quick, slow = run.rounds(*(("forms:take", {"n": 4000, "is_slow": is_slow}) for is_slow in (False, True)))
    for form in FORMS:
        ours, peers = ([found[form] for found in way] for way in (quick, slow))
        run.add_paired("forms", form, "us CPU", ours, peers)
