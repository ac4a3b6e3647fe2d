from __future__ import annotations

import sys

from rounds import main

sys.exit(main())
