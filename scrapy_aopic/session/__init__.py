"""A crawl inside Scrapy: which requests came in and went out, what became of them, and which hosts are waited for.

It stands between Scrapy's classes (the scheduler, the middlewares) and the job. :mod:`.session` shows its rooms. No user's
setting names anything here.
"""
