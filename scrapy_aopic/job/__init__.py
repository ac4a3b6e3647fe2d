"""Runs a job on its stores; nothing here needs Scrapy.

* :mod:`.job`: one crawl on one store, from its opening to its last commit
* :mod:`.shared`: a job in shards, some of which this worker holds
* :mod:`.shards`: the shards that a worker holds, as one crawl
* :mod:`.held_shard`: one of them: store, crawl, commits and mail
* :mod:`.disks`: a job whose shards are on the disks of its workers
* :mod:`.exchange`: the thread that talks to other workers
* :mod:`.commit_thread`: writes changes to the store, batch by batch
* :mod:`.joint_commits`: the commits of all shards of a worker in one request
* :mod:`.side_files`: feeds and archives that are flushed before each commit
* :mod:`.clock`: a crawl's time, which outlives its processes
* :mod:`.rescoring`: scores on the whole graph, computed beside the crawl
* :mod:`.shared_learning`: what workers learn from each other
"""
