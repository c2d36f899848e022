"""A stand-in for the analysis of robustness: in every world but the nominal one the points are worth other figures.

The figures are drawn, not computed: what reads a result must not care, and a hundred evaluations would take seconds.
"""

from dataclasses import replace

import numpy as np

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.result import (
    Conclusion,
    ConclusionKind,
    Minimax,
    RobustDesign,
    RobustOptions,
    RobustResult,
    RobustStage,
    WorldOptimum,
)
from phaze_opt.certify.robust.worlds import build_worlds, find_assumptions
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import goal_values
from phaze_opt.record.arrays import Floats
from phaze_opt.record.progress import OnProgress, Progress


def analyse_drawn_worlds(
    problem: CertifyProblem, options: CertifyOptions, robust: RobustOptions, *, on_progress: OnProgress | None = None
) -> RobustResult:
    """Called as `certify.robust.analyse.analyse_robustness` is; nothing is written, effects are left out."""
    assumptions = find_assumptions(problem)
    worlds = build_worlds(problem, assumptions, num_samples=robust.num_samples, seed=robust.seed)
    points = tuple(problem.space.points())
    drawn = np.random.default_rng(robust.seed).uniform(0.5, 1.5, size=(len(worlds), len(points)))
    drawn[0] = 1.0
    values = _values(problem, points) * drawn
    if on_progress is not None:
        on_progress(Progress(RobustStage.WORLDS, len(worlds), len(worlds)))
    regrets = 1.0 - values / values.max(axis=1, keepdims=True)
    first = int(np.argmax(values[0]))
    least = int(np.argmin(regrets.max(axis=0)))
    designs = tuple(
        _design(number, index, points[index], values[:, index], regrets[:, index], role=role)
        for number, (index, role) in enumerate(((first, "nominal rank 1"), (least, "min-max regret")), start=1)
    )
    held = regrets[:, first] <= 0.01
    conclusion = Conclusion(
        kind=ConclusionKind.NOMINAL_BEST,
        statement="the nominal best design stays within 1 % of the optimum",
        holds=tuple(held.tolist()),
        found=tuple(regrets[:, first].tolist()),
        worlds=tuple(range(len(worlds))),
        worst_world=int(np.argmax(regrets[:, first])),
        is_proved=(True,) * len(worlds),
    )
    worst = float(regrets[:, least].max())
    where = int(np.argmax(regrets[:, least]))
    minimax = Minimax(least, points[least], worst, worst, where, worst, True, len(points), len(points), values.size)
    return RobustResult(
        problem_digest=problem.digest,
        goal=problem.goal.value,
        tolerance=options.tolerance,
        num_best=options.num_best,
        options=robust,
        assumptions=assumptions,
        worlds=worlds,
        optima=tuple(_optimum(row, points) for row in values),
        designs=designs,
        minimax=minimax,
        nominal_minimax=replace(minimax, index=first, point=points[first], regret=float(regrets[:, first].max())),
        conclusions=(conclusion,),
        effects=(),
        num_distinct_worlds=len(worlds),
        wall_s=0.1,
    )


def _values(problem: CertifyProblem, points: tuple[DesignPoint, ...]) -> Floats:
    objective = Objective(problem.scenario, constants=problem.constants)
    return np.array([next(iter(goal_values(problem.goal, objective.evaluate(point))), 0.0) for point in points])


def _optimum(row: Floats, points: tuple[DesignPoint, ...]) -> WorldOptimum:
    index = int(np.argmax(row))
    return WorldOptimum(True, index, points[index], float(row[index]), float(row[index]), ())


def _design(number: int, index: int, point: DesignPoint, values: Floats, regrets: Floats, *, role: str) -> RobustDesign:
    return RobustDesign(
        name=f"design {number}",
        roles=(role,),
        index=index,
        point=point,
        values=tuple(values.tolist()),
        regrets=tuple(regrets.tolist()),
        regrets_upper=tuple(regrets.tolist()),
        worst_regret=float(regrets.max()),
        worst_world=int(np.argmax(regrets)),
    )
