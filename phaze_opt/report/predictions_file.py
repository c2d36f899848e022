"""Every row of a validation as CSV: measured, predicted, the range of the prediction, or why there is none."""

import csv
import io
import math
from pathlib import Path

from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.result import Validation

COLUMNS = ("dataset", "id", "line", "measured", "predicted", "low", "high", "unscored")
"""Values are SI: s of times, bytes of memory; mm2 of areas."""


def write_predictions(result: Validation, path: Path) -> None:
    """Write one line a row of every set, in the order of the files."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in result.sets:
        for each in entry.rows:
            values = (each.measured_s, each.predicted_s, each.low_s, each.high_s)
            figures = [f"{value:.6g}" if math.isfinite(value) else "" for value in values]
            writer.writerow((entry.name, each.row.id, each.row.line, *figures, each.reason))
    replace_file(path, text.getvalue())
