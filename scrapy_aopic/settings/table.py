"""Every setting of the package: its name, default, unit, what it must be, and what it means.

1. This is the one place where a setting is written down. What others need follows from it: the checks at the start of a
   crawl, the messages, and the tables of docs/settings.md (``python docs/generate.py``).
2. A default that the core has, too, is read from the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.order import FOCUS, ORDERS, Aopic
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import LONGEST_WAIT
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.core.revisits.found import NAMES
from scrapy_aopic.core.spending import SPENDING
from scrapy_aopic.exceptions import ANY_ERROR, SettingError
from scrapy_aopic.storage.address import LOCK_TIMEOUT, MAX_SHARDS
from scrapy_aopic.web.url_rules import BROAD_RULES, CHANGES, LIMITS, PLAIN_RULES, REFUSALS

from . import parse
from .parse import FLAG, Check, number, one_of, reason, shown, some_of, whole


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting.

    Attributes:
        default: What holds in a broad crawl, as the user would write it.
        check: What a value must be, and what it then means.
        meaning: For the documentation, in Markdown as a page in docs/ has it.
        alone: What holds without the add-on, if it is not the default: a spider of stock Scrapy then gets what it asks for,
            so nothing is refused that Scrapy does not refuse, and no request is added.
    """

    name: str
    default: Any
    check: Check
    meaning: str
    alone: Any = None

    @property
    def unit(self) -> str:
        """The unit of a number; empty if it has none."""
        return self.check.unit

    @property
    def must(self) -> str:
        """What a value must be, as the end of the sentence "... must be"."""
        return self.check.must

    def read(self, settings: Mapping[Any, Any]) -> Any:
        """Its value in *settings*.

        Raises:
            SettingError: If it cannot be used.
        """
        given = settings.get(self.name)
        if given is None:
            given = self.default if self.alone is None else self.alone
        try:
            return self.check.parse(given)
        except ANY_ERROR as error:
            raise SettingError(f"{self.name} ({shown(given)}) must be {self.must}{reason(error)}.") from error


_POLICY = Policy()
_POLITENESS = _POLICY.politeness
_WINDOW = _POLICY.window
_RECRAWL = Recrawl()


def _either(names: Iterable[str]) -> str:
    """*names* as a text has them: one or another."""
    return " or ".join(f'"{name}"' for name in names)


_ENDOWING_ORDERS = _either(name for name, order in ORDERS.items() if order.uses_endowments)
_ENDOWING = _either(name for name, spending in SPENDING.items() if spending.endows)

_ORDER = (
    Setting(
        "AOPIC_ORDER",
        "aopic",
        Check(
            f"one of {', '.join(ORDERS)}, or the import path of a subclass of scrapy_aopic.core.order.Order",
            parse.order,
        ),
        "Which page is next; see [Order](order.md). "
        "A job keeps the order that it began with: another one is refused (`aopic_storage`), and nothing is changed. "
        '"pagerank" and "hits" need numpy.',
    ),
    Setting(
        "AOPIC_DOMAIN_BUDGET",
        Aopic.budget,
        number(0, 1, unit="part"),
        "Part of all fetches that a registered domain may take if one other domain links to it; with more such domains it may take more. "
        "Pages over the budget are deferred, not dropped ([the default order](order.md#the-default)). 0 for no budgets. "
        'Only for the orders "aopic" and "focused", where it is divided by 1 - `AOPIC_FOCUS`.',
    ),
    Setting(
        "AOPIC_VIRTUAL_SHARE",
        _POLICY.share,
        Check('a number from 0 to 1, or "equal" for 1/(links + 1)', parse.share, unit="part"),
        "Part of each distribution that goes to the virtual page. "
        'With 0.15, importance tends to PageRank with a damping factor of 0.85; "equal" is the share of the paper.',
    ),
    Setting(
        "AOPIC_VIRTUAL_SPENDING",
        _POLICY.spending,
        Check(
            ", ".join(f'"{name}"' for name, each in SPENDING.items() if not each.needs_chosen)
            + ' or chosen domains, such as {"chosen": ["example.com", "example.org"]}',
            parse.spending,
        ),
        "What the virtual page spends its cash on. "
        f"{'; '.join(f'{_either([name])}: {each.on}' for name, each in SPENDING.items())}. "
        "Whether a page belongs to a chosen domain, or host, is decided when it is found.",
    ),
    Setting(
        "AOPIC_ENDOWMENT",
        _POLICY.endowment,
        number(0, 1_000_000, unit="seeds' cash"),
        "Cash that the virtual page adds to what a visited page distributes; it falls with the visited pages of the registered domain. "
        "0 for none, as in plain OPIC; without effect unless `AOPIC_ORDER` is "
        f"{_ENDOWING_ORDERS} and `AOPIC_VIRTUAL_SPENDING` is {_ENDOWING}.",
    ),
    Setting(
        "AOPIC_LINK_WEIGHTS",
        "equal",
        Check(
            '"equal", weights such as "internal=1, external=2, nofollow=0", or the import path of a function of the '
            "request and the response",
            parse.weights,
        ),
        "How a page's cash is shared among its links; see [below](#link-weights).",
    ),
    Setting(
        "AOPIC_WINDOW",
        int(_WINDOW.size),
        Check(
            'a number of turns such as 8, or a time such as "36 hours" or "4 months"',
            parse.window,
            unit="turns, time or visits",
        ),
        "How much of a page's past counts as its history, for crawls that revisit pages: in one turn, as much cash is distributed "
        "as all pages hold. For the variable window it is a whole number of visits. See [windows](internals.md#windows).",
    ),
    Setting(
        "AOPIC_WINDOW_KIND",
        _WINDOW.kind,
        one_of("interpolation", "fixed", "variable", "ewma"),
        "How the history is estimated: from one number a page, interpolated or as a weighted mean of rates, from every visit in the "
        'window ("fixed"), or from the last visits ("variable").',
    ),
    Setting(
        "AOPIC_KEEP_LINKS",
        _POLICY.keep_links,
        FLAG,
        "Whether the links of each visited page are kept for `scrapy aopic export --links`: 16 bytes a link on the disk, "
        'before compression. They are always kept with `AOPIC_RECRAWL` and with the orders "pagerank" and "hits".',
    ),
    Setting(
        "AOPIC_SEEDS",
        "",
        Check("the path of a list of seeds", parse.path),
        "[List of seeds](first-crawl.md#start-from-known-importances), with or without scores, that a job starts from in "
        "addition to the spider's own. It is read when the job begins, not when it is resumed.",
    ),
)

_RECRAWLING = (
    Setting(
        "AOPIC_RECRAWL",
        False,
        Check(
            'True, False, or the shortest and the longest time between two visits of a page, such as ["1 day", "90 days"]; '
            'with words among them, or alone: "once", "every", "changed", "gone", a share such as "20 %", and "text", "main text", "spider.NAME" or a function of a response',
            parse.recrawl,
        ),
        "Whether visited pages are revisited, for as long as the crawl runs, and how often; see [below](#recrawling). "
        "True for a day to 90 days. "
        '"once" and "every" make [rounds](#rounds); with "changed", callbacks get [only what changed](#only-what-changed), with "gone" pages that are gone. '
        "A share is the most of the fetches that revisits may be while new pages wait, half without one. "
        "The other words and functions say [what is compared](#what-is-compared).",
    ),
    Setting(
        "AOPIC_MIN_CONVERGENCE",
        0.0,
        number(0, 1, unit="1/turns"),
        "The crawl ends (`aopic_convergence`) when `aopic/cash/convergence`, 1/|H|, is less than this: 0.01 is after 100 "
        "turns. The job remembers its pages, and goes on with a smaller one. 0 for no such end; see "
        "[windows](internals.md#windows).",
    ),
)

_POLITE = (
    Setting(
        "AOPIC_POLITENESS_FACTOR",
        _POLITENESS.factor,
        number(0, 1_000_000, unit="times"),
        "The gap after a transfer, as a multiple of the time that the transfer took.",
    ),
    Setting(
        "AOPIC_MIN_GAP",
        _POLITENESS.min_gap,
        number(0, 86_400, of="seconds"),
        "Shortest gap between the end of a transfer from a host and the next request to it. `DOWNLOAD_DELAY` is a lower bound, too.",
    ),
    Setting(
        "AOPIC_MAX_GAP",
        _POLITENESS.max_gap,
        number(0, 86_400, of="seconds"),
        "Longest gap that a slow transfer causes. `AOPIC_MIN_GAP` holds even if it is longer.",
    ),
    Setting(
        "AOPIC_PAGE_SECONDS",
        1.0,
        number(0, 86_400, of="seconds"),
        "Time of the processor after which the rest of a page's links is left out, so that no page holds up the others "
        "([what answers cost](politeness.md#what-answers-cost)). 0 for any time.",
        alone=0.0,
    ),
    Setting(
        "AOPIC_FAST_DOWNLOADS",
        True,
        FLAG,
        "Make plain requests without most of what Scrapy and Twisted do for each ([fast downloads](speed.md#fast-downloads)).",
    ),
    Setting(
        "AOPIC_POLITENESS_KEY",
        "host",
        Check('some of host, domain, address, proxies, such as "host+address"', parse.keys),
        "Scope of politeness: one request at a time, and then the gap, for each host; optionally also for each registered "
        "domain or network address. With `proxies`, what a host asks of one proxy holds for all ([politeness](politeness.md#several-proxies)).",
    ),
    Setting(
        "AOPIC_HOST_RULES",
        {},
        Check(
            'a mapping such as {"example.com": {"min_gap": 5, "revisit": "1 hour"}}, or a file with one as JSON',
            parse.host_rules,
        ),
        "[Options of single hosts](politeness.md#options-of-single-hosts), by name, domain or pattern.",
    ),
    Setting(
        "AOPIC_BACKOFF",
        _POLITENESS.backoff,
        number(0, 86_400, of="seconds"),
        "Shortest gap after an error of a host, and shortest wait for an origin that does not respond. It doubles with each further "
        "one in a row. 0 to ignore errors ([politeness](politeness.md#failures)).",
    ),
    Setting(
        "AOPIC_MAX_BACKOFF",
        _POLITENESS.max_backoff,
        number(0, LONGEST_WAIT, of="seconds"),
        "Longest gap, or wait, that errors cause, or that a host asks for by `Retry-After` or `Crawl-delay`.",
    ),
    Setting(
        "AOPIC_LATER_TRIES",
        4,
        whole(0, 100, of="tries"),
        "How often a page is tried again that its server had an error for (status 5xx) at its first visit and at `RETRY_TIMES` "
        "retries: each time behind more of the host's other pages ([politeness](politeness.md#failures)).",
        alone=0,
    ),
    Setting(
        "AOPIC_MAX_WAIT",
        3600.0,
        number(0, 10_000_000, of="seconds"),
        "Longest time that a crawl waits when every host that has pages is in its gap. Also the longest pause after which an "
        "unreachable [robots.txt](robots.md#what-a-response-means) is tried again before its pages fail. "
        "If it would be longer, the crawl [closes](politeness.md#nothing-else-to-do). "
        "0 for any time; without effect on `AOPIC_RECRAWL`.",
    ),
)

_ROBOTS = (
    Setting(
        "AOPIC_PAGE_ROBOTS",
        ("nofollow", "noindex"),
        some_of("nofollow", "noindex"),
        "What is obeyed of [marks for robots](robots.md#marks-on-pages) on pages: `nofollow`, links of the page are not followed; "
        "`noindex`, `scrapy_aopic.BroadSpider` yields no item for it. For `rel` of links see `AOPIC_LINK_WEIGHTS`.",
        alone=(),
    ),
    Setting(
        "AOPIC_CONTENT_USAGE",
        {},
        Check(
            'a mapping such as {"train-ai": "obey", "tdm": "skip"}, of train-ai, search or tdm', parse.uses
        ),
        "For which [uses](robots.md#use-of-content) of content the wishes of its owners are obeyed. `obey`: no item of such a page; "
        "`skip`: no callback gets it. `tdmrep.json=fetch` reads this file of each host.",
    ),
    Setting(
        "AOPIC_SITEMAPS",
        False,
        FLAG,
        "Whether the [sitemaps](robots.md#sitemaps) that a robots.txt names are seeds, and the pages in them their links.",
    ),
)

_STORAGE = (
    Setting(
        "AOPIC_STORE",
        "auto",
        Check('"auto", "rocksdb", "sqlite", "redis", "memory" or the import path of a backend', parse.store),
        "Where the crawl is remembered. "
        '"auto" is the kind that is already in the job folder; in a new one RocksDB, or SQLite if rocksdict cannot be '
        "imported. "
        '"redis" is a Redis or Valkey server, which `REDIS_URL` and `REDIS_PARAMS` name; see [Many machines](many-machines.md). '
        '"memory" keeps nothing, whatever `JOBDIR` says. '
        "[Stores](#stores) says what each is good for.",
    ),
    Setting(
        "AOPIC_REDIS_KEY",
        "aopic:%(spider)s",
        Check("a text without spaces and braces of at most 150 characters", parse.redis_key),
        'What the keys of the job in Redis begin with: its name there, if `AOPIC_STORE` is "redis". '
        "`%(spider)s` is the name of the spider.",
    ),
    Setting(
        "AOPIC_SHARDS",
        1,
        Check(f'a whole number from 1 to {MAX_SHARDS}, or two such as "4x8"', parse.shards),
        'Number of shards of a job, for several processes to crawl: with `AOPIC_WORKERS` or `AOPIC_STORE` = "redis". '
        'Or folders and shards in each, such as "4x8", for machines with a job folder each; the server that `REDIS_URL` names then has '
        "only the mail between them. "
        "No more processes than shards have something to do; "
        "[`salvage --shards`](commands.md#salvage) gives a job another number; see "
        "[Many machines](many-machines.md#several-workers).",
    ),
    Setting(
        "AOPIC_WORKERS",
        1,
        Check('a whole number from 1 to 64, or "auto"', parse.workers),
        "Number of processes of this machine that crawl one job in its job folder, by one command: as many as you want to use "
        'cores, or "auto" for all of them. '
        "A job for several begins with two shards for each, and for each core up to eight, or `AOPIC_SHARDS`, which may be its workers later; "
        "see [Several cores](many-machines.md#several-cores).",
    ),
    Setting(
        "AOPIC_REDIS_LOCK_TIMEOUT",
        LOCK_TIMEOUT,
        number(0.3, 3600, of="seconds"),
        "How long a job in Redis stays with a process that has died, and how long the server may be out of reach before a crawl stops. "
        "The next crawl waits that long at most.",
    ),
    Setting(
        "AOPIC_DURABILITY",
        500,
        Check(
            '"page", "close" or a number of milliseconds from 1 to 60,000',
            parse.durability,
            unit="milliseconds",
        ),
        "How soon finished work is on the disk: one commit right after another, within about this time (group commit), "
        "or when the crawl closes; see [below](#durability). "
        "Work that a crash undoes is done again; no page is lost.",
    ),
    Setting(
        "AOPIC_MEMORY_MB",
        256,
        whole(16, 10_000_000, of="megabytes"),
        "Memory for the state of the crawl, however much of it is on the disk. The process should take at most 340 MB more; see [below](#memory).",
    ),
)

_LINKS = (
    Setting(
        "AOPIC_URL_RULES",
        BROAD_RULES,
        Check(
            f"some of {', '.join((*CHANGES, *REFUSALS))}; or what is different from the default, such as "
            '"+sort, -fragment"',
            parse.url_rules,
        ),
        "[Rules](urls.md#rules-that-change-a-url) that put URLs of links into a normal form, or refuse them.",
        alone=PLAIN_RULES,
    ),
    Setting(
        "AOPIC_URL_REWRITE",
        (),
        Check(
            "a list of pairs of a regular expression and its replacement, or the import path of a function of a URL that "
            "returns one, or None to refuse it",
            parse.rewrite,
        ),
        "[Your own rules](urls.md#your-own-rules) on URLs, applied after the others.",
    ),
    Setting(
        "AOPIC_URL_LIMITS",
        {"length": 2083, "depth": 20, "repeats": 3, "parameters": 20, "links": 50_000},
        Check(f'limits such as "depth=30, repeats=0", of {", ".join((*LIMITS, "links"))}', parse.url_limits),
        "Bounds of links: characters of a URL, segments of its path, how often segments may repeat, parameters of its query, and links "
        "of one page ([each](urls.md#why-a-url-is-refused)). "
        "What you do not name keeps its default; 0 is for any number. Scrapy's `URLLENGTH_LIMIT` also holds for links.",
        alone={},
    ),
    Setting(
        "AOPIC_SCOPE",
        {},
        Check(
            'a mapping such as {"allow": ["example.org", "ac.uk"], "deny": "blocked.txt", "deny_urls": ["/login"]}, or a file '
            "with one as JSON",
            parse.scope,
        ),
        "Which links are followed, by hosts, URLs and languages; see [Scope](urls.md#scope).",
    ),
    Setting(
        "AOPIC_CONTENT_TYPES",
        ("text/html", "text/plain", "text/xml", "application/xml", "application/*+xml"),
        Check('a list of content types such as ["text/*", "application/xml"]', parse.types),
        "Responses to links with any other content type are not read, and their pages count as failed. "
        "Empty to read all types.",
        alone=(),
    ),
)

_SAFETY = (
    Setting(
        "AOPIC_ALLOW_NETWORKS",
        (),
        Check(
            '"all", or a list of networks, addresses, names and ports such as ["10.0.0.0/8", "fd00::/8", '
            '"intranet.example.com", ":10080"], or a file with one a line',
            parse.networks,
        ),
        "Networks and hosts that a crawl may connect to beside the Internet; see [Safety](safety.md).",
        alone="all",
    ),
    Setting(
        "AOPIC_IDENTITY",
        "",
        Check(
            "a file that `scrapy aopic identity new` has written, for its owner alone to read", parse.identity
        ),
        "[Signs](contact.md#signed-requests) each request, those for robots.txt and after redirects too, so that a server can "
        "tell who crawls. Empty for no signatures.",
    ),
)

_CONTENT = (
    Setting(
        "AOPIC_CONTENT_SEEN",
        "exact",
        one_of("off", "follow", "exact", "near"),
        "Which pages are [duplicates](content.md#duplicates): none; those with the text and the links of a known page; or "
        'also those with nearly the same text. The links of duplicates are not followed, except with "follow", which is '
        '"exact" otherwise.',
        alone="follow",
    ),
    Setting(
        "AOPIC_CANONICAL",
        "domain",
        one_of("off", "known", "domain", "any"),
        'Which [`rel="canonical"`](content.md#canonical-pages) links count: none; those to a known page with the same '
        "words; those to any page of the same registered domain, which is then fetched, too; or all.",
        alone="known",
    ),
)

_COMPONENTS = (
    Setting(
        "AOPIC_DUPEFILTER",
        "exact",
        one_of("exact", "bloom"),
        "How `scrapy_aopic.DupeFilter` remembers fingerprints beside another scheduler: exactly, on the disk, or in a "
        "[Bloom filter](#the-bloom-mode).",
    ),
    Setting(
        "AOPIC_ITEM_FIELDS",
        ("importance",),
        some_of("importance", "cash", "history", "visits", "duplicate_of", "relevance", *NAMES),
        "Fields that `scrapy_aopic.ImportancePipeline` adds to items whose class allows them; `scrapy aopic crawl` adds importance "
        "and visits unless this is set.",
    ),
    Setting(
        "AOPIC_WARC_FILE",
        "crawls/%(name)s-%(time)s.warc.gz",
        Check(
            "the path of a file with nothing to fill in but %(name)s and %(time)s; a percent sign is written %%",
            parse.template,
        ),
        "Where `scrapy_aopic.PagesPipeline` writes what was fetched; `%(name)s` is the name of the spider, `%(time)s` the "
        "start of the crawl. Without the ending `.gz` it is not compressed.",
    ),
    Setting(
        "AOPIC_REPORT",
        False,
        FLAG,
        "Whether a report is printed when the crawl closes: how it ended, the most important pages, what to do next, and "
        "an audit if there are at most 300,000 pages.",
    ),
)

_DASHBOARD = (
    Setting(
        "AOPIC_DASHBOARD",
        False,
        Check(
            'True, False, a port as a whole number from 2 to 65,535, or a text such as "127.0.0.1:6810"',
            parse.listen,
        ),
        "Whether a [dashboard](dashboard.md) shows the crawl to your browser while it runs; the log shows its address. "
        "True for the first free port from 6810 to 6829 on this machine, port 0 for any free one. "
        "An address that other machines can reach needs an `AOPIC_DASHBOARD_TOKEN`.",
    ),
    Setting(
        "AOPIC_DASHBOARD_TOKEN",
        "auto",
        Check('"auto", or 16 to 128 letters, digits and the signs . _ ~ -', parse.token),
        'What a visitor of the dashboard has to know; it is in the address that the log shows. "auto" for a random one in '
        "each run. Programs send it as `Authorization: Bearer TOKEN`.",
    ),
)

_TOPIC = (
    Setting(
        "AOPIC_TOPIC",
        None,
        Check(
            'a dictionary such as {"keywords": ["database", "sql"]}, {"positive": "pages/yes", "negative": "pages/no"}, '
            'one without "negative", {"model": "topic.aopic"} or {"function": "project.module.grade"}, the same as JSON, or "items"',
            parse.topic,
        ),
        "The topic to which pages are to be relevant, in any order; see [Focused crawling](focused.md#the-topic). "
        '"items": a page is relevant if its callback yields an item. `None` for no topic.',
    ),
    Setting(
        "AOPIC_TOKENIZER",
        None,
        Check("the import path of a function of a text that gives its words", parse.tokenizer),
        "Cuts page text, link text and keywords of a topic into words; a model that was trained with another one is refused. "
        "`None` for the package's own: words of any script, without a dictionary.",
    ),
    Setting(
        "AOPIC_FOCUS",
        FOCUS,
        number(0, 1, unit="part"),
        'How much the topic counts in the order "focused": 0 for the order of "aopic", 1 for nothing but the topic.',
    ),
    Setting(
        "AOPIC_LINK_SCORER",
        "contextual",
        Check(
            f"one of {', '.join(STRATEGIES)}, or the import path of a function of a page and its links, of a class of "
            "such, or of a strategy",
            parse.link_scorer,
        ),
        'Strategy that values links before their pages are known, in the order "focused"; see '
        '[Strategies](focused.md#strategies). "ata-paper" and "jlse-paper" need stopwordsiso.',
    ),
    Setting(
        "AOPIC_MIN_HARVEST",
        0.0,
        number(0, 1, unit="part"),
        "The crawl ends (`aopic_harvest`) when a smaller part of the last 500 pages is relevant to the topic. "
        "Queued pages stay queued, so that it can be resumed. 0 to never end for this.",
    ),
)

SECTIONS: dict[str, tuple[Setting, ...]] = {
    "order": _ORDER,
    "topic": _TOPIC,
    "recrawl": _RECRAWLING,
    "politeness": _POLITE,
    "robots": _ROBOTS,
    "safety": _SAFETY,
    "storage": _STORAGE,
    "links": _LINKS,
    "content": _CONTENT,
    "dashboard": _DASHBOARD,
    "components": _COMPONENTS,
}
"""All settings, as docs/settings.md groups them."""

SETTINGS: dict[str, Setting] = {setting.name: setting for section in SECTIONS.values() for setting in section}
"""All settings by name."""


def read(settings: Mapping[Any, Any], name: str) -> Any:
    """Checked value of the setting *name* in *settings*: Scrapy's, or any mapping.

    Raises:
        SettingError: If it cannot be used.
    """
    return SETTINGS[name].read(settings)


def page_of(error: SettingError) -> str:
    """The page of the docs, and the place on it, of the setting with which the message of *error* begins."""
    name = str(error).partition(" ")[0]
    return f"settings#{name.lower()}" if name in SETTINGS else "settings"
