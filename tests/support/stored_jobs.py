"""Jobs in folders without a crawl of Scrapy: made in a moment, and read row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, host_key, pack, page_key
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_snapshot, open_store


def link(host: str, number: int) -> Link:
    key = page_key(host_key(host), number.to_bytes(4, "big"))
    return Link(key, host, pack({"url": f"http://{host}/{number}"}))


def make_job(folder: Path, store: str, pages: int = 0, *links: Link) -> None:
    """A closed job with so many pages on fifty hosts, and those of *links*, as seeds."""
    opened = open_store(store_folder(folder), store)
    job = Crawl(opened, Policy(), 0.0)
    for each in (*(link(f"h{n % 50}", n) for n in range(pages)), *links):
        job.seed(each, 0.0)
    opened.write(job.take_changes(0.0, is_clean=True), sync=True)
    opened.close()


def rows(folder: Path) -> list[Any]:
    store = open_snapshot(store_folder(folder))
    try:
        return [list(store.scan(family)) for family in Family]
    finally:
        store.close()
