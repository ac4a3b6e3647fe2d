"""A crawl inside Scrapy: what was asked for, what came of it, and whom the crawl waits for.

Between Scrapy's classes (``scheduler``, the middlewares) and the job: nothing here is named in a user's settings.
"""
