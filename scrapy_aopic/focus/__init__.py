"""A topic from what a user gives: pages in folders, keywords, or a file of an earlier training.

* :mod:`.folders`: example pages, one in each file
* :mod:`.background`: pages of the open web, the other side of examples
* :mod:`.model`: a trained topic in a file
* :mod:`.batches`: a user's own functions for pages and links, and for batches of pages
* :mod:`.tokenizers`: how text is cut into words
* :mod:`.stems`: what the forms of a keyword begin with
* :mod:`.quality`: how good a trained topic is on new pages
* :mod:`.labels`: labels that people give to sampled pages

Rule: a folder or a file that cannot be used is a :class:`~scrapy_aopic.exceptions.TopicError` that names it.
"""

from __future__ import annotations

from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText

from .batches import BatchJudge, JudgedPage, LinkScorer, PageScorer
from .folders import ExamplePage, read_folder, train
from .model import load_model, save_model

__all__ = [
    "BatchJudge",
    "ExamplePage",
    "JudgedPage",
    "LinkScorer",
    "LinkText",
    "PageScorer",
    "PageSeen",
    "load_model",
    "read_folder",
    "save_model",
    "train",
]
