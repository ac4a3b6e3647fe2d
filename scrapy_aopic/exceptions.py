"""Errors of scrapy-aopic; each message names what is wrong, its value and the way out."""

from __future__ import annotations


class AopicError(Exception):
    """Base of all errors raised by this package."""


class SettingError(AopicError, ValueError):
    """A setting has a value that cannot be used."""


class StorageError(AopicError, OSError):
    """A job folder cannot be opened, read or written."""
