"""Experiments without a network: a crawl of a link graph on a virtual clock, and orders side by side.

``scrapy aopic simulate`` does all of it.

* :mod:`.graphs`: link graphs in files, and their PageRank
* :mod:`.planted`: endless traps, planted on one
* :mod:`.site_traps`: what the endless parts of real sites link to
* :mod:`.simulation`: a crawl of one with the production ledger and frontier
* :mod:`.url_order`: a base of orders that see the URLs of a graph
* :mod:`.workers`: the same by several workers, in shards
* :mod:`.books`: checks a simulated crawl from outside
* :mod:`.comparison`: runs several orders from the same seeds
* :mod:`.results`: tables, JSON and a picture of what came of them
"""
