"""What the last response for a page was, as the one number that a page's record keeps of it.

The number is 0 if nothing is known, and small for what is usual: a page of HTML with status 200 takes no more than its
size. Types have numbers of their own, as a name of any length, which a host may choose, has no place in a record.
"""

from __future__ import annotations

from typing import NamedTuple

FETCHED_BITS = 52
"""Bits of the number, at most."""

_STATUS_BITS, _TYPE_BITS = 10, 7

_MOST_BYTES = (1 << FETCHED_BITS - _STATUS_BITS - _TYPE_BITS - 1) - 3
"""A larger size is written as this one: 16 GiB."""

_TYPES = (
    "text/html", "", "application/xhtml+xml", "text/plain", "text/xml", "application/xml", "application/rss+xml",
    "application/atom+xml", "application/rdf+xml", "application/json", "application/ld+json", "application/pdf",
    "application/octet-stream", "text/css", "text/javascript", "application/javascript", "application/x-javascript",
    "text/csv", "text/markdown", "text/calendar", "text/vcard", "text/x-vcard", "text/rtf", "text/x-component",
    "text/x-python", "text/x-c", "text/x-diff", "text/x-patch", "text/tab-separated-values", "image/jpeg", "image/png",
    "image/gif", "image/webp", "image/svg+xml", "image/avif", "image/bmp", "image/tiff", "image/x-icon",
    "image/vnd.microsoft.icon", "video/mp4", "video/webm", "video/quicktime", "video/mpeg", "video/x-msvideo",
    "video/x-ms-wmv", "video/x-flv", "audio/mpeg", "audio/ogg", "audio/mp4", "audio/wav", "audio/x-wav", "font/woff",
    "font/woff2", "font/ttf", "application/zip", "application/x-zip-compressed", "application/gzip", "application/x-gzip",
    "application/x-tar", "application/x-bzip2", "application/x-xz", "application/x-rar-compressed", "application/vnd.rar",
    "application/x-7z-compressed", "application/java-archive", "application/msword",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "application/vnd.ms-excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "application/vnd.ms-powerpoint",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation", "application/vnd.oasis.opendocument.text",
    "application/vnd.oasis.opendocument.spreadsheet", "application/rtf", "application/postscript", "application/epub+zip",
    "application/x-shockwave-flash", "application/x-msdownload", "application/vnd.android.package-archive",
    "application/x-debian-package", "application/x-rpm", "application/x-iso9660-image", "application/x-bittorrent",
    "application/pgp-signature", "application/x-tex", "application/wasm", "application/manifest+json",
    "application/opensearchdescription+xml", "application/vnd.google-earth.kml+xml", "application/gpx+xml",
    "application/geo+json", "application/yaml", "application/soap+xml", "application/x-x509-ca-cert",
    "application/x-font-ttf", "application/x-font-woff", "application/vnd.ms-fontobject", "multipart/x-mixed-replace",
    "message/rfc822", "text/*", "image/*", "video/*", "audio/*", "font/*", "model/*", "application/*", "multipart/*",
    "message/*", "*/*",
)  # fmt: skip
"""Content types by their numbers, which are stored: new ones are added at the end."""

_NUMBERS = {name: number for number, name in enumerate(_TYPES)}


class Fetched(NamedTuple):
    """A response as the record of its page keeps it.

    Attributes:
        status: Its HTTP status.
        content_type: Its content type, in lower case and without parameters; ``""`` if that is not known. A type without
            a number is kept as its beginning: ``application/*``.
        size: Bytes of its body; ``None`` if that was not read to its end.
    """

    status: int
    content_type: str = "text/html"
    size: int | None = None

    def to_number(self) -> int:
        """The number that says it, above 0."""
        size = min(self.size, _MOST_BYTES) if self.size is not None else None
        if self.status == 200 and self.content_type == "text/html" and size is not None:
            return 1 + (size << 1)
        number = _NUMBERS.get(self.content_type)
        if number is None:
            number = _NUMBERS.get(f"{self.content_type.partition('/')[0]}/*", _NUMBERS["*/*"])
        status = min(max(self.status, 0), (1 << _STATUS_BITS) - 1)
        others = (0 if size is None else size + 1) << _TYPE_BITS | number
        return 2 + (others << _STATUS_BITS + 1) + (status << 1)


def read_fetched(number: int) -> Fetched | None:
    """The response that *number* says; ``None`` for 0, and for what no response makes."""
    if number <= 0:
        return None
    if number & 1:
        return Fetched(200, "text/html", number >> 1)
    number = (number >> 1) - 1
    status, number = number & (1 << _STATUS_BITS) - 1, number >> _STATUS_BITS
    kind, size = number & (1 << _TYPE_BITS) - 1, number >> _TYPE_BITS
    return Fetched(status, _TYPES[kind], size - 1 if size else None) if kind < len(_TYPES) else None
