"""What decides: no I/O, no clock, no Scrapy. Time and randomness come in as arguments, decisions go out as values.

In reading order: :mod:`.records` (what is remembered), :mod:`.ledger` and :mod:`.window` (who holds how much
cash), :mod:`.frontier` and :mod:`.politeness` (what is asked next, and when), :mod:`.crawl` (all of it as one
state machine), :mod:`.tables` and :mod:`.ports` (how it is kept in a store), :mod:`.audit` (whether it holds).
"""
