"""Scrapy's patterns: each a spider of some ten lines that does the same with stock Scrapy and with this package.

============  =====================================================================================
`listing`     what a pattern is, and the list of them, of which docs/scrapy-patterns.md is made
`shop`        the pages that the spiders crawl
`ways`        runs a pattern in one of its ways, and says what came of it
============  =====================================================================================

The patterns are in the other files, a group or two in each.
"""
