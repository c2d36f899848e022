"""Sources kept out whole: nothing of theirs reaches their prediction, and models are one by their shape."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from phaze_opt.cost.stacks import option_tables, software_tables
from phaze_opt.cost.suited_software import software_of_machine, suited_software
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.training.compiled import compile_training
from phaze_opt.validation.training.entries import (
    FMS_FSDP,
    LARGE,
    PAX_H100,
    SCALING,
    TORCHTITAN,
    read_entries,
    read_entry,
)
from phaze_opt.validation.training.family import MODERN_TRAINING, SOURCES, predict_left_out, source_of
from phaze_opt.validation.training.parameters import OPTION_PARAMETERS
from phaze_opt.workload.plan import ParallelPlan, Recompute


def rows_of(*names):
    return [row for data in read_datasets(None, list(names))[0] for row in data.rows]


def test_every_training_set_has_a_source_and_one_page_is_one():
    rows = rows_of("train_nemo_h100_fp8", "train_bridge_blackwell")
    assert {source_of(row) for row in rows} == {"NeMo", "Megatron-Bridge"}
    pages = [row for row in rows if "Megatron-Bridge" in row.text("source")]
    assert {source_of(row) for row in pages} == {"Megatron-Bridge"}
    assert set(MODERN_TRAINING.datasets) < set(SOURCES)


def test_what_a_source_measured_does_not_reach_its_prediction():
    """Measured twice as long, a source is predicted the same; another source is not."""
    rows = rows_of(FMS_FSDP, PAX_H100)
    twice = [
        replace(row, values=MappingProxyType({**row.values, "iter_time_s": str(2 * row.number("iter_time_s"))}))
        if row.dataset == FMS_FSDP
        else row
        for row in rows
    ]
    before, after = (predict_left_out(each, load_fitted()) for each in (rows, twice))
    for source in ("fms-fsdp", "JAX-Toolbox"):
        own = [[each for each in found if each.source == source] for found in (before, after)]
        pair = [[(each.predicted_s, each.named_s, each.low_s, each.high_s) for each in found] for found in own]
        is_same = np.allclose(*pair, rtol=1e-9)
        assert is_same == (source == "fms-fsdp")


def test_a_source_is_priced_by_software_measured_elsewhere():
    row = rows_of(TORCHTITAN)[0]
    names = {entry.stack for entry in read_entries(row, without={TORCHTITAN})}
    assert "torchtitan" not in names
    assert len(names) > 1
    assert [entry.stack for entry in read_entries(row)] == ["torchtitan"]


def test_the_range_holds_the_middle():
    rows = rows_of(SCALING, LARGE)
    compiled = compile_training(rows, lambda row: read_entries(row, without={row.dataset}))
    middle, (low, high) = compiled.seconds(load_fitted()), compiled.range_s(load_fitted())
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert (low < high).any()
    for index in range(len(rows)):
        assert sum(part.seconds for part in compiled.explain(load_fitted(), index)) == pytest.approx(middle[index])


def test_models_of_one_shape_are_one_whatever_they_are_called():
    """The 175B of NeMo and of Pax have one shape, and so have the GPTs of two tables of Megatron-LM."""
    label = MODERN_TRAINING.splits["model"]
    rows = rows_of("train_nemo_h100_fp8", PAX_H100)
    shapes = {}
    for row in rows:
        shapes.setdefault(label(row), set()).add((row.dataset, row.text("model")))
    assert any({name for name, _ in own} == {"train_nemo_h100_fp8", PAX_H100} for own in shapes.values())


@pytest.mark.parametrize(
    ("plan", "machine", "length", "has", "lacks"),
    [
        (ParallelPlan(data=8, zero=3), "h100", 4096, {"fms-fsdp", "pax", "torchtitan"}, {"megatron-2021", "maxtext"}),
        (ParallelPlan(tensor=8, pipeline=2), "h100", 4096, {"megatron-core", "megatron-bridge"}, {"fms-fsdp"}),
        (ParallelPlan(data=2, pipeline=2, zero=2), "h100", 4096, {"fms-fsdp", "llm-foundry-h100"}, {"megatron-2021"}),
        (ParallelPlan(tensor=8), "a100-80g", 2048, {"megatron-2021", "megatron-2022"}, {"vtrain-profile", "fms-fsdp"}),
        (ParallelPlan(data=8, zero=3), "h100", 262144, {"torchtitan"}, {"fms-fsdp", "megatron-core"}),
        (ParallelPlan(data=8, zero=3), "tpu-v5p", 2048, {"maxtext"}, {"pax", "fms-fsdp"}),
        (ParallelPlan(data=8, zero=3), "mi300x", 2048, {"fms-fsdp"}, {"maxtext"}),
    ],
)
def test_software_suits_by_machine_sharding_and_length(plan, machine, length, has, lacks):
    found = set(suited_software(plan, load_device(machine), sequence_length=length))
    assert has <= found
    assert found.isdisjoint(lacks)
    assert found <= set(software_of_machine(load_device(machine), sequence_length=length)) | found


def test_where_nothing_was_measured_the_assumed_software_suits():
    plan = ParallelPlan(data=8, zero=3)
    gone = {"train_maxtext_tpu"}
    assert suited_software(plan, load_device("tpu-v5p"), sequence_length=2048, without=gone) == ("maxtext",)


def test_options_come_from_columns_and_change_what_they_say():
    rows = {row.id: read_entry(row) for row in rows_of(TORCHTITAN)}
    eager, compiled, narrow = (rows[f"torchtitan_h00{number}"] for number in (0, 1, 2))
    assert eager.options == ("eager",)
    assert narrow.options == ("compile", "float8-tensorwise")
    assert rows["torchtitan_h011"].options == ("compile", "float8-tensorwise", "async-tp")
    assert eager.row.plan.recompute is Recompute.SELECTIVE
    fitted = load_fitted()
    assert eager.load(fitted).unfused_bytes > compiled.load(fitted).unfused_bytes == 0
    assert eager.load(fitted).fusion != compiled.load(fitted).fusion
    assert "attention" in eager.load(fitted).memory.kept_operators
    assert rows["torchtitan_h019"].load(fitted).tensor_overlap > rows["torchtitan_h018"].load(fitted).tensor_overlap
    assert (
        rows["torchtitan_h022"].load(fitted).narrow_efficiency < rows["torchtitan_h020"].load(fitted).narrow_efficiency
    )


def test_fitted_options_are_stated_ones_and_every_option_is_of_a_software():
    assert {each.group.removeprefix("option/") for each in OPTION_PARAMETERS} <= set(option_tables())
    for name, stated in software_tables().items():
        assert stated.get("extends", "megatron-core") in software_tables(), name
