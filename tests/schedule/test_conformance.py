"""The package's own scheduler passes its own suite."""

import pytest

from phaze_opt.schedule.solve import ScheduleOptions, solve_schedule
from phaze_opt.testing.schedulers import SchedulerConformance


class TestExactScheduler(SchedulerConformance):
    @pytest.fixture
    def scheduler(self):
        def solve(problem, *, time_limit_s):
            return solve_schedule(problem, options=ScheduleOptions(time_limit_s=time_limit_s))

        return solve
