"""A job folder: the crawl that is committed to it, its seeds, and what can be read from it while nobody runs it."""
