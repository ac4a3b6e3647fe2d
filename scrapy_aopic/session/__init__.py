"""A crawl inside Scrapy: which requests came in and went out, what became of them, and which hosts must wait.

It stands between Scrapy's classes (the scheduler, the middlewares) and the job. No user's setting names anything here.

* :mod:`.session`: the crawl, with a picture of the rest
* :mod:`.open_job`: opens the job of a crawl, and releases it
* :mod:`.intake`: requests come in
* :mod:`.seeding`: seeds come in while the crawl runs
* :mod:`.sitemap_requests`: sitemaps come in
* :mod:`.links`: links of a page come in
* :mod:`.queued`: requests as bytes, in the queue and back; whether a page that failed waits for another try
* :mod:`.dispatch`: requests go out, and end
* :mod:`.visit`: a page in work, and how its visit ended
* :mod:`.latest_failures`: the visits that ended and that failed last, in memory only: a stored job has none
* :mod:`.responses`: reads what a response says of its page
* :mod:`.compared`: what of a page is compared with that of the visit before
* :mod:`.conditional`: requests that ask only for what has changed
* :mod:`.page_robots`: obeys what pages ask of robots, and leaves out pages in other languages
* :mod:`.topic`: grades pages, values links
* :mod:`.costs`: what answers take of the processor, which is charged to their hosts
* :mod:`.pacer`: how long each host is left alone
* :mod:`.idle_settings`: which settings change nothing
* :mod:`.parts`: what the parts of a session share
* :mod:`.reloads`: pages that lead to themselves
* :mod:`.redirect_cookies`: cookies of redirect chains
* :mod:`.outage_detector`: whether any host can be reached
* :mod:`.waits_and_ends`: what ends a crawl that could go on, and what its requests wait for
* :mod:`.lateness`: how late the event loop is
* :mod:`.time_slices`: long work in short slices of time
* :mod:`.bodies`: which bodies and pages are in memory
* :mod:`.footprint`: the memory of the process
* :mod:`.steering`: puts an operator's orders into force
* :mod:`.estimates`: importance of pages, for pipelines
* :mod:`.whose_queue`: whether the spider can make what waits
* :mod:`.worker_link`: what a worker tells the process that has started it
* :mod:`.spider_state`: ``spider.state`` in the job
* :mod:`.stats`: counts, and logs once
* :mod:`.error_handler`: errors in calls of the engine
"""
