"""A job folder: what is kept in it, by a crawl or without one; nothing here needs Scrapy.

To run a crawl: :mod:`.job` (one crawl on one store), :mod:`.commit_thread` (its changes reach the disk), :mod:`.clock`,
:mod:`.rescoring`. To begin it: :mod:`scrapy_aopic.seeds.seed_lists` (what users give), :mod:`scrapy_aopic.seeds.adding` (what waits), :mod:`scrapy_aopic.seeds.inbox` (what is taken
up) and :mod:`scrapy_aopic.seeds.offsets` (how far). To look at it: :mod:`scrapy_aopic.view.queries`, :mod:`scrapy_aopic.view.text_report`, :mod:`scrapy_aopic.view.export`. To keep it: :mod:`scrapy_aopic.copies.backup`,
:mod:`scrapy_aopic.copies.repair`.
"""
