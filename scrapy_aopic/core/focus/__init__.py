"""What pages and links are worth for a topic: words as numbers, a classifier, values, shares of cash, harvest.

:mod:`.words` turns text into features, :mod:`.classifier` learns from them one example at a time, :mod:`.topic` grades
pages and says how well a link's text fits, :mod:`.strategy` says what makes a link's value of both, :mod:`.shares` turns the values of a
page's links into weights for the ledger, and :mod:`.harvest` counts what came of it.

Rule 1: the same input has the same result on every machine: hashes do not change between runs.

Rule 2: grades and values are numbers from 0 to 1.
"""

from __future__ import annotations
