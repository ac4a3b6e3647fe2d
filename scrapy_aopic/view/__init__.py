"""Shows a crawl: its figures, its limit, why a URL waits, and its history.

A *view* is one store or several as of one moment. A *snapshot* has the figures of a crawl at one moment, of one that runs here
or of a stored job, in one shard or in several. Everything else is made from these two.

Figures:

* :mod:`.snapshot`: the figures of one moment
* :mod:`.live`: takes snapshots of the crawl of this process
* :mod:`.stored`: takes one of a stored job; or again and again, with speeds
* :mod:`.shard_states`: the states of shards that a server has
* :mod:`.host_walk`: hosts in memory, looked through in slices
* :mod:`.snapshot_stats`: the stats that are figures of a snapshot
* :mod:`.verdict`: what limits a crawl, from two snapshots
* :mod:`.history`: a table that grows while the crawl runs

Questions:

* :mod:`.job_view`: a job as of one moment, in one store or several
* :mod:`.queries`: lists of pages, links and hosts
* :mod:`.why`: why a URL or a host is crawled or not, from one store
* :mod:`.why_in_shards`: the same for a job in shards, with the control settings
* :mod:`.questions`: answers for the job at a place: ``why``, pages, hosts, domains
* :mod:`.dropped`: samples of dropped links, for ``why``
* :mod:`.url_settings`: settings that ``why`` needs
* :mod:`.deadlines`: whether revisits can be made as often as the settings ask
* :mod:`.auditing`: whether everything in a job holds
* :mod:`.traps`: parts of sites that may be traps

Outputs:

* :mod:`.text`: the progress line; durations and sizes as text
* :mod:`.text_report`: the report of a job as text, and tables that fit the width of a terminal
* :mod:`.columns`: rows as Arrow
* :mod:`.exporting`: files of pages and links
* :mod:`.prometheus`: Scrapy's stats as metrics for Prometheus
* :mod:`.output`: standard output that may be closed or full, and its colours

Rule 1: a snapshot is plain data, and the only place that names figures: every output shows one.

Rule 2: nothing here changes a crawl, or keeps its event loop for more than about 2 ms.

Rule 3: only :mod:`.live`, :mod:`.url_settings` and :mod:`.questions` need Scrapy.
"""
