"""A job folder: what is kept in it, by a crawl or without one; nothing here needs Scrapy.

To run a crawl: :mod:`.job` (one crawl on one store), :mod:`.commits` (its changes reach the disk), :mod:`.clock`,
:mod:`.rescoring`. To begin it: :mod:`.seed_lists` (what users give), :mod:`.seeds` (what waits), :mod:`.inbox` (what is taken
up) and :mod:`.offsets` (how far). To look at it: :mod:`.queries`, :mod:`.report`, :mod:`.export`. To keep it: :mod:`.backup`,
:mod:`.repair`.
"""
