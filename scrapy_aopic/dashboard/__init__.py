"""A page that shows a crawl while it runs, or a stored job, to a browser; and its metrics to a monitoring system.

* :mod:`.feed`: hands snapshots from the crawl to any number of threads
* :mod:`.guard`: who may see the dashboard
* :mod:`.http_server`: HTTP, in threads of its own
* :mod:`.site`: the paths, and what each shows; the points of the charts over time
* :mod:`.report_page`: the page with its data in it, as one file
* :mod:`.serving`: starts the server; serves the crawl of this process, or a stored job, whether a crawl is using it or not

``static/`` has the page: HTML, a style sheet and a module of JavaScript, as they are.

Rule 1: nothing here changes a crawl, but for what ``scrapy aopic control`` does, by the same function. Each request is answered in a thread of its own, which waits for a snapshot. The event
loop only takes that, when a thread waits, and at most once a second.

Rule 2: requests are bounded in size and time, and so is the number of clients. A path is looked up in a table
and never becomes the name of a file.

Rule 3: the server needs Python's library only, so it works with any event loop, with a reactor or without.
"""
