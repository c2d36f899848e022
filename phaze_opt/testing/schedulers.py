"""Conformance suite of schedulers: what any solver of `ScheduleProblem` must satisfy.

Apply it by subclassing `SchedulerConformance` in a test module and overriding nothing but the ``scheduler`` fixture::

    class TestMyScheduler(SchedulerConformance):
        @pytest.fixture
        def scheduler(self):
            return my_solve  # (problem, *, time_limit_s) -> ScheduleResult
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pytest

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem, ScheduleResult, ScheduleStatus
from phaze_opt.schedule.verify import verify_schedule

TOLERANCE = 1e-6
_CORES = {CoreType.TC: (1, 0), CoreType.VC: (0, 1), CoreType.TC_AND_VC: (1, 1)}
_DRAWN_TYPES = (CoreType.TC, CoreType.VC, CoreType.TC_AND_VC, CoreType.NONE)


class Scheduler(Protocol):
    """Anything that solves a scheduling problem within a time limit."""

    def __call__(self, problem: ScheduleProblem, *, time_limit_s: float) -> ScheduleResult:
        """Solve one problem."""
        ...


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
    problem: ScheduleProblem,
    modes: Sequence[bool],
    placed: dict[int, tuple[float, float]],
    operator: int,
    ready: float,
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


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
class SchedulerConformance:
    """Tests that every exact scheduler passes."""

    @pytest.fixture
    def scheduler(self) -> Scheduler:
        """The scheduler under test."""
        message = "override the scheduler fixture"
        raise NotImplementedError(message)

    @pytest.mark.parametrize("seed", range(8))
    def test_replay_confirms_and_bounds_hold(self, scheduler: Scheduler, exclusivity: Exclusivity, seed: int) -> None:
        """Replay confirms; lower bound <= makespan <= serial sum."""
        problem = random_problem(seed, num_operators=9, exclusivity=exclusivity)
        result = scheduler(problem, time_limit_s=30.0)
        verify_schedule(problem, result)
        assert result.lower_bound_s <= result.makespan_s * (1 + TOLERANCE)
        assert result.makespan_s <= serial_sum(problem) * (1 + TOLERANCE)

    @pytest.mark.parametrize("seed", range(100, 112))
    def test_equals_brute_force(self, scheduler: Scheduler, exclusivity: Exclusivity, seed: int) -> None:
        """Six operators: the optimum."""
        problem = random_problem(seed, num_operators=6, exclusivity=exclusivity)
        result = scheduler(problem, time_limit_s=30.0)
        assert result.status is ScheduleStatus.OPTIMAL
        assert result.makespan_s == pytest.approx(brute_force_makespan(problem), rel=TOLERANCE)

    @pytest.mark.parametrize("seed", range(200, 204))
    def test_relabelling_changes_nothing(self, scheduler: Scheduler, exclusivity: Exclusivity, seed: int) -> None:
        """The makespan does not depend on how operators are numbered."""
        problem = random_problem(seed, num_operators=8, exclusivity=exclusivity)
        order = np.random.default_rng(seed).permutation(8).tolist()
        first = scheduler(problem, time_limit_s=30.0)
        second = scheduler(relabelled(problem, order), time_limit_s=30.0)
        assert second.makespan_s == pytest.approx(first.makespan_s, rel=TOLERANCE)

    def test_exact_on_chains(self, scheduler: Scheduler, exclusivity: Exclusivity) -> None:
        """A chain takes the sum of the shorter latencies."""
        problem = replace(
            random_problem(7, num_operators=20, exclusivity=exclusivity),
            edges=tuple((i, i + 1) for i in range(19)),
        )
        result = scheduler(problem, time_limit_s=30.0)
        assert result.status is ScheduleStatus.OPTIMAL
        assert result.makespan_s == pytest.approx(serial_sum(problem), rel=TOLERANCE)

    @pytest.mark.parametrize(("num_cores", "count"), [(2, 6), (3, 4), (8, 5)])
    def test_exact_on_independent_sets(
        self, scheduler: Scheduler, exclusivity: Exclusivity, num_cores: int, count: int
    ) -> None:
        """Equal operators: the best of k one after another spread, the rest in full rows."""
        problem = ScheduleProblem(
            core_types=(CoreType.TC,) * count,
            one_core_s=(10.0,) * count,
            spread_s=(4.0,) * count,
            edges=(),
            cores=Cores(num_cores, 1),
            exclusivity=exclusivity,
        )
        expected = min(4.0 * k + 10.0 * -(-(count - k) // num_cores) for k in range(count + 1))
        result = scheduler(problem, time_limit_s=30.0)
        assert result.makespan_s == pytest.approx(expected, rel=TOLERANCE)

    def test_floor_applies_to_the_whole_problem(self, scheduler: Scheduler, exclusivity: Exclusivity) -> None:
        """The floor is taken once, not for every block."""
        problem = random_problem(3, num_operators=6, exclusivity=exclusivity)
        free = scheduler(problem, time_limit_s=30.0).makespan_s
        for floor in (0.5 * free, 2.0 * free):
            result = scheduler(replace(problem, floor_s=floor), time_limit_s=30.0)
            assert result.makespan_s == pytest.approx(max(free, floor), rel=TOLERANCE)

    def test_time_limit_returns_incumbent_and_gap(self, scheduler: Scheduler, exclusivity: Exclusivity) -> None:
        """A problem that is too large for its time still gets a schedule and an honest bound."""
        problem = replace(random_problem(11, num_operators=40, exclusivity=exclusivity), cores=Cores(2, 2))
        began = time.monotonic()
        result = scheduler(problem, time_limit_s=0.3)
        assert time.monotonic() - began < 10.0
        verify_schedule(problem, result)
        if result.status is not ScheduleStatus.OPTIMAL:
            assert result.status is ScheduleStatus.TIME_LIMIT
            assert 0.0 < result.gap < 1.0
