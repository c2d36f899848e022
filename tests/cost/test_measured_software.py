"""What was measured of each software: the statement equals the public rows, and plans are held against it."""

from functools import cache
from itertools import combinations

import pytest

from phaze_opt.cost.stacks import (
    MeasuredOn,
    SoftwareRows,
    list_stacks,
    machine_gap,
    machines_of,
    measured_rows,
    model_gap,
    plan_features,
    rows_like,
    shared_and_own,
    software_measured_on,
    unmeasured_parts,
    usual_software,
)
from phaze_opt.hardware.device import MatrixStyle
from phaze_opt.hardware.device_catalogue import list_devices, load_device
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.training.compiled import TrainingEntry
from phaze_opt.validation.training.entries import read_entry
from phaze_opt.validation.training.family import SOURCES
from phaze_opt.workload.plan import ParallelPlan, Recompute

SETS = list(SOURCES)


@cache
def entries() -> dict[str, list[tuple[TrainingEntry, str]]]:
    """Public rows by the software that predicts them."""
    found: dict[str, list[tuple[TrainingEntry, str]]] = {}
    for data in read_datasets(None, SETS)[0]:
        for entry in map(read_entry, data.rows):
            found.setdefault(entry.stack, []).append((entry, data.name))
    return found


def rows_of(software: str) -> SoftwareRows:
    found = measured_rows(software)
    assert found is not None
    return found


def test_every_measured_software_is_stated_and_no_other() -> None:
    assert {name for name in list_stacks() if measured_rows(name) is not None} == set(entries())


@pytest.mark.parametrize("software", [name for name in list_stacks() if measured_rows(name) is not None])
def test_the_statement_equals_the_rows(software: str) -> None:
    """Machines, formats and data sets, recomputation, degrees, and every pair of features that ran together."""
    stated, rows = rows_of(software), entries()[software]
    assert set(stated.rows) == {MeasuredOn(e.row.device.name, str(e.path), dataset) for e, dataset in rows}
    plans = [entry.row.plan for entry, _ in rows]
    assert stated.recompute == {plan.recompute for plan in plans}
    assert stated.longest_sequence == max(entry.row.training.sequence_length for entry, _ in rows)
    used = [plan_features(plan) for plan in plans]
    names = {name for each in used for name in each}
    assert dict(stated.reach) == {name: max(each.get(name, 0) for each in used) for name in names}
    ran = {frozenset(pair) for each in used for pair in combinations(each, 2)}
    assert {frozenset(pair) for shape in stated.shapes for pair in combinations(shape, 2)} == ran


@pytest.mark.parametrize("software", [name for name in list_stacks() if measured_rows(name) is not None])
def test_what_was_measured_has_no_gap(software: str) -> None:
    for entry, _ in entries()[software]:
        assert unmeasured_parts(entry.row.plan, rows_of(software)) == ()
        gap = machine_gap(rows_of(software), software=software, machine=entry.row.device.name, dtype=str(entry.path))
        assert gap == ""


@pytest.mark.parametrize(
    ("plan", "parts"),
    [
        (ParallelPlan(tensor=8, pipeline=4, data=16, zero=1, interleave=5, is_sequence_parallel=True), ()),
        (ParallelPlan(data=8, zero=3), ()),
        (ParallelPlan(tensor=2, data=8, zero=3), ("ZeRO 3 with tensor parallel",)),
        (ParallelPlan(data=16, zero=3), ()),
        (ParallelPlan(data=32, zero=3), ("ZeRO 3 above 2 x 8",)),
        (ParallelPlan(tensor=4, data=2, context=2, zero=1), ("context parallel",)),
        (ParallelPlan(data=64), ("replicas without ZeRO",)),
        (ParallelPlan(data=64, zero=1, state_shards=8), ("hybrid sharding",)),
        (ParallelPlan(data=64, zero=1, recompute=Recompute.FULL), ("full recomputation",)),
        (ParallelPlan(pipeline=33, data=2, zero=1), ("pipeline above 2 x 16",)),
    ],
)
def test_what_no_row_of_megatron_core_has_is_named(plan: ParallelPlan, parts: tuple[str, ...]) -> None:
    assert unmeasured_parts(plan, rows_of("megatron-core")) == parts


def test_models_that_no_row_is_like_are_said() -> None:
    rows = rows_of("megatron-2022")
    assert model_gap(rows, software="megatron-2022", num_experts=1, sequence_length=4096) == ""
    both = model_gap(rows, software="megatron-2022", num_experts=8, sequence_length=8192)
    assert both.split("; ") == [
        "no model with experts was measured with megatron-2022",
        "megatron-2022 was measured with sequences up to 2,048 tokens",
    ]
    assert model_gap(None, software="ideal", num_experts=8, sequence_length=8192) == ""
    models = [entry.row.model for each in entries().values() for entry, _ in each]
    assert {model.num_experts for model in models} == {1}


def test_rows_of_2021_always_recompute() -> None:
    assert unmeasured_parts(ParallelPlan(data=8), rows_of("megatron-2021")) == ("no recomputation",)


def test_another_machine_or_format_is_one_sentence() -> None:
    rows = rows_of("megatron-core")
    assert machine_gap(rows, software="megatron-core", machine="b200", dtype="bf16") == (
        "megatron-core was not measured on b200: its shares of peak and of bandwidth are assumed to be those on h100"
    )
    text = machine_gap(rows_of("llm-foundry"), software="llm-foundry", machine="a100-80g", dtype="fp8")
    assert text == "llm-foundry was measured on a100-80g in bf16, not in fp8"
    assert machine_gap(None, software="ideal", machine="b200", dtype="bf16") == ""


@pytest.mark.parametrize(
    ("machine", "software"),
    [
        ("h100", "megatron-core"),
        ("a100-80g", "megatron-2022"),
        ("tpu-v5p", "maxtext"),
        ("tpu-v6e", "maxtext-offload"),
        ("b200", "megatron-bridge"),
        ("h100-gt", "torchtitan"),
        ("mi300x", None),
    ],
)
def test_software_of_a_machine(machine: str, software: str | None) -> None:
    assert load_device(machine).name == machine
    assert software_measured_on(machine) == software


def test_machines_that_nobody_measured_take_the_nearest_software_by_rule() -> None:
    """GPUs that of the newest GPUs, systolic machines and designed chips that of TPUs; never an ideal one."""
    for name in list_devices():
        device = load_device(name)
        measured = software_measured_on(name)
        rule = "megatron-core" if device.style is MatrixStyle.TILES else "maxtext"
        assert usual_software(device) == ((rule, False) if measured is None else (measured, True)), name
    assert [usual_software(load_device(name))[0] for name in ("mi300x", "gaudi2", "tpu-v3")] == [
        "megatron-core", "maxtext", "maxtext",
    ]  # fmt: skip
    assert usual_software(None) == ("maxtext", False)


def test_rows_like_a_machine_and_their_machines() -> None:
    rows = rows_of("megatron-core")
    assert rows_like(rows, machine="mi300x", dtype="bf16") is rows
    assert rows_like(rows, machine="h100", dtype="fp8").datasets == ("train_nemo_h100_fp8",)
    foundry = rows_of("llm-foundry")
    assert rows_like(foundry, machine="a100-80g", dtype="fp8").machines == ("a100-80g",)
    assert {"a100-40g", "a100-80g", "h100"} == set(machines_of(foundry.datasets))


def test_parts_that_all_plans_share_are_told_apart() -> None:
    shared, others = shared_and_own([("a", "b"), ("a",), ("c", "a", "b")])
    assert shared == ("a",)
    assert others == (("b", 2), ("c", 1))
    assert shared_and_own([]) == ((), ())
