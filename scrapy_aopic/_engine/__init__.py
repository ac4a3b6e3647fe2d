"""All contact with private names of Scrapy and of its download handlers; each is probed once at start."""
