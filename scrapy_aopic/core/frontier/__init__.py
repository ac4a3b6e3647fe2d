"""Mercator's frontier: which host is requested next, and for which of its pages.

In reading order:

* :mod:`.frontier`: pages come, are taken and end; the calls of the rest of the core
* :mod:`.host_state`: the phases of a host, and the table of what may happen in each
* :mod:`.host_places`: where a host goes, and what wakes it
* :mod:`.back_queue`: the best pages of a host in memory
* :mod:`.shelves`: hosts that wait on the disk
* :mod:`.budgets`: domains and links that have had their part of the fetches
* :mod:`.gates`: limits that several hosts share
* :mod:`.free_connections`: connections kept free for fast hosts
* :mod:`.heap`: the heap that all of them use
"""
