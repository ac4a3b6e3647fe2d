"""A job's rows, shards and letters on a Redis or Valkey server.

* :mod:`.store`: the store
* :mod:`.transaction`: commits, of one store or several
* :mod:`.keys`: names of keys, forms of rows
* :mod:`.leaves`: rows in hashes, like the lowest level of a B+ tree
* :mod:`.replies`: reads replies of the server
* :mod:`.read_ahead`: reads rows before they are wanted
* :mod:`.frozen_view`: a view of the store as of one commit
* :mod:`.replacing`: puts a whole store in the place of another
* :mod:`.salvage`: reads what is left of a damaged store
* :mod:`.connect`: imports the Redis library and connects
* :mod:`.connection`: one connection
* :mod:`.server_checks`: whether the server is set to keep data
* :mod:`.writer_lease`: one writer at a time
* :mod:`.membership`: shards and workers of a job
* :mod:`.mailboxes`: letters that wait
* :mod:`.shared_lessons`: what workers learn
"""
