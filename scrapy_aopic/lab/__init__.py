"""Experiments: a crawl of a link graph on a virtual clock, and orders side by side."""
