"""Items as tables that people open."""

from __future__ import annotations

from typing import Any

from scrapy.exporters import CsvItemExporter

from .place.file_formats import cell


class TableExporter(CsvItemExporter):
    """CSV in which no text is a formula: a spreadsheet runs ``=cmd()``, and a title is what a stranger says it is.

    ``scrapy aopic crawl`` uses it; in a project: ``FEED_EXPORTERS = {"csv": "scrapy_aopic.exporters.TableExporter"}``.
    """

    def serialize_field(self, field: Any, name: str, value: Any) -> Any:
        serialized = super().serialize_field(field, name, value)
        return cell(serialized) if isinstance(serialized, str) else serialized
