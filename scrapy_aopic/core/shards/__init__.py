"""One job in several shards: which shard each page is in, and the mail that carries cash and links between them.

:mod:`scrapy_aopic.core.shard` is what a worker calls, with its rules. In here: :mod:`.cut` (which shard a host is in),
:mod:`.letters` (what shards write to each other, as bytes), :mod:`.mail` (what was sent and received, in the same
commits as its effect), :mod:`.remote_pages` (pages that are one with a page of another shard) and :mod:`.receiving` (what
follows from a letter).
"""
