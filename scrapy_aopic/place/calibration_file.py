"""The files of a job folder that have labels of its pages, and say what grades for the topic mean by them."""

from __future__ import annotations

import json
from pathlib import Path

from scrapy_aopic.core.focus.calibration import UNCHECKED, Calibration
from scrapy_aopic.exceptions import TopicError
from scrapy_aopic.storage.store_folder import writing

LABELS = "aopic-labels.jsonl"
"""Name of the file of labels."""

CALIBRATION = "aopic-calibration.json"
"""Name of that which says what grades mean."""


def read_calibration(path: Path | None) -> Calibration:
    """What grades mean by the file at *path*, or in the job folder there; without such a file they are unchecked.

    Raises:
        TopicError: If the file is no calibration.
    """
    if path is None:
        return UNCHECKED
    path = path / CALIBRATION if path.is_dir() else path
    try:
        found = json.loads(path.read_bytes())
        slope, shift, labels = float(found["slope"]), float(found["shift"]), int(found["labels"])
        return Calibration(slope, shift, labels, tuple(map(float, found.get("gist", ()))))
    except FileNotFoundError:
        return UNCHECKED
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise TopicError(
            f"{path} does not say what grades mean: write it again, by 'scrapy aopic topic label', or remove it."
        ) from error


def write_calibration(path: Path, found: Calibration) -> None:
    """Write *found* to *path*, at once or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    with writing(path) as file:
        file.write(json.dumps(found._asdict()).encode())
