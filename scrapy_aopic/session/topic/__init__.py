"""A crawl for a topic.

* :mod:`.grading`: grades each page once, and values its links
* :mod:`.user_functions`: awaits users' asynchronous functions
* :mod:`.learning`: keeps what a strategy learned, and values waiting pages again
"""
