"""Mutation check of the ordering model: each defining group is needed, each strengthening group moves a root bound."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from drawn_blocks import blocks_of
from kits.fewer_cases import every
from kits.schedulers import brute_force_makespan

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.highs import HighsSolver
from phaze_opt.schedule.mip_models import GROUPS, GroupRole, broken_core_rows, build_ordering_model
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem

DATA = json.loads((Path(__file__).parent / "data" / "root_bounds.json").read_text())
SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "schedule" / "root_bounds.py"))
DEFINING_ONLY = tuple(group for group in GROUPS.values() if group.role is GroupRole.DEFINING)

# Problems on which the answer is wrong without the group of that name.
WITNESSES = {
    "precedence": ScheduleProblem(
        (CoreType.TC, CoreType.VC, CoreType.TC), (4.0, 4.0, 1.0), (9.0,) * 3, ((0, 1),), Cores(2, 2)
    ),
    "makespan": ScheduleProblem((CoreType.TC, CoreType.VC), (4.0, 3.0), (9.0, 9.0), (), Cores(2, 2)),
    "big_m_ordering": ScheduleProblem((CoreType.TC, CoreType.VC), (10.0, 10.0), (4.0, 4.0), (), Cores(4, 4)),
    "exclusivity": ScheduleProblem((CoreType.TC, CoreType.VC), (10.0, 10.0), (4.0, 4.0), (), Cores(4, 4)),
    "core_rows": ScheduleProblem((CoreType.TC,) * 3, (5.0, 4.0, 3.0), (9.0,) * 3, (), Cores(2, 1)),
}


def model_optimum(problem, groups, *, has_core_rows=True):
    """Optimum of the model of some groups; core rows are added until none is broken."""
    (block,) = blocks_of(problem)
    model = build_ordering_model(block, sum(block.one_core), groups=groups)
    solver = HighsSolver(model)
    while True:
        answer = solver.solve(time_limit_s=30.0)
        assert answer.is_optimal
        rows = broken_core_rows(model, block, answer) if has_core_rows else []
        if not rows:
            return answer.bound
        solver.add_rows([model.core_rows.add(row) for row in rows])


@pytest.mark.parametrize("name", WITNESSES)
def test_defining_groups_alone_give_the_optimum(name):
    problem = WITNESSES[name]
    assert model_optimum(problem, DEFINING_ONLY) == pytest.approx(brute_force_makespan(problem), rel=1e-7)


@pytest.mark.parametrize("name", WITNESSES)
def test_without_a_defining_group_the_answer_is_too_short(name):
    problem = WITNESSES[name]
    groups = tuple(group for group in DEFINING_ONLY if group.name != name)
    short = model_optimum(problem, groups, has_core_rows=name != "core_rows")
    assert short < brute_force_makespan(problem) * (1 - 1e-6)


def test_every_defining_group_has_a_witness():
    assert {group.name for group in DEFINING_ONLY} | {"core_rows"} == set(WITNESSES)


def test_type_rule_needs_no_order_between_types():
    problem = WITNESSES["exclusivity"]
    relaxed = replace(problem, exclusivity=Exclusivity.TYPE)
    assert model_optimum(problem, DEFINING_ONLY) == pytest.approx(8.0)
    assert brute_force_makespan(relaxed) == 4.0


@pytest.mark.parametrize("row", every(2, DATA["rows"]), ids=lambda row: row["problem"])
def test_root_bounds_are_as_recorded(row):
    problem, upper = SCRIPT["root_bound_problems"]()[row["problem"]]
    assert SCRIPT["root_bound_row"](problem, upper) == pytest.approx(
        row["bounds"], rel=DATA["_meta"]["tolerance_relative"]
    )
    assert upper == pytest.approx(row["upper"], rel=1e-9)


@pytest.mark.parametrize("name", SCRIPT["strengthening_groups"]())
def test_each_strengthening_group_moves_a_recorded_root_bound(name):
    def is_moved(bounds):
        rise = bounds["all"] > bounds[f"-{name}"] * (1 + 1e-6)
        return rise or (f"~{name}" in bounds and bounds["-bound_rows"] > bounds[f"~{name}"] * (1 + 1e-6))

    assert any(is_moved(row["bounds"]) for row in DATA["rows"])


def test_a_root_bound_is_a_bound():
    for row in DATA["rows"]:
        assert all(bound <= row["upper"] * (1 + 1e-9) for bound in row["bounds"].values())
