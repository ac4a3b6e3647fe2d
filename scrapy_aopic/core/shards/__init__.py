"""One job in several shards: which shard each page is in, and the mail that carries cash and links between them.

:mod:`scrapy_aopic.core.shard` is what a worker calls, with its rules. In reading order:

* :mod:`.cut`: which shard a host is in
* :mod:`.spread`: what all shards have of a domain of which each host may be in another one
* :mod:`.letters`: what shards write to each other, as bytes
* :mod:`.mail`: letters sent and received, in the same commits as their effects
* :mod:`.receiving`: applies a letter
* :mod:`.remote_pages`: pages that are one with a page of another shard
* :mod:`.all_shards`: checks the cash and the letters of all shards
* :mod:`.rebuilt_mail`: starts a lost shard again from what the others know
"""
