"""A crawl as it can be seen from outside: figures, what limits it, why a URL waits, and what it was like over time.

==================  ====================================================================================
:mod:`.snapshot`    the figures of one moment, of a running crawl or of a stored job
:mod:`.host_walk`   what is known of the hosts in memory, looked through in slices
:mod:`.live`        takes snapshots of a crawl that runs in this process
:mod:`.stored`      takes one of a store
:mod:`.verdict`     what limits a crawl, from two snapshots
:mod:`.lines`       a snapshot in a line of text
:mod:`.live_stats`  a snapshot as Scrapy's stats
:mod:`.history`     a snapshot as a row of a table that grows while the crawl runs
:mod:`.html_report`        a report as one page of HTML
:mod:`.why`         why a URL or a host is crawled or not, from a store
:mod:`.url_settings`       what settings say beside the store
==================  ====================================================================================

Rule 1: a snapshot is plain data and the only place that names figures: whatever shows a crawl prints one.

Rule 2: nothing here changes a crawl, or keeps its event loop for more than about 2 ms.

Rule 3: only :mod:`.live` and :mod:`.url_settings` need Scrapy.
"""
