"""Strategies that documents describe, to be compared with the default, and what they are made of.

* :mod:`.fixed`: best first, and OTIE (OPIE)
* :mod:`.context_graph`: by the number of links to a relevant page
* :mod:`.jlse`: joint link similarity and its baseline, corrected
* :mod:`.jlse_as_printed`: the same as the paper prints them
* :mod:`.success_graph`: which pages led to results, for both of these
* :mod:`.bm25`: which of some short documents is most like a query
* :mod:`.result_pages`: the numbers by which JLSE as printed tells results from lists of links
"""
