"""What pages and URLs say: rules on URLs, page keys, texts, sitemaps, requests as bytes. No engine, no crawl, no disk.

URLs:

* :mod:`.urls`: the normal form of a URL, or the reason to refuse it
* :mod:`.url_rules`: every rule on URLs, in one table
* :mod:`.url_keys`: the page key of a URL, without a request
* :mod:`.page_keys`: the host and the page key of a request
* :mod:`.origins`: origins, each with a robots.txt of its own
* :mod:`.suffixes`: the registered domain of a host
* :mod:`.scope`: which hosts and URLs are followed
* :mod:`.networks`: which hosts and addresses a crawl may connect to

Responses:

* :mod:`.content_types`: content types as browsers read them
* :mod:`.parse_limits`: limits on responses that are decoded and parsed
* :mod:`.main_text`: the main text of a page, for items
* :mod:`.page_text`: the visible text of a page, and its canonical URL
* :mod:`.link_extraction`: the URLs that a page links to
* :mod:`.context`: the text of a link, and the text around it
* :mod:`.http_dates`: dates and waits in headers
* :mod:`.chain_cookies`: the cookies of a chain of redirects
* :mod:`.languages`: the language that a page declares
* :mod:`.robots_marks`: what a page asks of robots
* :mod:`.content_usage`: how its owner wants it to be used
* :mod:`.tdmrep`: what a host's file says of that
* :mod:`.robots_parser`: parsers of robots.txt files with Scrapy's interface
* :mod:`.sitemaps`: sitemaps, read in steps
* :mod:`.warc_index`: where pages are in WARC files
* :mod:`.warc`: transfers as WARC records

Requests:

* :mod:`.identity`: signatures by which a server can tell who crawls
* :mod:`.meta`: keys of ``meta``, and the download slot of a request
* :mod:`.request_rows`: stored requests as bytes, without Scrapy
* :mod:`.request_codec`: a Scrapy request to bytes, and back
* :mod:`.stored_requests`: whether a stored request can be read
* :mod:`.plain_pickle`: pickles of plain data, read without running code
"""
