"""The way of a link from a callback to the queue: found, admitted, sent.

* :mod:`.page_links`: the steps, for all links of a page
* :mod:`.found_link`: a link on its way, as opposed to a spider's own requests; as a line of text, without a request
* :mod:`.link_targets`: admission of a link: its normal form and page key, or why it is refused
* :mod:`.admission`: the rules of a crawl on URLs and content types
* :mod:`.page_rules`: rules on pages: whether their links are followed, their canonical pages
* :mod:`.link_weights`: shares of cash (``AOPIC_LINK_WEIGHTS``)
* :mod:`.known_pages`: requests for known pages that are wanted nevertheless
"""
