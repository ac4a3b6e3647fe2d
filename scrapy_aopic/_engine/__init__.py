"""All contact with private names of Scrapy and of its download handlers.

What Scrapy 2.16 to 2.19 does not offer in public, and where it is touched instead:

* the running engine, what it is done with and when it asks for more: :mod:`.engine`;
* an exit code for a crawl that fails after its spider was opened: :mod:`.closing`;
* adding a middleware that the user did not list: :mod:`.middlewares`;
* a download slot that knows when a transfer started and how it ended, and that is asked before each start:
  :mod:`.slots`, :mod:`.transfers`, and what slots share, :mod:`.clocks`;
* connections, when their data came and went: :mod:`.network`;
* the resolver of host names that the downloader uses: :mod:`.addresses`.
"""
