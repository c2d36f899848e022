"""Core rows that an answer of the ordering model breaks, to be added to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice
from typing import Any

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.highs import MipAnswer
from phaze_opt.schedule.ordering_model import core_row

# Latencies are scaled so that the makespan is this; suits HiGHS's absolute tolerances of 1e-9.
SCALE = 100.0
MAX_ROWS_PER_ROUND = 60


def broken_core_rows(model: Any, problem: BlockProblem, answer: MipAnswer) -> list[Any]:
    """Rows for the sets of operators that run at once on too few cores in a model's answer (lazy core rows)."""
    rows: list[Any] = []
    start = [answer.value(model.start[i]) for i in range(len(problem))]
    is_spread = [i in problem.spreadable and answer.value(model.spread[i]) > 0.5 for i in range(len(problem))]
    for bit in problem.scarce_types:
        num_cores = problem.cores_of(bit)
        for crowd in crowds(problem, start, is_spread, operators=problem.of_type(bit), num_cores=num_cores):
            rows.append(core_row(model, problem, crowd, num_cores=num_cores))
            chosen = islice(combinations(crowd, num_cores + 1), MAX_ROWS_PER_ROUND)
            if len(crowd) > num_cores + 1:
                rows.extend(core_row(model, problem, part, num_cores=num_cores) for part in chosen)
    return rows


def crowds(
    problem: BlockProblem,
    start: Sequence[float],
    is_spread: Sequence[bool],
    *,
    operators: Sequence[int],
    num_cores: int,
) -> list[tuple[int, ...]]:
    """Maximal sets of unspread operators that overlap at the start of one of them and exceed the cores."""
    slack = 1e-7 * SCALE
    found: list[tuple[int, ...]] = []
    for probe in operators:
        now = start[probe] + slack
        crowd = tuple(
            i
            for i in operators
            if not is_spread[i] and start[i] <= now and start[i] + problem.one_core[i] > now + slack
        )
        if len(crowd) > num_cores and crowd not in found:
            found.append(crowd)
    return found
