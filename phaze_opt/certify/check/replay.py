"""Replay of schedules: precedence, cores and exclusivity from the definitions of semantics 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import SolvedSchedule
from phaze_opt.certify.check.sharded import PhaseGraph
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Exclusivity

Floats = NDArray[np.float64]
REPLAY_TOLERANCE = 1e-9
"""Overlap that rounding of start times explains, as a share of the makespan."""
_NEEDS = {
    CoreType.TC: (1, 0),
    CoreType.VC: (0, 1),
    CoreType.TC_AND_VC: (1, 1),
    CoreType.NETWORK: (0, 0),
    CoreType.NONE: (0, 0),
}


@dataclass(frozen=True, slots=True)
class PhaseLatencies:
    """Latencies of one phase's operators on one chip, s, its HBM floor, s, and the chip's cores of each type."""

    one_core_s: Floats
    spread_s: Floats
    floor_s: float
    num_cores: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Course:
    """A schedule as it runs: starts and finishes, what takes time on cores, modes, and the cores that each needs."""

    start: Floats
    finish: Floats
    runs: NDArray[np.bool_]
    is_spread: NDArray[np.bool_]
    needs: NDArray[np.int64]
    slack: float


def replay(
    graph: PhaseGraph, schedule: SolvedSchedule, latencies: PhaseLatencies, exclusivity: Exclusivity
) -> float | str:
    """Makespan of a schedule, the floor included, s; or the rule that it breaks."""
    count = len(graph.core_types)
    if len(schedule.start_s) != count or len(schedule.is_spread) != count:
        return f"lists {len(schedule.start_s)} starts and {len(schedule.is_spread)} modes of {count} operators"
    start, is_spread = np.array(schedule.start_s), np.array(schedule.is_spread, dtype=np.bool_)
    needs = np.array([_NEEDS[kind] for kind in graph.core_types], dtype=np.int64).reshape(count, 2)
    on_core = needs.any(axis=1)
    length = np.where(on_core, np.where(is_spread, latencies.spread_s, latencies.one_core_s), 0.0)
    finish = start + length
    if not (np.isfinite(start) & (start >= 0.0)).all():
        return "has a start that is not finite and at least 0"
    makespan = float(max(finish.max(initial=0.0), latencies.floor_s))
    slack = REPLAY_TOLERANCE * makespan
    for before, after in graph.edges:
        if start[after] < finish[before] - slack:
            return f"operator {after} starts before operator {before}, which it needs, ends"
    course = _Course(start, finish, on_core & (length > 2.0 * slack), is_spread, needs, slack)
    fault = _exclusivity_fault(course, exclusivity) or _cores_fault(course, latencies.num_cores)
    return fault or makespan


def _exclusivity_fault(course: _Course, exclusivity: Exclusivity) -> str | None:
    """Nothing runs beside a spread operator (chip), or nothing that shares a core type with it (type)."""
    begins_before = course.start[:, None] < course.finish[None, :] - course.slack
    clashes = begins_before & begins_before.T & (course.runs & course.is_spread)[:, None] & course.runs[None, :]
    if exclusivity is Exclusivity.TYPE:
        clashes &= (course.needs @ course.needs.T) > 0
    np.fill_diagonal(clashes, val=False)
    if not clashes.any():
        return None
    spread, other = (int(position) for position in np.argwhere(clashes)[0])
    return f"operator {other} runs beside operator {spread}, which is spread"


def _cores_fault(course: _Course, num_cores: Sequence[int]) -> str | None:
    """At every start the operators that run need no more cores than there are."""
    for column, name in enumerate(("tensor", "vector")):
        users = np.flatnonzero(course.runs & ~course.is_spread & (course.needs[:, column] > 0))
        for now in course.start[users] + course.slack:
            busy = int(((course.start[users] <= now) & (course.finish[users] - course.slack > now)).sum())
            if busy > num_cores[column]:
                return f"{busy} operators run at once on {num_cores[column]} {name} cores"
    return None
