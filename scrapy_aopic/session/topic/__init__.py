"""A crawl for a topic: pages are graded, links get values, and a strategy learns."""
