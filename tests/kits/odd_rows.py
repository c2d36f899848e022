"""Rows that a family was not made for: predicted or unscored with a reason, never an exception."""

import pytest
from kits.measured_rows import changed

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import Family
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.predict import Predictions, predict_rows

DEVICES = ("MI300X", "B200-SXM", "Gaudi3", "TPUv5e", "V100-SXM3-32GB", "L4", "a machine of tomorrow")
DTYPES = ("fp8", "fp32", "tf32", "bf16", "fp4")
Refusal = tuple[str, dict[str, object], str]
"""Data set, values of a row of it, and a part of the reason for which it is unscored."""


def variations(dataset: Dataset, num_rows: int) -> list[Row]:
    """A few rows, with other devices, other types, and without one optional column at a time."""
    step = max(1, len(dataset.rows) // num_rows)
    rows = dataset.rows[::step][:num_rows]
    columns = dataset.schema.columns
    changes = [{"hardware": name} for name in DEVICES if "hardware" in columns]
    changes += [{"dtype": name} for name in DTYPES if "dtype" in columns]
    changes += [{name: ""} for name, column in columns.items() if not column.is_required and name in rows[0].values]
    return [changed(row, **change) for change in changes for row in rows]


def check_variations(family: Family, dataset: Dataset, fitted: FittedConstants, num_rows: int) -> None:
    """Every variation of a set's rows is predicted, with parts that add up, or has a reason."""
    rows = variations(dataset, num_rows)
    found = predict_rows([family], rows, fitted)
    for index, row in enumerate(rows):
        if index in found.unscored:
            assert found.unscored[index].strip()
            continue
        assert 0 < found.predicted_s[index] < 1e9
        parts = found.explain(fitted, index)
        assert sum(part.seconds for part in parts) == pytest.approx(found.predicted_s[index], rel=1e-6)
        assert family.regime(row)
        assert family.cell(row)


def check_parts(predictions: Predictions, fitted: FittedConstants, indices: list[int]) -> None:
    """Parts of some rows' predictions add up."""
    for index in indices:
        seconds = sum(part.seconds for part in predictions.explain(fitted, index))
        assert seconds == pytest.approx(predictions.predicted_s[index], rel=1e-9)


def check_refusal(family: Family, good: Row, refusal: Refusal, fitted: FittedConstants) -> None:
    """A row that cannot be predicted says why; its neighbour is priced, and alone it teaches no constant."""
    _, values, reason = refusal
    odd = changed(good, **values)
    compiled = family.compile([good, odd])
    assert set(compiled.unscored) == {1}
    assert reason in compiled.unscored[1]
    seconds, alone = compiled.seconds(fitted), family.compile([odd]).seconds(fitted)
    assert (seconds[0] > 0, seconds[1] > 0, alone[0] > 0) == (True, False, False)
    if family.name in ("operators", "collectives", "modern-training"):
        assert family.parameters([odd]) == ()
