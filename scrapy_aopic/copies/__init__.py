"""Copies of jobs, and damaged jobs made valid again.

* :mod:`.backing_up`: copies a job, also one that is running
* :mod:`.restoring`: puts a copy onto a server
* :mod:`.moving`: moves shards from one job folder to another
* :mod:`.repairing`: repairs a damaged job
"""
