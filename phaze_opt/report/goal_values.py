"""Values of a goal as people read them: samples/s, or samples/s per kW of TDP; files and JSON keep samples/s/W."""

from __future__ import annotations

from phaze_opt.objective.goals import Goal

UNITS = {Goal.THROUGHPUT: "samples/s", Goal.THROUGHPUT_PER_TDP: "samples/s/kW"}
WATTS_PER_KILOWATT = 1000.0


def shown_value(goal: Goal, value: float) -> float:
    """A value of a goal in the unit of `UNITS`.

    Args:
        goal: throughput or throughput per TDP.
        value: samples/s, or samples/s/W.
    """
    return value * WATTS_PER_KILOWATT if goal is Goal.THROUGHPUT_PER_TDP else value


def format_value(goal: Goal, value: float) -> str:
    """A value of the goal with enough digits to tell an incumbent from its bound, or from the runner-up."""
    value = shown_value(goal, value)
    return f"{value:,.1f}" if value >= 1000.0 else f"{value:.6g}"
