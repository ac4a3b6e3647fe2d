"""Seeds of a job: lists and queues of URLs that it starts with, or that join it while it runs.

* :mod:`.seed_lists`: reads lists of seeds
* :mod:`.folder_seeds`: lists that wait in a job folder
* :mod:`.server_seeds`: lists that wait on a server
* :mod:`.inbox`: takes them up, a few rows at a time
* :mod:`.offsets`: how far each list was taken up, in the commit of its rows
* :mod:`.scrapy_redis`: takes over a crawl of scrapy-redis
* :mod:`.earlier_crawl`: fingerprints of pages that another crawl has fetched
"""
