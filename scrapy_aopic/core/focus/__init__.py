"""A topic: how relevant a page is, what a link is worth, and what a crawl learns of that while it runs.

Text and topics:

* :mod:`.words`: text as features, for any script
* :mod:`.keywords`: which words of a page count for keywords
* :mod:`.topic`: grades pages, and says how well a link's text fits
* :mod:`.classifier`: logistic regression, fitted to its end
* :mod:`.model_weights`: a weight for each feature, by AdaGrad

Strategies, which value links:

* :mod:`.strategy`: the base class, and what a strategy may do
* :mod:`.strategies`: the strategies by name
* :mod:`.learned`: learns from what became of earlier links, the default
* :mod:`.published`: those that documents describe
* :mod:`.harvest_results`: whether a page is a result or a list of links to results, for one of these

In a crawl:

* :mod:`.calibration`: grades as probabilities, by labels
* :mod:`.shares`: values of links as shares of the page's cash
* :mod:`.leads`: which page and link gave a waiting page its value
* :mod:`.lessons`: what processes of one crawl learn from each other
* :mod:`.harvest`: how many fetched pages are relevant
* :mod:`.sample`: pages set aside at random for people to label

Rule 1: the same input has the same result on every machine: hashes do not change between runs.

Rule 2: grades and values are numbers from 0 to 1.
"""

from __future__ import annotations
