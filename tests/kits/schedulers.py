"""Small scheduling problems, and their optima by brute force that shares no code with the solvers."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem

_CORES = {CoreType.TC: (1, 0), CoreType.VC: (0, 1), CoreType.TC_AND_VC: (1, 1)}
_DRAWN_TYPES = (CoreType.TC, CoreType.VC, CoreType.TC_AND_VC, CoreType.NONE)


def brute_force_makespan(problem: ScheduleProblem) -> float:
    """Shortest makespan over every choice of modes and every order of placing operators as early as they fit, s.

    Exponential: for at most about 7 operators. Shares no code with the solvers.
    """
    core_types = problem.core_types
    choices = [(False, True) if core_type in _CORES else (False,) for core_type in core_types]
    best = serial_sum(problem)
    for modes in itertools.product(*choices):
        best = _shortest(problem, modes, {}, 0.0, best)
    return max(best, problem.floor_s)


def serial_sum(problem: ScheduleProblem) -> float:
    """Time of one operator after another, each in its faster mode, or the floor, s."""
    times = [
        min(one_core, spread)
        for one_core, spread, core_type in zip(problem.one_core_s, problem.spread_s, problem.core_types, strict=True)
        if core_type in _CORES
    ]
    return max(sum(times), problem.floor_s)


def _shortest(
    problem: ScheduleProblem,
    modes: Sequence[bool],
    placed: dict[int, tuple[float, float]],
    makespan: float,
    best: float,
) -> float:
    """Depth-first over the operators that may come next."""
    if makespan >= best:
        return best
    if len(placed) == len(modes):
        return makespan
    for operator in range(len(modes)):
        before = [i for i, j in problem.edges if j == operator]
        if operator in placed or any(i not in placed for i in before):
            continue
        begin = _earliest(problem, modes, placed, operator, max((placed[i][1] for i in before), default=0.0))
        end = begin + _duration(problem, modes, operator)
        best = _shortest(problem, modes, {**placed, operator: (begin, end)}, max(makespan, end), best)
    return best


def _duration(problem: ScheduleProblem, modes: Sequence[bool], operator: int) -> float:
    if problem.core_types[operator] not in _CORES:
        return 0.0
    return problem.spread_s[operator] if modes[operator] else problem.one_core_s[operator]


def _earliest(
    problem: ScheduleProblem, modes: Sequence[bool], placed: dict[int, tuple[float, float]], operator: int, ready: float
) -> float:
    """First time from ``ready`` on at which the operator fits beside those placed."""
    if problem.core_types[operator] not in _CORES:
        return ready
    duration = _duration(problem, modes, operator)
    times = sorted({ready, *(end for _, end in placed.values() if end > ready)})
    return next(at for at in times if _fits(problem, modes, placed, operator, (at, at + duration)))


def _fits(
    problem: ScheduleProblem,
    modes: Sequence[bool],
    placed: dict[int, tuple[float, float]],
    operator: int,
    span: tuple[float, float],
) -> bool:
    beside = [
        i for i, (begin, end) in placed.items() if problem.core_types[i] in _CORES and begin < span[1] and span[0] < end
    ]
    if any((modes[i] or modes[operator]) and _excludes(problem, i, operator) for i in beside):
        return False
    for moment in [span[0], *(placed[i][0] for i in beside if placed[i][0] > span[0])]:
        now = [operator, *(i for i in beside if placed[i][0] <= moment < placed[i][1])]
        used = [sum(_CORES[problem.core_types[i]][k] for i in now if not modes[i]) for k in range(2)]
        if used[0] > problem.cores.tc or used[1] > problem.cores.vc:
            return False
    return True


def _excludes(problem: ScheduleProblem, first: int, second: int) -> bool:
    if problem.exclusivity is Exclusivity.CHIP:
        return True
    both = zip(_CORES[problem.core_types[first]], _CORES[problem.core_types[second]], strict=True)
    return any(a and b for a, b in both)


def random_problem(seed: int, *, num_operators: int, exclusivity: Exclusivity = Exclusivity.CHIP) -> ScheduleProblem:
    """A small problem with mixed types, sparse precedence and one to three cores of each type."""
    generator = np.random.default_rng(seed)
    core_types = tuple(_DRAWN_TYPES[k] for k in generator.choice(4, size=num_operators, p=(0.4, 0.3, 0.2, 0.1)))
    one_core = generator.integers(1, 30, size=num_operators).astype(float)
    edges = [
        (i, j)
        for i in range(num_operators)
        for j in range(i + 1, num_operators)
        if generator.random() < 1.5 / num_operators
    ]
    return ScheduleProblem(
        core_types=core_types,
        one_core_s=tuple(one_core.tolist()),
        spread_s=tuple(np.round(one_core * generator.uniform(0.3, 1.1, size=num_operators), 2).tolist()),
        edges=tuple(edges),
        cores=Cores(int(generator.integers(1, 4)), int(generator.integers(1, 4))),
        exclusivity=exclusivity,
    )


def relabelled(problem: ScheduleProblem, order: Sequence[int]) -> ScheduleProblem:
    """The same problem with operator ``order[k]`` in place k."""
    position = {operator: k for k, operator in enumerate(order)}
    return replace(
        problem,
        core_types=tuple(problem.core_types[i] for i in order),
        one_core_s=tuple(problem.one_core_s[i] for i in order),
        spread_s=tuple(problem.spread_s[i] for i in order),
        edges=tuple((position[i], position[j]) for i, j in problem.edges),
    )
