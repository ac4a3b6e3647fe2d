"""Make the example project importable, as it is for ``scrapy`` when started in its folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "example_project"))
