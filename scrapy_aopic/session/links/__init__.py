"""What a callback yields, on its way to the links of its page.

* :mod:`.page_links`: which links count, which are followed, and which way
* :mod:`.admission`: which URLs may be queued, which responses are read
* :mod:`.admitted`: a URL's normal form and page key, or why it is refused
* :mod:`.batch`: all links of a page, looked up with one read
* :mod:`.known_pages`: requests for known pages that are wanted nevertheless
* :mod:`.link_weights`: shares of cash (``AOPIC_LINK_WEIGHTS``)
* :mod:`.purpose`: a spider's own requests, as opposed to mere links
"""
