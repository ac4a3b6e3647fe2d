"""Seeds of a job: lists and queues of URLs that it starts with, or that join it while it runs.

* :mod:`.seed_lists`: reads lists of seeds
* :mod:`.public_lists`: reads lists that others publish
* :mod:`.checking`: keeps rows that have been checked, until their list is whole
* :mod:`.adding`: adds lists to a job, whether it runs or not
* :mod:`.server_seeds`: brings lists from a server to the folder of the crawl
* :mod:`.inbox`: takes them up, a few rows at a time
* :mod:`.offsets`: how far each list was taken up, in the commit of its rows
* :mod:`.scrapy_redis`: takes over a crawl of scrapy-redis
* :mod:`.earlier_crawl`: fingerprints of pages that another crawl has fetched
"""
