"""A crawl for a topic.

* :mod:`.grading`: grades each page once, and values its links
* :mod:`.judging`: awaits users' asynchronous functions
* :mod:`.learning`: keeps what a strategy learned, and values waiting pages again
"""
