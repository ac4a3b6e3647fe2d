"""Settings of the example project; everything that is not here is set by the add-on."""

from __future__ import annotations

BOT_NAME = "broad"
SPIDER_MODULES = ["broad.spiders"]
USER_AGENT = "broad-example (+https://example.org/crawler)"

ADDONS = {"scrapy_aopic.Addon": 500}
ITEM_PIPELINES = {"scrapy_aopic.ImportancePipeline": 300}

AOPIC_REPORT = True  # print the most important pages at the end
LOG_LEVEL = "INFO"
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
