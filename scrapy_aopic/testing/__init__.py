"""Public helpers for authors of storage backends, and for the tests of this package.

Nothing here is needed to crawl. The modules are imported one by one, because some need pytest and
Hypothesis, which are not dependencies of the package.
"""

from __future__ import annotations
