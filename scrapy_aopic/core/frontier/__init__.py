"""Mercator's frontier: which host is requested next, and for which of its pages.

To be read in this order:

* :mod:`.frontier`: pages come, are taken and end; what the rest of the core calls;
* :mod:`.host_state`: the phases of a host, and the table of what may happen in each;
* :mod:`.hosts`: where a host goes, and what wakes it;
* :mod:`.back_queue`, :mod:`.shelves`, :mod:`.budgets`, :mod:`.gates`, :mod:`.reserve`, :mod:`.outsiders`: what hosts
  wait for and lie in, one idea each;
* :mod:`.heap`: the heap that all of them use;
* :mod:`.check`: what must be true between two calls.
"""
