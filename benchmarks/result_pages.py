"""Fits what tells results from lists of links in the printed form of JLSE, on real pages, and writes it into the package.

    python benchmarks result_pages DIR [--most 120] [--write]    # DIR/sites/<name> are unpacked sites

Which page is a list is said by the name of its file, as generators of documentation give it (``index``, ``toc``, ``genindex``,
``package-summary``...); all others are taken for results. Of each kind ``--samples`` pages are drawn, at most ten of a site. Printed:
what part of the pages is put into the right class by a machine that was fitted on other sites (five parts).
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from focus_webs import corpus
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.svm import SVC

from scrapy_aopic.core.focus import result_pages

LIST = re.compile(
    r"(index|toc|contents?|genindex|py-modindex|modindex|allclasses|all-?index|package|overview|classes|annotated|hierarchy"
    r"|functions|globals|files|modules|namespaces|deprecated|index-all|sitemap|glossary-index|book-index|ix\d+|bk\d+-toc)"
    r"([-_](summary|frame|tree|index|list|noframe|use|vars|func|[a-z]|\d+))?",
    re.IGNORECASE,
)
"""Names of files, without their ends, that are lists."""

MOST_OF_SITE = 10
COST, GAMMA = 1.0, 0.1
"""Smooth, as names are noisy labels: with ten times as much of each, the machine learns single pages by heart."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=120, help="pages of a site")
    parser.add_argument("--samples", type=int, default=80, help="pages of each kind")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    web = corpus.load(options.folder, options.most)
    chance = random.Random("results")
    drawn = chance.sample(web.pages, len(web.pages))
    rows, sites = [], []
    kinds: list[bool] = []
    n_of: dict[tuple[bool, str], int] = {}
    for page in drawn:
        parts = urlsplit(page.url)
        is_result = LIST.fullmatch(Path(parts.path).stem) is None
        key = is_result, str(parts.hostname)
        if kinds.count(is_result) < options.samples and n_of.get(key, 0) < MOST_OF_SITE:
            n_of[key] = n_of.get(key, 0) + 1
            rows.append(page.degrees)
            kinds.append(is_result)
            sites.append(parts.hostname)
    x, y = np.round(np.array(rows), 2), np.array(kinds)
    print(f"{sum(kinds)} results and {len(kinds) - sum(kinds)} lists of {len(set(sites))} sites")
    machine = SVC(C=COST, gamma=GAMMA)
    right = cross_val_score(machine, x, y, groups=sites, cv=GroupKFold(5)).mean()
    machine.fit(x, y)
    print(f"{right:.3f} right, {len(machine.support_)} support vectors")
    if not options.write:
        return
    vectors = [
        f"    (Degrees({', '.join(f'{value:g}' for value in vector)}), {weight:.4g}),"
        for vector, weight in zip(machine.support_vectors_, machine.dual_coef_[0], strict=True)
    ]
    Path(result_pages.__file__).write_text(
        f'''"""What tells results from lists of links, fitted on {sum(kinds)} and {len(kinds) - sum(kinds)} pages of documentation of {len(set(sites))} sites: {right:.0%} of the pages of sites
that it has not seen are put into the right class (benchmarks/result_pages.py, which writes this file)."""

from __future__ import annotations

from .results import Degrees, SupportVectors

RESULT_PAGES = SupportVectors(
    {GAMMA:g},
    {machine.intercept_[0]:.4g},
    (
{chr(10).join("    " + each for each in vectors)}
    ),
)
''',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
