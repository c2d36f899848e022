"""Training software in tables: what it fuses and overlaps, and which measurements its constants come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phaze_opt.objective.step.measured_software import SoftwareRows, measured_rows
from phaze_opt.report.content import Column, TableContent
from phaze_opt.report.plan_notes import ERROR
from phaze_opt.workload.stack import TrainingStack


def choices_table(stacks: Sequence[TrainingStack]) -> TableContent:
    """Kernels, gradients and overlaps of each."""
    rows = tuple(
        (
            stack.name,
            stack.fusion.value,
            stack.attention.value,
            str(8 * stack.gradient_bytes),
            " ".join(f"{share:.2f}" for share in (stack.tensor_overlap, stack.data_overlap, stack.parameter_overlap)),
        )
        for stack in stacks
    )
    columns = (
        Column("software"),
        Column("kernels fused"),
        Column("attention"),
        Column("bits", is_number=True),
        Column("overlap t, g, p", is_number=True),
    )
    note = (
        "bits: of a gradient, held and sent; overlap: shares that hide behind compute, of tensor-parallel traffic, "
        "of what replicas send once a step and of what ZeRO 2 and 3 send every micro-batch; all constants with --json"
    )
    return TableContent("Training software", columns, rows, note)


def measured_table(names: Sequence[str], errors: Mapping[str, Mapping[str, float]]) -> TableContent:
    """Machine and data set of each software's rows; `errors` has figures by data set."""
    rows = []
    for name in names:
        measured = measured_rows(name)
        if measured is None:
            rows.append((name, "none", "", ""))
            continue
        for each in measured.rows:
            error = errors.get(each.dataset, {}).get(ERROR)
            shown = "" if error is None else f"{error:.1f}"
            rows.append((name, f"{each.machine} {each.dtype}", each.dataset.removeprefix("train_"), shown))
    columns = (Column("software"), Column("machine"), Column("data set"), Column("error, %", is_number=True))
    note = "error: mean of rows of the data set that were kept out of the fit, over all its machines"
    return TableContent("Measured on", columns, tuple(rows), note)


def features_table(names: Sequence[str]) -> TableContent:
    """Largest degree of each parallel feature, and recomputation, of each software's rows."""
    found = [(name, measured_rows(name)) for name in names]
    rows = tuple((name, _degrees(each), _recompute(each)) for name, each in found if each is not None)
    columns = (Column("software"), Column("parallel features, to degree"), Column("recomputation"))
    note = "`evaluate` marks plans with features that no row has; degrees of ZeRO are devices that share the state"
    return TableContent("What was measured", columns, rows, note)


def _degrees(rows: SoftwareRows) -> str:
    return ", ".join(f"{name} {degree}" for name, degree in rows.reach.items())


def _recompute(rows: SoftwareRows) -> str:
    return ", ".join(sorted(each.value for each in rows.recompute))
