from __future__ import annotations

from parts import main

main()
