"""Training on A100 clusters: rows as plans, goals on rows fitted and kept out, order, rows that others may hold."""

import numpy as np
import pytest
from kits.measured_rows import changed, public_rows
from kits.steps import estimate_step

from phaze_opt.cost.stacks import load_stack
from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.fabrics import GROUP_PREFIX
from phaze_opt.hardware.fitted import load_fitted, read_own_file
from phaze_opt.hardware.networks import load_network
from phaze_opt.validation.fit import without_groups
from phaze_opt.validation.predict import leave_one_out, predict_held_out
from phaze_opt.validation.result import mape
from phaze_opt.validation.training.entries import (
    KORTHIKANTI,
    LARGE,
    LAYER,
    MULTI,
    SC21,
    SCALING,
    SINGLE,
    options_of,
    read_entry,
)
from phaze_opt.validation.training.family import TRAINING
from phaze_opt.validation.training.row import read_training_row, zero_stage
from phaze_opt.workload.plan import Recompute

FAMILY = TRAINING


@pytest.fixture(scope="module")
def rows():
    return public_rows(*FAMILY.datasets)


@pytest.fixture(scope="module")
def compiled(rows):
    return FAMILY.compile(rows)


@pytest.fixture(scope="module")
def errors(rows, compiled):
    """Absolute error of every row in per cent, by data set."""
    ape = 100 * np.abs(compiled.seconds(load_fitted()) / compiled.measured_s - 1)
    return {name: ape[[row.dataset == name for row in rows]] for name in FAMILY.datasets}


def first(rows, dataset):
    return next(row for row in rows if row.dataset == dataset)


@pytest.mark.parametrize(("dataset", "goal"), [(SINGLE, 7.0), (MULTI, 6.0), (SC21, 2.5), (KORTHIKANTI, 3.5)])
def test_goals_are_met_on_the_public_rows(errors, dataset, goal):
    assert errors[dataset].mean() <= goal


@pytest.mark.parametrize(("dataset", "bound"), [(LAYER, 6.0), (SCALING, 7.0), (LARGE, 26.0)])
def test_sets_that_are_only_scored_stay_where_they_are(errors, dataset, bound):
    assert errors[dataset].mean() <= bound


def test_composed_rows_by_cell(rows, errors):
    cells = np.array([FAMILY.cell(row) for row in rows if row.dataset == SINGLE])
    assert len(set(cells)) == 139
    assert np.mean([errors[SINGLE][cells == cell].mean() for cell in set(cells)]) <= 7.0


@pytest.mark.parametrize(("dataset", "least"), [(SINGLE, 0.985), (MULTI, 0.97)])
def test_order_within_a_set(rows, compiled, dataset, least):
    """Four rows of the multi-node set disagree with their neighbours (its README); without them 0.984 is reached."""
    from scipy.stats import spearmanr

    chosen = np.array([row.dataset == dataset for row in rows])
    predicted, measured = compiled.seconds(load_fitted())[chosen], compiled.measured_s[chosen]
    assert spearmanr(predicted, measured).statistic >= least
    own = [row for row in rows if row.dataset == dataset]
    flagged = np.array(
        [
            (row.text("model"), row.text("tp")) == ("GPT-39.1B", "2")
            or (row.text("model"), row.text("tp"), row.text("micro_batch")) == ("GPT-3.6B", "4", "2")
            for row in own
        ]
    )
    assert flagged.sum() == (4 if dataset == MULTI else 0)
    assert spearmanr(predicted[~flagged], measured[~flagged]).statistic >= 0.984


KEPT_OUT_GOALS = {"hidden": {SINGLE: 9.0}, "model": {MULTI: 6.5, SC21: 3.0, KORTHIKANTI: 4.0}}


def test_sizes_and_models_kept_out_by_the_packages_record():
    recorded = read_own_file().sets
    for test, goals in KEPT_OUT_GOALS.items():
        for dataset, goal in goals.items():
            assert 0 < recorded[dataset][f"leave_one_{test}_out_mape"] <= goal


@pytest.mark.slow
@pytest.mark.parametrize(("test", "goals"), KEPT_OUT_GOALS.items())
def test_sizes_and_models_kept_out_of_the_fit(rows, compiled, test, goals):
    folds = leave_one_out([FAMILY.splits[test](row) for row in rows])
    predicted = predict_held_out(FAMILY, rows, folds, load_fitted())
    for dataset, goal in goals.items():
        chosen = [index for index, row in enumerate(rows) if row.dataset == dataset]
        error = mape(predicted[chosen], compiled.measured_s[chosen])
        assert error <= goal
        assert error == pytest.approx(read_own_file().sets[dataset][f"leave_one_{test}_out_mape"], rel=0.02)


def test_fits_are_the_constants_of_the_package(rows):
    """Thirteen constants, refitted from scratch: what the file holds is what the rows say."""
    parameters = FAMILY.parameters(rows)
    assert len(parameters) == 13
    found = FAMILY.fit(rows, without_groups(load_fitted(), {each.group for each in parameters}))
    for each in parameters:
        assert each.low < found.value(each.group, each.name) < each.high
        assert found.value(each.group, each.name) == pytest.approx(
            load_fitted().value(each.group, each.name), rel=0.03, abs=1e-6
        )


@pytest.mark.parametrize("dataset", [MULTI, SC21, KORTHIKANTI, SCALING, LARGE])
def test_rows_take_what_estimate_step_says(rows, compiled, dataset):
    """The product's path and the room's are one."""
    fitted = load_fitted()
    seconds = compiled.seconds(fitted)
    for index, row in enumerate(rows):
        if row.dataset != dataset or row.values.get("sharding") == "zero3":
            continue
        read, software = read_training_row(row), "megatron-2022" if dataset == KORTHIKANTI else "megatron-2021"
        name = "vtrain-a100" if dataset == MULTI else read.device.network
        found = estimate_step(
            read.model,
            read.training,
            read.plan,
            device=read.device,
            network=load_network(name, num_devices=read.plan.num_devices),
            stack=load_stack(software, fitted, options_of(row, software)),
            fitted=fitted,
            path=ComputePath.BF16,
        )
        assert found.seconds == pytest.approx(seconds[index], rel=1e-12)


def test_blank_micro_batches_are_the_replicas_without_stages_and_one_with_them(rows):
    plans = {row.text("model"): read_training_row(row).plan for row in rows if row.dataset == SC21}
    assert (plans["GPT-1.7B"].micro_batch, plans["GPT-145.6B"].micro_batch) == (16, 1)
    assert plans["GPT-145.6B"].interleave == 1
    base = first(rows, SC21)
    # 32 and 24 sequences a replica: no more than 16 at a time, of equal parts.
    sizes = [read_training_row(changed(base, global_batch=str(32 * each))).plan.micro_batch for each in (32, 24, 8)]
    assert sizes == [16, 8, 8]


def test_composed_rows_are_priced_without_recomputation(rows, compiled):
    """Their column assumes it: taken at its word, the layers would need more than the peak (decision 0174)."""
    row = first(rows, SINGLE)
    assert read_training_row(row).plan.recompute is Recompute.FULL
    seconds = FAMILY.compile([row, changed(row, recompute="none")]).seconds(load_fitted())
    assert seconds[0] == seconds[1]


@pytest.mark.parametrize(
    ("text", "stage"),
    [("none", 0), ("zero3", 3), ("full_shard", 3), ("optimizer states (distributed optimizer) assumed", 1)],
)
def test_sharding_is_read_from_free_text(text, stage):
    assert zero_stage(text) == stage


def test_rows_of_the_other_half_are_scored(rows):
    """Degrees and models that the public half lacks: a trillion parameters on 3072 devices, other precisions."""
    base = first(rows, SC21)
    sizes = {"layers": "128", "hidden": "25600", "heads": "160", "kv_heads": "160", "head_dim": "160", "ffn": "102400"}
    degrees = {"n_devices": "3072", "tp": "8", "pp": "64", "dp": "6", "global_batch": "3072"}
    huge = changed(base, model="GPT-1T", **sizes, **degrees)
    seconds = FAMILY.compile([huge, changed(base, dtype="bf16")]).seconds(load_fitted())
    # Eight FLOPs a parameter and token, recomputation inside; SC21 reports 44 to 52 per cent for its models.
    assert 0.44 < 8 * 1.008e12 * 3072 * 2048 / (seconds[0] * 3072 * 312e12) < 0.55
    # Gradients of bf16 are added up and sent in 32 bits.
    assert 1.0 < seconds[1] / FAMILY.compile([base]).seconds(load_fitted())[0] < 1.3


def test_malformed_values_name_file_line_and_column(rows):
    row = changed(first(rows, MULTI), layers="many")
    with pytest.raises(InputError, match=rf"{row.line}.*layers.*'many' is no number"):
        FAMILY.compile([row])


@pytest.mark.parametrize("dataset", [SINGLE, SC21])
def test_collectives_run_at_the_curves_of_the_constants_given(rows, dataset):
    """Links of half the bandwidth and twice the latency: the step takes what the product says of such a network."""
    own = [row for row in rows if row.dataset == dataset and row.integer("tp", 1) > 1][:3]
    compiled = FAMILY.compile(own)
    fitted = load_fitted()
    slow = fitted.updated(
        {
            name: {
                **values,
                "bandwidth_bytes_per_s": values["bandwidth_bytes_per_s"] / 2,
                **{late: 1e-4 for late in ("doubling_s", "hop_s") if late in values},
            }
            for name, values in fitted.groups.items()
            if name.startswith(GROUP_PREFIX) and "bandwidth_bytes_per_s" in values
        }
    )
    before, after = compiled.seconds(fitted), compiled.seconds(slow)
    assert (after > 1.005 * before).all()
    for entry, seconds in zip(map(read_entry, own), after, strict=True):
        if entry.stack == "vtrain-profile" and entry.row.plan.tensor == entry.row.plan.num_devices:
            continue
        found = estimate_step(
            entry.row.model,
            entry.row.training,
            entry.row.plan,
            device=entry.row.device,
            network=load_network(entry.network, num_devices=entry.row.plan.num_devices, fitted=slow),
            stack=load_stack(entry.stack, slow),
            fitted=slow,
            path=entry.path,
        )
        assert found.seconds == pytest.approx(seconds, rel=1e-12)
    # Compiled rows keep no curve of their own: the first constants give the first times again.
    assert (compiled.seconds(fitted) == before).all()
