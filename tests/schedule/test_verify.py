"""The replay refuses every kind of broken schedule."""

from dataclasses import replace

import pytest

from phaze_opt.errors import VerificationError
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem, ScheduleResult, ScheduleStatus
from phaze_opt.schedule.verify import verify_schedule

PROBLEM = ScheduleProblem(
    (CoreType.TC, CoreType.TC, CoreType.VC), (4.0, 4.0, 2.0), (3.0, 3.0, 1.0), ((0, 2),), Cores(2, 1)
)
GOOD = ScheduleResult(6.0, 6.0, ScheduleStatus.OPTIMAL, (0.0, 0.0, 4.0), (False, False, False))


def test_good_schedule_passes():
    verify_schedule(PROBLEM, GOOD)


@pytest.mark.parametrize(
    ("problem", "change", "word"),
    [
        (PROBLEM, {"start_s": (0.0, 0.0, 3.0)}, "before"),
        (replace(PROBLEM, cores=Cores(1, 1)), {}, "tc cores"),
        (PROBLEM, {"is_spread": (True, False, False), "start_s": (0.0, 0.0, 4.0)}, "spread"),
        (PROBLEM, {"makespan_s": 5.0, "lower_bound_s": 5.0}, "outside"),
        (PROBLEM, {"makespan_s": 7.0}, "makespan"),
        (PROBLEM, {"lower_bound_s": 6.5}, "lower bound"),
        (PROBLEM, {"lower_bound_s": 5.0}, "optimal"),
        (PROBLEM, {"start_s": (-1.0, 0.0, 4.0)}, "outside"),
        (PROBLEM, {"start_s": (float("nan"), 0.0, 4.0)}, "outside"),
        (PROBLEM, {"start_s": (0.0, 0.0)}, "as many"),
        (replace(PROBLEM, floor_s=9.0), {}, "makespan"),
    ],
)
def test_broken_schedules_are_refused(problem, change, word):
    with pytest.raises(VerificationError, match=word):
        verify_schedule(problem, replace(GOOD, **change))


def test_type_rule_allows_the_other_type_beside_a_spread_operator():
    problem = ScheduleProblem((CoreType.TC, CoreType.VC), (9.0, 4.0), (3.0, 9.0), (), Cores(2, 2), Exclusivity.TYPE)
    beside = ScheduleResult(4.0, 4.0, ScheduleStatus.OPTIMAL, (0.0, 0.0), (True, False))
    verify_schedule(problem, beside)
    with pytest.raises(VerificationError, match="spread"):
        verify_schedule(replace(problem, exclusivity=Exclusivity.CHIP), beside)
