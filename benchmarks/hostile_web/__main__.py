from __future__ import annotations

from rounds import main

main()
