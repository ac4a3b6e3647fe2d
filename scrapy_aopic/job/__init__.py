"""Runs a job on its stores; nothing here needs Scrapy.

* :mod:`.job`: N shards of a crawl, one for a job in one piece, from their opening to their last commits
* :mod:`.only_worker`: the worker of a job in one piece
* :mod:`.cluster_worker`: a worker of a job in several shards, some of which it holds
* :mod:`.dealing`: which worker should have which shard
* :mod:`.shard_router`: the shards that such a worker holds, as one crawl: each call goes to the shard that it is about
* :mod:`.open_shard`: a shard that is open here: store, crawl and commits
* :mod:`.cluster_shard`: one of several, with its mail
* :mod:`.exchange`: the thread that talks to other workers
* :mod:`.commit_thread`: writes changes to the stores, batch by batch
* :mod:`.side_files`: feeds and archives that are flushed before each commit
* :mod:`.clock`: a crawl's time, which outlives its processes
* :mod:`.shared_learning`: what workers learn from each other
"""
