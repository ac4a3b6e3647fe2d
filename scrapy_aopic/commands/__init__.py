"""``scrapy aopic SUBCOMMAND``: a file a subcommand.

* :mod:`.main`: finds the subcommand, and turns errors into a sentence and an exit code
* :mod:`.common`: the base class, shared options, reading a job folder
* :mod:`.demo`: a crawl of a made-up web
* :mod:`.crawl_command`: a broad crawl without a project
* :mod:`.salvage_command`: begins a new job with what is left of a damaged one
* :mod:`.seed`: adds seeds
* :mod:`.control`: pauses, blocks, slows down
* :mod:`.status`: how far a job has come
* :mod:`.top`: the most important pages or hosts
* :mod:`.hosts`: hosts that are slow, failing, waiting or over budget
* :mod:`.why_command`: why a URL or a host is crawled or not, or why a page is graded as it is
* :mod:`.report`: a page about a job
* :mod:`.dashboard`: a job in the browser
* :mod:`.export`: pages and links as files
* :mod:`.check`: whether every invariant holds
* :mod:`.backup`: copies a job, or a copy back onto a server
* :mod:`.move`: moves a job to another place, or shards to another folder
* :mod:`.import_redis`: continues a crawl of scrapy-redis
* :mod:`.simulate`: compares orders on a link graph
* :mod:`.identity_command`: makes the key by which requests are signed, and checks that servers find it
* :mod:`.docs_command`: the docs for users, which are in the package
* :mod:`.topic_command`: trains and evaluates a topic's model, asks people for labels of sampled pages

To add one: a file with a :class:`.common.Subcommand` that is called as the subcommand, with ``_command`` if another file of
the package is called so; a line of ``_MODULES`` in :mod:`.main`, a line above, and a section in ``docs/commands.md``.

Rule: Scrapy loads these files at every call of any of its commands, so whatever takes time to load is imported by the
functions that need it.
"""

from __future__ import annotations

from .main import SUBCOMMANDS, AopicCommand

__all__ = ["SUBCOMMANDS", "AopicCommand"]
