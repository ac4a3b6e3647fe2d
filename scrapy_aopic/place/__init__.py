"""Where a job is, and what lies beside its store.

* :mod:`.paths`: the paths in a job folder
* :mod:`.file_formats`: formats of files by the ends of their names
* :mod:`.kept_control`: an operator's orders, kept beside the store
* :mod:`.cutting`: how many shards a job was cut into
* :mod:`.shard_store`: what a process needs of a shard's store
* :mod:`.shard_places`: where the shards of a job are
* :mod:`.worker_folder`: a job folder that has shards of a job
* :mod:`.copied_shards`: a copy of a job in shards, in a folder
"""
