"""``python -m demo_web``: serve it."""

from __future__ import annotations

from .serving import main

main()
