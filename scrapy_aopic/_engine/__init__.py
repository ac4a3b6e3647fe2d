"""All contact with private names of Scrapy and of its download handlers; nothing outside uses any.

Scrapy 2.16 to 2.19 do not offer these in public:

* :mod:`.private`: the private names of the engine, as types
* :mod:`.engine`: waking the engine when a host becomes ready
* :mod:`.in_work`: events for a request that has left the downloader, or the engine
* :mod:`.closing`: an exit code for a crawl that fails after its spider was opened
* :mod:`.middlewares`: adding a middleware that the user did not list
* :mod:`.callback_tasks`: the tasks that process what a callback yields
* :mod:`.direct_calls`: what a callback yields if a command of Scrapy's calls it
* :mod:`.direct_requests`: what Scrapy's middlewares do to a link, without the request
* :mod:`.feeds`: emptying the buffers of feeds before a commit
* :mod:`.slots`: download slots that make one transfer at a time, with a gap after each
* :mod:`.transfers`: the transfers of a slot, and how each ended
* :mod:`.network`: when data of a transfer came and went
* :mod:`.connections`: the connections that report this
* :mod:`.framing`: the chunks of bodies, in one pass over each read
* :mod:`.fast_downloads`: a download handler for plain requests on these connections
* :mod:`.addresses`: the resolver of host names
* :mod:`.name_lookups`: names that are looked up, hundreds at a time
* :mod:`.open_files`: how many more connections there may be
* :mod:`.loop`: coroutines and calls in the event loop that Scrapy runs
* :mod:`.process_memory`: memory that is given back to the system
"""
