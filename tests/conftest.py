"""Hypothesis draws the same examples in every run; ``HYPOTHESIS_PROFILE=random`` looks for new ones.

With ``HYPOTHESIS_PROFILE=first`` it does not make the first one that fails smaller, which may take minutes.
"""

from __future__ import annotations

import os

from hypothesis import Phase, settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.register_profile("first", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
