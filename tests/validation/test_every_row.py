"""Every family on rows it was not made for: predicted or unscored with a reason, never an exception."""

from types import MappingProxyType

import numpy as np
import pytest

from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.validation.baselines import fit_baselines
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.predict import predict_rows
from phaze_opt.validation.registry import load_families
from phaze_opt.validation.row import Row
from phaze_opt.validation.schema import CONTEXT, DATASET_SCHEMAS
from phaze_opt.validation.validate import validate

DEVICES = ("MI300X", "B200-SXM", "Gaudi3", "TPUv5e", "V100-SXM3-32GB", "L4", "a machine of tomorrow")
DTYPES = ("fp8", "fp32", "tf32", "bf16", "fp4")
NUM_ROWS = 2


@pytest.fixture(scope="module")
def datasets():
    return {dataset.name: dataset for dataset in read_datasets(None)[0]}


@pytest.fixture(scope="module")
def families():
    return load_families()


def changed(row, **values):
    return Row(row.dataset, row.source, row.line, MappingProxyType({**row.values, **values}))


def variations(dataset):
    """A few rows, with other devices, other types, and without one optional column at a time."""
    step = max(1, len(dataset.rows) // NUM_ROWS)
    rows = dataset.rows[::step][:NUM_ROWS]
    columns = dataset.schema.columns
    changes = [{"hardware": name} for name in DEVICES if "hardware" in columns]
    changes += [{"dtype": name} for name in DTYPES if "dtype" in columns]
    changes += [{name: ""} for name, column in columns.items() if not column.is_required and name in rows[0].values]
    return [changed(row, **change) for change in changes for row in rows]


@pytest.mark.parametrize("name", sorted(set(DATASET_SCHEMAS) - {"mlperf_gpt3"}))
def test_rows_of_other_machines_and_without_columns_break_nothing(name, datasets, families):
    rows = variations(datasets[name])
    family = next(family for family in families if name in family.datasets)
    fitted = load_fitted()
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


def test_the_public_half_is_scored_and_explained(datasets, families):
    every = list(datasets.values())
    result = validate(every, families, load_fitted(), baselines=fit_baselines(every))
    for entry in result.sets:
        if entry.name in CONTEXT:
            continue
        assert entry.scores.num_rows >= 0.95 * len(entry.rows), entry.unscored_reasons
        assert len(entry.worst) == min(10, entry.scores.num_rows)
        assert all(result.regime for result in entry.rows if not result.reason)
        for worst in entry.worst:
            total = sum(part.seconds for part in worst.parts)
            assert np.isclose(total, worst.result.predicted_s, rtol=1e-6), (entry.name, worst.result.row.id)
