"""Independent replay of a schedule (semantics 4, step 6): nothing here is shared with the solvers."""

import math
from collections.abc import Sequence

from phaze_opt.errors import VerificationError
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Exclusivity, ScheduleProblem, ScheduleResult, ScheduleStatus

RELATIVE_TOLERANCE = 1e-7
_TYPES = {
    CoreType.TC: frozenset({"tc"}),
    CoreType.VC: frozenset({"vc"}),
    CoreType.TC_AND_VC: frozenset({"tc", "vc"}),
    CoreType.NETWORK: frozenset[str](),
    CoreType.NONE: frozenset[str](),
}


def verify_schedule(problem: ScheduleProblem, result: ScheduleResult) -> None:
    """Replay a schedule.

    Checks precedence, exclusivity of spread operators, capacity of both core types, the makespan (with the floor),
    the lower bound and the status.

    Raises:
        VerificationError: the first rule found broken, with the operators and times.
    """
    count = len(problem.core_types)
    if not (len(result.start_s) == len(result.is_spread) == count):
        message = f"{count} operators need as many starts, got {len(result.start_s)} and {len(result.is_spread)} modes"
        raise VerificationError(message)
    finish = [begin + _duration(problem, result, i) for i, begin in enumerate(result.start_s)]
    slack = RELATIVE_TOLERANCE * max([result.makespan_s, *finish, 0.0])
    _check_times(result, finish, slack)
    _check_precedence(problem, result, finish, slack)
    _check_exclusivity(problem, result, finish, slack)
    _check_capacity(problem, result, finish, slack)
    _check_certificate(problem, result, finish, slack)


def _duration(problem: ScheduleProblem, result: ScheduleResult, operator: int) -> float:
    if not _TYPES[problem.core_types[operator]]:
        return 0.0
    return problem.spread_s[operator] if result.is_spread[operator] else problem.one_core_s[operator]


def _check_times(result: ScheduleResult, finish: Sequence[float], slack: float) -> None:
    for operator, (begin, end) in enumerate(zip(result.start_s, finish, strict=True)):
        if not (math.isfinite(begin) and begin >= -slack and end <= result.makespan_s + slack):
            message = f"operator {operator} runs {begin} to {end} s, outside 0 to {result.makespan_s} s"
            raise VerificationError(message)


def _check_precedence(problem: ScheduleProblem, result: ScheduleResult, finish: Sequence[float], slack: float) -> None:
    for before, after in problem.edges:
        if result.start_s[after] < finish[before] - slack:
            message = (
                f"operator {after} starts at {result.start_s[after]} s, before {before} ends at {finish[before]} s"
            )
            raise VerificationError(message)


def _check_exclusivity(problem: ScheduleProblem, result: ScheduleResult, finish: Sequence[float], slack: float) -> None:
    for spread, is_spread in enumerate(result.is_spread):
        types = _TYPES[problem.core_types[spread]]
        if not is_spread or not types:
            continue
        for other, core_type in enumerate(problem.core_types):
            excluded = _TYPES[core_type]
            if problem.exclusivity is Exclusivity.TYPE:
                excluded = excluded & types
            if other == spread or not excluded:
                continue
            is_apart = (
                finish[other] <= result.start_s[spread] + slack or finish[spread] <= result.start_s[other] + slack
            )
            if not is_apart:
                message = (
                    f"operator {other} runs beside operator {spread}, which is spread ({problem.exclusivity} rule)"
                )
                raise VerificationError(message)


def _check_capacity(problem: ScheduleProblem, result: ScheduleResult, finish: Sequence[float], slack: float) -> None:
    for core, num_cores in problem.cores._asdict().items():
        users = [i for i, core_type in enumerate(problem.core_types) if core in _TYPES[core_type]]
        users = [i for i in users if not result.is_spread[i] and finish[i] - result.start_s[i] > 2 * slack]
        for probe in users:
            now = result.start_s[probe]
            beside = [i for i in users if result.start_s[i] <= now + slack and now + slack < finish[i] - slack]
            if len(beside) > num_cores:
                message = f"operators {beside} run at {now} s on {num_cores} {core} cores"
                raise VerificationError(message)


def _check_certificate(problem: ScheduleProblem, result: ScheduleResult, finish: Sequence[float], slack: float) -> None:
    expected = max([*finish, problem.floor_s, 0.0])
    if abs(result.makespan_s - expected) > slack:
        message = f"makespan {result.makespan_s} s should be {expected} s"
        raise VerificationError(message)
    if not result.lower_bound_s <= result.makespan_s + slack or result.lower_bound_s < problem.floor_s - slack:
        message = (
            f"lower bound {result.lower_bound_s} s does not lie between {problem.floor_s} and {result.makespan_s} s"
        )
        raise VerificationError(message)
    if result.status is ScheduleStatus.OPTIMAL and result.gap > RELATIVE_TOLERANCE:
        message = f"status is optimal but the gap is {result.gap}"
        raise VerificationError(message)
