"""Copies of jobs, and what is left of damaged ones.

* :mod:`.backing_up`: copies a job, also one that is running
* :mod:`.restoring`: puts a copy onto a server
* :mod:`.moving`: moves shards from one job folder to another
* :mod:`.salvaging`: begins a new job with what is left of a damaged one
"""
