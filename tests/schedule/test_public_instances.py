"""The ten public instances: proven optimal, at their recorded makespan."""

import json
from pathlib import Path

import pytest

from phaze_opt.schedule.problem import ScheduleStatus, load_instance
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.verify import verify_schedule

RECORDED = json.loads((Path(__file__).parent / "data" / "schedule_instances.json").read_text())


@pytest.mark.parametrize("entry", RECORDED["instances"], ids=lambda entry: entry["name"][:24])
def test_public_optimum(entry, tmp_path):
    (tmp_path / "public.json").write_text(json.dumps(entry))
    instance = load_instance(tmp_path / "public.json")
    result = solve_schedule(instance.problem)
    verify_schedule(instance.problem, result)
    assert result.status is ScheduleStatus.OPTIMAL
    assert result.makespan_s == pytest.approx(entry["optimal_makespan"], rel=RECORDED["_meta"]["tolerance_relative"])
