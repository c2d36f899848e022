"""Which parts of a plan no measurement of its software covers: features, pairs of them, and degrees far beyond."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from phaze_opt.objective.step.measured_software import SEQUENCE, SoftwareRows, plan_features
from phaze_opt.workload.plan import ParallelPlan, Recompute

FAR = 2
"""A degree more than so many times the largest measured one counts as not measured."""


def unmeasured_parts(plan: ParallelPlan, rows: SoftwareRows) -> tuple[str, ...]:
    """What of a plan no row of its software has, in words; empty if every part was measured.

    A feature that no row has; of features that rows have, a degree more than `FAR` times theirs, or two that never ran
    together. Recomputation counts as one of the features, but not in pairs: it changes what a device computes only.

    Args:
        plan: any plan.
        rows: of the software that it is priced with.
    """
    degrees = plan_features(plan)
    parts = [name for name in degrees if name not in rows.reach]
    known = [name for name in degrees if name in rows.reach]
    parts += [
        f"{name} above {FAR} x {rows.reach[name]}"
        for name in known
        if name != SEQUENCE and degrees[name] > FAR * rows.reach[name]
    ]
    pairs = combinations([name for name in known if name != SEQUENCE], 2)
    parts += [f"{two} with {one}" for one, two in pairs if not any({one, two} <= shape for shape in rows.shapes)]
    if plan.recompute not in rows.recompute:
        parts.append(
            "no recomputation" if plan.recompute is Recompute.NONE else f"{plan.recompute.value} recomputation"
        )
    return tuple(parts)


def machine_gap(rows: SoftwareRows | None, *, software: str, machine: str, dtype: str) -> str:
    """One sentence where a software's constants were not measured on a machine in a number format; else empty."""
    if rows is None:
        return ""
    formats = [each.dtype for each in rows.rows if each.machine == machine]
    if not formats:
        return (
            f"{software} was measured on {', '.join(rows.machines)}, not on {machine}: its shares of peak and of "
            "bandwidth are assumed to be the same there"
        )
    if dtype not in formats:
        return f"{software} was measured on {machine} in {', '.join(sorted(set(formats)))}, not in {dtype}"
    return ""


def model_gap(rows: SoftwareRows | None, *, software: str, num_experts: int, sequence_length: int) -> str:
    """One sentence where no row of a software is like the model: experts, sequences far longer; else empty."""
    if rows is None:
        return ""
    gaps = []
    if num_experts > 1:
        gaps.append("no model with experts was measured with any software")
    if sequence_length > FAR * rows.longest_sequence:
        gaps.append(f"{software} was measured with sequences up to {rows.longest_sequence:,} tokens")
    return "; ".join(gaps)


def shared_and_own(parts: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """Parts that all plans of a table have, and the others with how many of the plans have them, most first."""
    counts: dict[str, int] = {}
    for each in parts:
        for part in each:
            counts[part] = counts.get(part, 0) + 1
    shared = tuple(part for part, count in counts.items() if count == len(parts))
    others = sorted(((part, count) for part, count in counts.items() if count < len(parts)), key=lambda pair: -pair[1])
    return shared, tuple(others)
