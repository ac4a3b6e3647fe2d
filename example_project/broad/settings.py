"""Settings of the example project; everything that is not here is set by the add-on."""

from __future__ import annotations

BOT_NAME = "broad"
SPIDER_MODULES = ["broad.spiders"]
USER_AGENT = "broad-example (+https://example.org/crawler)"

ADDONS = {"scrapy_aopic.Addon": 500}
ITEM_PIPELINES = {"scrapy_aopic.ImportancePipeline": 300}

AOPIC_REPORT = True  # print the most important pages at the end
AOPIC_MAX_WAIT = 30  # one host of the demo web never has its robots.txt; no need to wait for it
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False

LOG_LEVEL = "WARNING"  # -s LOG_LEVEL=INFO shows more
LOG_FORMATTER = "scrapy_aopic.logformatter.QuietLogFormatter"  # dead hosts are no news in a broad crawl
RETRY_GIVE_UP_LOG_LEVEL = "DEBUG"
