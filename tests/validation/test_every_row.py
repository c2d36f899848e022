"""Every family on rows it was not made for: predicted or unscored with a reason, never an exception."""

from unittest.mock import patch

import numpy as np
import pytest
from kits.measured_rows import public_rows
from kits.odd_rows import check_parts, check_refusal, check_variations

from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.validation.baselines import fit_baselines
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.predict import FAMILIES, load_families, predict_rows
from phaze_opt.validation.schema import CONTEXT, DATASET_SCHEMAS, LABORATORY
from phaze_opt.validation.validate import validate


@pytest.fixture(scope="module")
def datasets():
    return {dataset.name: dataset for dataset in read_datasets(None)[0]}


@pytest.fixture(scope="module")
def families():
    return load_families()


@pytest.mark.parametrize("name", sorted(set(DATASET_SCHEMAS) - {"mlperf_gpt3", *LABORATORY}))
@pytest.mark.parametrize("num_rows", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_of_other_machines_and_without_columns_break_nothing(name, num_rows, datasets, families):
    family = next(family for family in families if name in family.datasets)
    check_variations(family, datasets[name], load_fitted(), num_rows)


@pytest.fixture(scope="module")
def validated(datasets, families):
    """All public rows validated, and what was predicted of each set."""
    found = []

    def kept(*arguments):
        found.append(predict_rows(*arguments))
        return found[-1]

    every = list(datasets.values())
    with patch("phaze_opt.validation.validate.predict_rows", kept):
        return validate(every, families, load_fitted(), baselines=fit_baselines(every)), found


def test_the_public_half_is_scored_and_explained(validated):
    for entry in validated[0].sets:
        if entry.name in CONTEXT:
            continue
        assert entry.scores.num_rows >= 0.95 * len(entry.rows), entry.unscored_reasons
        assert len(entry.worst) == min(10, entry.scores.num_rows)
        assert all(result.regime for result in entry.rows if not result.reason)
        for worst in entry.worst:
            total = sum(part.seconds for part in worst.parts)
            assert np.isclose(total, worst.result.predicted_s, rtol=1e-6), (entry.name, worst.result.row.id)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_public_rows_are_scored_and_their_parts_add_up(family, validated):
    own = [
        (predictions, index)
        for predictions in validated[1]
        for index, other in enumerate(predictions.families)
        if other is not None and other.name == family.name
    ]
    assert own
    scored = [(predictions, index) for predictions, index in own if predictions.is_scored[index]]
    assert len(scored) == len(own) or family.name in ("silicon", "dies")
    for predictions, index in scored[:: max(1, len(scored) // 60)]:
        check_parts(predictions, load_fitted(), [index])


REFUSED = [
    ("collective_all_reduce", {"hardware": "Abacus"}, "Abacus"),
    ("collective_all_reduce", {"collective": "broadcast"}, "broadcast"),
    ("collective_all_reduce", {"n_devices": 9, "n_nodes": 2}, "no group of equal nodes"),
    ("collective_all_reduce", {"n_devices": 1}, "no group of equal nodes"),
    ("op_llmcompass", {"hardware": "Abacus"}, "no machine is named"),
    ("op_llmcompass", {"dtype": "fp3"}, "dtype 'fp3' is unknown"),
    ("op_llmcompass", {"dtype": "fp8"}, "has no fp8 path"),
    ("op_llmcompass", {"op": "sort", "k": ""}, "no model of the operator 'sort'"),
    ("op_llmcompass", {"op": "softmax", "k": "", "hardware": "TPUv6e"}, "on GPUs alone"),
    ("op_llmcompass", {"op": "allreduce_mha", "k": "", "n_devices": 3, "n_nodes": 2}, "equal nodes"),
    ("train_vtrain_multinode", {"hardware": "A1000"}, "no machine is named 'A1000'"),
    ("train_vtrain_multinode", {"dtype": "fp8"}, "has no fp8 path"),
    ("train_vtrain_multinode", {"tp": 5, "n_devices": 60}, "do not divide by tensor parallel degree 5"),
    ("train_maxtext_tpu", {"hardware": "TPUv99"}, "TPUv99"),
]


@pytest.mark.parametrize("refusal", REFUSED, ids=lambda refusal: f"{refusal[0]}-{refusal[2]}")
def test_what_cannot_be_predicted_says_why(refusal):
    name = refusal[0]
    family = next(family for family in load_families() if name in family.datasets)
    good = next(row for row in public_rows(name) if row.values.get("k") or "k" not in row.values)
    check_refusal(family, good, refusal, load_fitted())
