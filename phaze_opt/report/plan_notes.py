"""What the prices of plans rest on: measurements of the software, in sentences for tables and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phaze_opt.hardware.fitted import FittedGroup
from phaze_opt.objective.step.measured_software import (
    SoftwareRows,
    machine_gap,
    measured_rows,
    model_gap,
    shared_and_own,
    unmeasured_parts,
    usual_zero,
)
from phaze_opt.objective.step.plan_search import RankedPlan

ERROR = "cross_validated_mape"
"""Figure of a data set in the file of constants: mean error of rows that were kept out of the fit, per cent."""
CALIBRATED = "phaze-opt calibrate"
"""What the file of constants names as the source of groups that the command fitted."""
STEPS = "train_"
"""Beginning of the names of data sets of whole steps."""
MARK = "*"
MOST_NAMED = 4


def coverage_note(plans: Sequence[RankedPlan], software: str) -> tuple[str, tuple[str, ...]]:
    """Which plans rest on what was never measured with a software.

    Returns:
        one clause, empty if every part of every plan was measured or the software is measured nowhere, and for each
        plan a mark, or nothing; what all of them share marks none.
    """
    rows = measured_rows(software)
    if rows is None or not plans:
        return "", ("",) * len(plans)
    parts = [unmeasured_parts(each.plan, rows) for each in plans]
    shared, others = shared_and_own(parts)
    marks = tuple(MARK if set(each) - set(shared) else "" for each in parts)
    clauses = []
    if others:
        clauses.append(f"{MARK} has parts that no measurement of {software} covers: {_named(others)}")
    if shared:
        who = "all of these have" if len(plans) > 1 else "it has"
        clauses.append(f"{who} what no measurement of {software} covers: {', '.join(shared)}")
    return "; ".join(clauses), marks


def _named(counts: Sequence[tuple[str, int]]) -> str:
    shown = [f"{part} ({count})" for part, count in counts[:MOST_NAMED]]
    rest = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {rest} more (--json names all)" if rest else "")


def software_notes(
    software: str,
    *,
    machine: str,
    dtype: str,
    is_chosen: bool,
    is_zero_named: bool,
    gradients: tuple[int, int, str],
    num_experts: int,
    sequence_length: int,
    errors: Mapping[str, Mapping[str, float]],
    own_fit: str = "",
) -> tuple[str, ...]:
    """Sentences on a software that plans are priced with; none on one that is measured nowhere.

    Args:
        software: its name.
        machine: what plans are priced on.
        dtype: format of its matmuls.
        is_chosen: whether the machine decided on it, as the user named none.
        is_zero_named: whether the user named ZeRO stages.
        gradients: bytes of a gradient, as priced and as the software has them, and where the latter is known from.
        num_experts: of a block of the model; 1 without any.
        sequence_length: tokens.
        errors: figures by data set, as the file of constants holds them.
        own_fit: what the user fitted the software's constants to; then published rows say nothing of them.
    """
    rows = measured_rows(software)
    if rows is None:
        return ()
    notes = []
    if is_chosen:
        notes.append(f"software {software}, as measured on {machine}; --software names another, ideal among them")
    stage = usual_zero(software)
    if stage and not is_zero_named:
        notes.append(f"ZeRO {stage} unless --zero says otherwise: {software} was never measured without")
    gaps = (
        own_fit or machine_gap(rows, software=software, machine=machine, dtype=dtype),
        model_gap(rows, software=software, num_experts=num_experts, sequence_length=sequence_length),
    )
    notes += [gap for gap in gaps if gap]
    notes.append(gradient_note(*gradients))
    error = error_note(rows, errors)
    if error and not own_fit:
        notes.append(f"steps of {software} that were kept out of its fit are predicted with a mean error of {error}")
    return tuple(notes)


def own_fit_note(software: str, groups: Sequence[FittedGroup]) -> str:
    """What a software's constants rest on where ``phaze-opt calibrate`` fitted them to rows of the user's; else empty.

    Args:
        software: its name.
        groups: of the file of constants in force, that hold constants of the software.
    """
    own = [group for group in groups if group.source == CALIBRATED]
    if not own:
        return ""
    number = len({(name, row) for group in own for name, rows in group.datasets.items() for row in rows})
    figures = own[-1].residuals
    words = [
        f"{what} {figures[key]:.1f} %"
        for key, what in (("mape", "mean error"), (ERROR, "of rows kept out"))
        if key in figures
    ]
    noun = "row" if number == 1 else "rows"
    return f"constants of {software} were fitted to {number} {noun} of your own, and speak of their machines" + (
        f" ({', '.join(words)})" if words else ""
    )


def gradient_note(priced: int, own: int, source: str) -> str:
    """How wide gradients are, held and sent."""
    if priced != own:
        return f"gradients are held and sent in {8 * priced} bits as asked; the software was measured with {8 * own}"
    other = 32 if own == 2 else 16
    return f"gradients are held and sent in {8 * own} bits ({source}); --gradient-bits {other} for the other width"


def error_note(rows: SoftwareRows, errors: Mapping[str, Mapping[str, float]]) -> str:
    """Errors of steps kept out, by data set; empty if the file of constants has none."""
    steps = [name for name in rows.datasets if name.startswith(STEPS)]
    found = [(name, errors[name][ERROR]) for name in steps if ERROR in errors.get(name, {})]
    return ", ".join(f"{value:.1f} % ({name.removeprefix(STEPS)})" for name, value in found)
