"""Checks whether a server is set to keep its data: once, when a crawl opens its job."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError

from .leaves import MOST_ROWS

if TYPE_CHECKING:
    from scrapy_aopic.storage.address import Address

    from .connection import Connection

logger = logging.getLogger(__name__)

_OLDEST = (6, 2)
"""The first version of Redis that has ``COPY`` and ``SMISMEMBER``; every Valkey has them."""

_VALUE_BYTES = 512
"""Bytes of a value that a leaf should take without becoming a hash table: longer than most requests."""


def check_server(connection: Connection, address: Address) -> None:
    """Refuse a server that would drop rows, and warn of one that may forget commits.

    Raises:
        StorageError: If the job must not be kept there.
    """
    from .connection import ReplyError  # noqa: PLC0415 (an extra, which crawls without a server do not need)

    (reply,) = connection.inquire((b"INFO",))
    if isinstance(reply, ReplyError):
        _not_checked(address, str(reply))
        return
    info = dict(re.findall(r"^(\w+):(.*?)\r?$", reply.decode("utf-8", "replace"), re.MULTILINE))
    version = info.get("redis_version", "0")
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST:
        raise StorageError(
            f"The server of {address} is Redis {version}, and a job needs Redis {'.'.join(map(str, _OLDEST))} or any "
            "Valkey."
        )
    if info.get("role") == "slave":
        raise StorageError(
            f"The server of {address} is a replica, which takes no writes: let REDIS_URL name the primary."
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        if int(info.get("maxmemory", "0")):
            raise StorageError(
                f"The server of {address} would drop rows of the job when its memory is full (maxmemory-policy {policy}): "
                "set maxmemory-policy to noeviction."
            )
        logger.warning(
            "The server of %(store)s has the maxmemory-policy %(policy)s, by which it would drop rows of the job if it got "
            "a maxmemory: set it to noeviction",
            {"store": address, "policy": policy},
        )
    names = ("appendfsync", "save", "hash-max-listpack-value", "hash-max-listpack-entries")
    config: dict[str, str] = {}
    replies = connection.inquire(*((b"CONFIG", b"GET", name) for name in names))
    for name, reply in zip(names, replies, strict=True):
        if isinstance(reply, ReplyError):
            _not_checked(address, str(reply))
            return
        if reply:  # other versions have other names
            config[name] = reply[1].decode("utf-8", "replace")
    _warn_of_losses(address, config, has_log=info.get("aof_enabled") == "1")
    if (
        int(config.get("hash-max-listpack-value", _VALUE_BYTES)) < _VALUE_BYTES
        or int(config.get("hash-max-listpack-entries", MOST_ROWS)) < MOST_ROWS
    ):
        logger.info(
            "The server of %(store)s needs a third less memory for the job with hash-max-listpack-value 1024 and "
            "hash-max-listpack-entries 256",
            {"store": address},
        )


def _warn_of_losses(address: Address, config: dict[str, str], *, has_log: bool) -> None:
    """Warn of how much a crash of the server undoes, if that is more than a second."""
    if has_log:
        if config.get("appendfsync") == "no":
            logger.warning(
                "The server of %(store)s has appendfsync no: a power failure undoes up to half a minute of the crawl; set "
                "it to everysec (a second) or always (nothing)",
                {"store": address},
            )
    elif config.get("save"):
        logger.warning(
            "The server of %(store)s has no append-only file: a crash of the server undoes what the crawl did since the "
            "last snapshot (save %(save)s); set appendonly to yes",
            {"store": address, "save": config["save"]},
        )
    else:
        logger.warning(
            "The server of %(store)s keeps nothing on a disk: the job is gone when the server ends; set appendonly to yes",
            {"store": address},
        )


def _not_checked(address: Address, why: str) -> None:
    logger.warning(
        "Whether the server of %(store)s keeps the job could not be checked (%(why)s): it should have maxmemory-policy "
        "noeviction and an append-only file",
        {"store": address, "why": why},
    )
