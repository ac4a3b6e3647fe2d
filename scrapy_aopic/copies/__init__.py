"""Copies of jobs, and damaged jobs made valid again.

* :mod:`.backup`: copies a job, also one that is running
* :mod:`.restore`: puts a copy onto a server
* :mod:`.moving`: moves shards from one job folder to another
* :mod:`.repair`: repairs a damaged job
"""
