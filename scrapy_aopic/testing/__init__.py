"""Helpers for authors of storage backends and frontiers, and for the tests of this package. A crawl needs none of them.

* :mod:`.contracts`: the promises of a store, as tests
* :mod:`.crawls`: the promises of a frontier, as tests

Import the modules one by one: some need pytest and Hypothesis, which are not dependencies of the package.
"""

from __future__ import annotations
