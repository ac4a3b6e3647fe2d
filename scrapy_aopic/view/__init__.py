"""A job as it can be seen from outside: figures, what limits it, why a URL waits, and what it was like over time.

Figures:

* :mod:`.snapshot`: the figures of one moment
* :mod:`.host_walk`: hosts in memory, looked through in slices
* :mod:`.live`: takes snapshots of the crawl of this process
* :mod:`.stored`: takes one of a store
* :mod:`.verdict`: what limits a crawl, from two snapshots
* :mod:`.history`: a table that grows while the crawl runs

Questions:

* :mod:`.views`: a job as of one moment, in one store or several
* :mod:`.queries`: questions to one store
* :mod:`.merged`: the same to several stores
* :mod:`.whole_job`: questions to a job in shards
* :mod:`.why`: why a URL or a host is crawled or not
* :mod:`.answers`: the same in a job in shards
* :mod:`.dropped`: samples of dropped links, for ``why``
* :mod:`.url_settings`: settings that ``why`` needs
* :mod:`.auditing`: whether everything in a store holds
* :mod:`.domain_spread`: fetches by registered domain, and possible traps

Outputs:

* :mod:`.lines`: a line of text
* :mod:`.text_report`: text
* :mod:`.html_report`: a page of HTML
* :mod:`.export`: tables of pages and links
* :mod:`.live_stats`: Scrapy's stats
* :mod:`.measures`: stats with bounded labels
* :mod:`.telemetry`: OpenTelemetry
* :mod:`.output`: standard output that may be closed or full

Rule 1: a snapshot is plain data and the only place that names figures: whatever shows a crawl prints one.

Rule 2: nothing here changes a crawl, or keeps its event loop for more than about 2 ms.

Rule 3: only :mod:`.live` and :mod:`.url_settings` need Scrapy.
"""
