"""All contact with private names of Scrapy and of its download handlers, and no others than these.

What Scrapy 2.16 to 2.19 do not offer in public, and what stands in for it:

* waking the engine when a host becomes ready: :mod:`.engine`;
* the events that a request has left the downloader, and the engine: :mod:`.in_work`;
* an exit code for a crawl that fails after its spider was opened: :mod:`.closing`;
* adding a middleware that the user did not list: :mod:`.middlewares`;
* what callbacks yield to a command of Scrapy's that calls them by itself: :mod:`.direct_calls`;
* a download slot that knows when a transfer started and how it ended, and that decides when the next one may start:
  :mod:`.slots` and :mod:`.transfers`, and what slots of several crawls share, :mod:`.clocks`;
* when data of a transfer came and went: :mod:`.network`, and the connections that tell, :mod:`.connections`;
* the resolver of host names that the downloader uses: :mod:`.addresses`.

The private names of the engine are in :mod:`.private`, as types.
"""
