"""Copies of jobs, and what is left of damaged ones.

* :mod:`.backing_up`: copies a job, also one that is running; what lies beside its stores is copied in the same way for a salvage;
  puts a copy onto a server
* :mod:`.moving`: moves shards from one job folder to another
* :mod:`.salvaging`: makes the folder of a new job of a damaged one; :mod:`scrapy_aopic.core.salvage` makes its rows
"""
