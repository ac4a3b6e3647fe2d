"""A job's rows, shards and letters on a Redis or Valkey server.

* :mod:`.store`: the store, and commits to several
* :mod:`.transaction`: commits, of one store or several
* :mod:`.keys`: names of keys
* :mod:`.leaves`: rows in hashes, like the lowest level of a B+ tree
* :mod:`.rows`: rows as they are stored, and as replies have them
* :mod:`.scan`: reads the rows of leaves in their order
* :mod:`.read_ahead`: reads rows before they are wanted
* :mod:`.frozen_view`: a view of the store as of one commit
* :mod:`.replacing`: puts a whole store in the place of another
* :mod:`.connect`: imports the Redis library and connects; finds jobs
* :mod:`.connection`: one connection
* :mod:`.server_checks`: whether the server is set to keep data
* :mod:`.server_lock`: the lock on a store, which expires: one writer at a time
* :mod:`.sharding`: into how many shards a job is divided, and how it begins
* :mod:`.worker_registry`: the workers of a job, and the states of its shards
* :mod:`.mailboxes`: letters that wait
* :mod:`.shared_lessons`: lessons of workers about a topic
"""
