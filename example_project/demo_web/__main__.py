"""``python -m demo_web``: serve it."""

from __future__ import annotations

from .command import main

main()
