"""What a page and a link are worth for a topic: words as numbers, a classifier that learns from them, and shares of cash.

Pure, and the same on every machine: no clock, no randomness, and hashes that do not change between runs.
:mod:`.words` turns text into features, :mod:`.classifier` learns from them one example at a time, :mod:`.topic` values
pages and links with two of those, and :mod:`.shares` turns the values of a page's links into weights for the ledger.
"""

from __future__ import annotations
