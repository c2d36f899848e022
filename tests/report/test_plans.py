"""Tables of one parallel plan."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

from phaze_opt.placement.step_time import StepTime
from phaze_opt.report.plans import PART_NAMES, PlanSetting, step_table
from phaze_opt.workload.plan import ParallelPlan


def test_what_rounding_leaves_of_a_part_has_no_row():
    """Launches that kernels hide leave 1e-10 s of a smooth maximum; a microsecond is a part like any other."""
    seconds = {field.name: 0.0 for field in fields(StepTime)}
    time = StepTime(**{**seconds, "matmul_s": 2.0, "launch_s": 1.25e-10, "update_s": 1e-6})
    setting = PlanSetting("h100", "ideal", "dgx-h100", "tiny", 1, 1, 1.0, 1.0)
    table = step_table(SimpleNamespace(time=time, plan=ParallelPlan()), setting)
    names = [row[0] for row in table.rows]
    assert len(names) == 2
    assert names[1] == PART_NAMES["update_s"]
