"""Every family on rows it was not made for, and every measured row scored: predicted, or unscored with a reason."""

import pytest
from kits.measured_rows import public_rows
from kits.odd_rows import check_parts, check_refusal, check_variations

from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.predict import predict_rows
from phaze_opt.validation.schema import LABORATORY
from phaze_opt_lab.pack import PACK

FAMILY_OF = {name: family for family in PACK.families for name in family.datasets}
REFUSED = [
    ("op_neusight_fp32", {"op": "conv"}, "no formula"),
    ("op_neusight_fp32", {"dtype": "fp16"}, "fp16"),
    ("op_neusight_fp32", {"hardware": "Abacus"}, "no machine is named 'Abacus'"),
    ("op_neusight_fp32", {"hardware": "Gaudi2"}, "gaudi2 is no GPU"),
    ("e2e_neusight_fp32", {"dtype": "fp16"}, "fp16"),
    ("e2e_neusight_fp32", {"hardware": "Abacus"}, "Abacus"),
    ("e2e_neusight_fp32", {"hardware": "TPUv5e"}, "tpu-v5e is no GPU"),
]


def test_the_sets_of_the_laboratory_are_those_that_the_package_names():
    assert set(FAMILY_OF) == set(LABORATORY)
    assert {data.name for data in read_datasets(None)[0]} >= set(LABORATORY)
    assert read_datasets(None)[1] == ()


@pytest.mark.parametrize("name", LABORATORY)
@pytest.mark.parametrize("num_rows", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_of_other_machines_and_without_columns_break_nothing(name, num_rows):
    (dataset,), _ = read_datasets(None, [name])
    check_variations(FAMILY_OF[name], dataset, known_constants(), num_rows)


@pytest.mark.parametrize("name", LABORATORY)
def test_measured_rows_are_scored_and_their_parts_add_up(name):
    rows = public_rows(name)
    found = predict_rows([FAMILY_OF[name]], rows, known_constants())
    assert not found.unscored
    check_parts(found, known_constants(), list(range(0, len(rows), max(1, len(rows) // 60))))


@pytest.mark.parametrize("refusal", REFUSED, ids=lambda refusal: f"{refusal[0]}-{refusal[2]}")
def test_what_cannot_be_predicted_says_why(refusal):
    name = refusal[0]
    good = next(row for row in public_rows(name) if row.values.get("k") or "k" not in row.values)
    check_refusal(FAMILY_OF[name], good, refusal, known_constants())
