"""Scrapy's commands, each as a process."""

from __future__ import annotations

from functools import partial

from scrapy import Spider

from scrapy_aopic import Links

from .listing import ADDON, FIRST, SHOP, Differs, pattern, title

command = partial(pattern, "Commands")
PROCESS = {"ways": ("add-on",), "reason": "exit code 0"}


@command(
    '`scrapy shell URL -c "..."`',
    ["item 1"],
    command=["shell", f"{SHOP}/item/1", "-c", "response.css('title::text').get()"],
    **PROCESS,
)
class Shell(Spider):
    pass


@command(
    "`scrapy parse URL -c CALLBACK --depth 2`",
    [
        "# Requests  -----------------------------------------------------------------",
        "# Scraped Items  ------------------------------------------------------------",
        ">>> STATUS DEPTH LEVEL 2 <<<",
        "[]",
        "[{'title': 'page 1'}, {'title': 'item 1'}]",
    ],
    command=["parse", FIRST[0], "--spider", "parse", "-c", "parse", "--depth", "2", "--nocolour"],
    **PROCESS,
)
class Parse(Spider):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item)

    def parse_item(self, response):
        yield title(response)


@command("`scrapy check SPIDER`, by contracts", [], command=["check", "check"], **PROCESS)
class Check(Spider):
    def parse(self, response):
        """Look at a list.

        @url http://shop.test/page/1
        @returns items 1 1
        @returns requests 1 1
        @scrapes title
        """
        yield title(response)
        yield response.follow("/item/1")


@command(
    "the same, if a contract is not kept",
    [],
    command=["check", "check-fails"],
    **{**PROCESS, "reason": "exit code 1"},
)
class CheckFails(Spider):
    def parse(self, response):
        """Look at a list.

        @url http://shop.test/page/1
        @returns items 2 2
        """
        yield title(response)


@command(
    "`scrapy parse URL` of a spider that yields `scrapy_aopic.Links`",
    [
        "# Requests  -----------------------------------------------------------------",
        "# Scraped Items  ------------------------------------------------------------",
        ">>> STATUS DEPTH LEVEL 1 <<<",
        "[{'title': 'page 1'},",
        f" {{'links': ['{SHOP}/item/1', '{SHOP}/page/2'],",
        f"  'url': '{FIRST[0]}'}}]",
        "[]",
    ],
    command=["parse", FIRST[0], "--spider", "parse-links", "--nocolour"],
    differs=[
        Differs(
            ADDON,
            "`LinkMiddleware` makes requests of them. Without it `Links` are an item with the URLs.",
            {
                "items": sorted(
                    [
                        "# Requests  -----------------------------------------------------------------",
                        "# Scraped Items  ------------------------------------------------------------",
                        ">>> STATUS DEPTH LEVEL 1 <<<",
                        f"[<GET {SHOP}/item/1>, <GET {SHOP}/page/2>]",
                        "[{'title': 'page 1'}]",
                    ],
                    key=repr,
                )
            },
        )
    ],
    **PROCESS,
)
class ParseLinks(Spider):
    def parse(self, response):
        yield title(response)
        yield Links(response)
