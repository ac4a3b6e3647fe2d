"""What pages and URLs say: URL rules, page keys, texts, sitemaps, and requests as bytes. No engine, no crawl, no disk."""
