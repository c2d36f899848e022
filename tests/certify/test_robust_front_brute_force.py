"""Fronts over worlds against looking at every design in every world."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from robust_toys import make_problem, make_space
from test_die_worlds import searched_in, tiny_dies
from test_fronts import is_no_worse, plain_front
from test_fused_certificates import fused_problem

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.analyse import prove_front
from phaze_opt.certify.robust.prover import SharedGraphs
from phaze_opt.certify.robust.result import RobustOptions
from phaze_opt.certify.robust.worlds import build_worlds, find_assumptions, problem_in
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import FrontAxis, Goal

THROUGHPUT, TDP, AREA, COST = FrontAxis
SAME = 1e-8
ONE = RobustOptions(num_samples=1)


def over(problem: CertifyProblem, *axes: FrontAxis) -> CertifyProblem:
    return replace(problem, goal=Goal.PARETO, axes=axes)


def losses(problem: CertifyProblem, robust: RobustOptions) -> dict[int, list[float]]:
    """What each design loses in every goal, by evaluations alone; those that some world has no place for are left out.

    By the place of a design in the nominal space. A least area says which dies are searched, by their nominal areas.
    """
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=robust.num_samples, seed=robust.seed)
    is_searched, whole = searched_in(problem)
    points = problem.space.points_at(np.arange(problem.space.size))
    shares, most = np.full(len(points), np.inf), {axis: np.zeros(len(points)) for axis in (TDP, AREA, COST)}
    for world in worlds:
        posed = problem_in(whole, world)
        objective = Objective(posed.scenario, constants=posed.constants)
        rates = np.zeros(len(points))
        for place, point in enumerate(points):
            evaluation = objective.evaluate(point) if posed.space.contains(point) else None
            if evaluation is not None and evaluation.is_feasible:
                rates[place] = evaluation.throughput_samples_per_s
                found = {TDP: evaluation.tdp_w, AREA: evaluation.area_mm2, COST: 0.0}
                if COST in problem.axes:
                    chips = table_of(evaluation.accelerator)
                    found[COST] = float(device_usd(chips, posed.scenario, posed.constants)[0])
                for axis, value in found.items():
                    most[axis][place] = max(most[axis][place], value)
        best = best_in(posed, objective, is_searched)
        if best > 0.0:
            shares = np.minimum(shares, rates / best)
    columns = {THROUGHPUT: -shares, **most}
    return {place: [float(columns[axis][place]) for axis in problem.axes] for place in np.flatnonzero(shares > 0.0)}


def best_in(posed: CertifyProblem, objective: Objective, is_searched: Callable[[DesignPoint], bool]) -> float:
    """The most that any design of a world attains, those that the nominal one does not have among them."""
    points = [each for each in posed.space.points_at(np.arange(posed.space.size)) if is_searched(each)]
    found = [objective.evaluate(point) for point in points]
    return max((each.throughput_samples_per_s for each in found if each.is_feasible), default=0.0)


def within_capex() -> CertifyProblem:
    """Dies whose budget of capex some worlds leave no room in, and others more."""
    problem = tiny_dies()
    return replace(problem, scenario=replace(problem.scenario, prices=(), max_capex_usd=8 * 9700.0))


def few_dies() -> CertifyProblem:
    """Four combinations, of which a least area leaves three, in some fifteen worlds; areas are others in some."""
    problem = tiny_dies(area_mm2=400.0, least=0.65)
    axes = problem.space.axes
    axes = replace(axes, num_vc=(8,), glb_bytes=axes.glb_bytes[1:], glb_bytes_per_cycle=(2048,), hbm_stacks=(2,))
    return replace(problem, space=replace(problem.space, axes=axes))


TINY = RobustOptions(num_samples=0)


def fused_dies() -> CertifyProblem:
    """Two dies that run layers in groups, in worlds of choices and of one group of constants."""
    problem = fused_problem(glb_mb=(8, 32))
    entries = {
        key: entry if key.startswith("hbm.") else replace(entry, low=entry.value, high=entry.value)
        for key, entry in problem.constants.entries.items()
    }
    return over(replace(problem, constants=Constants(entries, problem.constants.options)), THROUGHPUT, AREA)


DRAWN = {
    "layers in groups": fused_dies,
    "few dies": lambda: over(few_dies(), THROUGHPUT, AREA),
    "two goals": lambda: over(make_problem(varied=("hbm",)), THROUGHPUT, AREA),
    "without throughput": lambda: over(make_problem(varied=("energy",)), TDP, AREA),
    "three goals": lambda: over(make_problem(varied=("energy", "vector"), devices=2), THROUGHPUT, TDP, AREA),
    "a budget": lambda: over(make_problem(varied=("energy",), max_tdp_w=240.0), THROUGHPUT, AREA),
    "memory that few have": lambda: over(
        make_problem(make_space(hbm_bytes=(32 << 30, 64 << 30)), varied=("hbm",)), THROUGHPUT, TDP, AREA
    ),
    "four goals of dies": lambda: over(tiny_dies(area_mm2=400.0), *FrontAxis),
    "dies of little area": lambda: over(tiny_dies(area_mm2=330.0), THROUGHPUT, COST),
    "dies within capex": lambda: over(within_capex(), THROUGHPUT, COST),
}
# Bounds of layers in groups leave a gap where buffers are small: no proof of them closes at 0.
CASES = [(name, at) for name in DRAWN for at in (0.0, 0.02) if (name, at) != ("layers in groups", 0.0)]


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [pytest.param(*case, marks=[] if case == ("few dies", 0.0) else [pytest.mark.slow]) for case in CASES],
)
def test_a_front_over_worlds_equals_looking_at_every_design_in_every_world(name, tolerance, tmp_path):
    problem = DRAWN[name]()
    robust = TINY if name in ("few dies", "layers in groups") else RobustOptions(num_samples=1, seed=3)
    front = prove_front(problem, CertifyOptions(tolerance=tolerance, directory=tmp_path), robust)
    found = losses(problem, robust)
    assert front.is_proved
    points = problem.space.points_at(np.arange(problem.space.size))
    mine = [found[points.index(design.point)] for design in front.designs]
    assert bool(mine) == bool(found)
    allowed = tolerance if THROUGHPUT in problem.axes else 0.0
    for other in found.values():
        assert any(is_no_worse(each, other, allowed + SAME) for each in mine)
    for design, each in zip(front.designs, mine, strict=True):
        if THROUGHPUT in problem.axes:
            # A world's best is known within the tolerance, too.
            assert design.share == pytest.approx(-each[0], rel=SAME + tolerance)
    if tolerance == 0.0:
        assert len(mine) == len(plain_front(found))


def test_worlds_of_layers_in_groups_share_graphs():
    problem = fused_problem()
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=1, seed=0)
    graphs = SharedGraphs(problem)
    for world in (worlds[0], worlds[1], worlds[-1]):
        posed = problem_in(problem, world)
        shared, point = graphs.objective(posed).evaluate(problem.space.point(0)), problem.space.point(0)
        assert shared == Objective(posed.scenario, constants=posed.constants).evaluate(point)
