"""Errors of scrapy-aopic; each message names what is wrong, its value and the way out."""

from __future__ import annotations


class AopicError(Exception):
    """Base of all errors raised by this package."""


class SettingError(AopicError, ValueError):
    """A setting has a value that cannot be used."""


class StorageError(AopicError, OSError):
    """A job folder cannot be opened, read or written."""


class LostError(StorageError):
    """A job folder that is in use was moved, deleted or replaced."""


class UnreachableError(StorageError):
    """The server that has a job does not respond, or the connection to it broke."""


class ExchangeError(AopicError, ValueError):
    """A list of seeds cannot be used, or an export cannot be written."""


class CallError(AopicError, ValueError):
    """A crawl was called with something that cannot be right; nothing was changed."""


class TopicError(AopicError, ValueError):
    """Examples or a model of a topic cannot be used."""
