"""Experiments without a network: a crawl of a link graph on a virtual clock, and orders side by side.

:mod:`.graphs` reads link graphs; :mod:`.simulation` crawls one with the production ledger and frontier, and :mod:`.books`
checks it from outside; :mod:`.comparison` runs several orders from the same seeds, and :mod:`.results` shows what came of
them. ``scrapy aopic simulate`` does all of it.
"""
