"""A crawl for a topic.

* :mod:`.focus`: connects what follows
* :mod:`.given_topic`: the topic and the judge of links that the settings give
* :mod:`.grading`: grades each page once
* :mod:`.link_values`: what links are worth, and what leads to their pages
* :mod:`.visit_links`: gives links their values and shares when a visit ends
* :mod:`.learning`: keeps what a strategy learned, and values waiting pages again
* :mod:`.harvest_watch`: counts relevant pages, and ends a crawl that finds too few
* :mod:`.user_functions`: awaits users' asynchronous functions
"""
