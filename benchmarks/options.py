"""Reads the options of a benchmark, which names them with their defaults."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, NamedTuple


class Among(NamedTuple):
    """A default, and all that may be given."""

    default: Any
    choices: Iterable[str]


def read(doc: str | None, rest: str = "", kind: type = str, /, **defaults: Any) -> Any:
    """The options of the command line.

    Args:
        doc: What ``--help`` says.
        rest: Name of what stands without an option, with ``?``, ``*`` or ``+`` behind it as in :mod:`argparse`.
        kind: Its type.
        defaults: By name. A list takes several words, ``False`` none, a dictionary ``NAME=VALUE`` as often as wanted; of a type
            the default is ``None``.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if name := rest.rstrip("?*+"):
        parser.add_argument(name, type=kind, nargs=rest[-1] if name != rest else None)
    for name, default in defaults.items():
        value, choices = default if isinstance(default, Among) else (default, None)
        option = f"--{name.replace('_', '-')}"
        if value is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(value, dict):
            parser.add_argument(option, action="append", default=[], metavar="NAME=VALUE")
        elif isinstance(value, type):
            parser.add_argument(option, type=value)
        else:
            first = (value or [""])[0] if isinstance(value, list) else value
            several = "+" if isinstance(value, list) else None
            parser.add_argument(
                option, type=type(first), nargs=several, choices=choices, default=value, help="(%(default)s)"
            )
    found = parser.parse_args()
    for name in (name for name, default in defaults.items() if isinstance(default, dict)):
        setattr(found, name, dict(pair.split("=", 1) for pair in getattr(found, name)))
    return found
