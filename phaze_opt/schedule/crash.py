"""The crash bound as a MIP (semantics 4, step 3): which operators to spread, ordering left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.highs import HighsSolver
from phaze_opt.schedule.ordering_model import add_crash_rows


@dataclass(frozen=True, slots=True)
class CrashAnswer:
    """Lower bound of a block's makespan and the modes that attain it (None: no incumbent in time)."""

    lower: float
    is_spread: tuple[bool, ...] | None


def build_crash_model(problem: BlockProblem) -> Any:
    """Pyomo model of the crash bound: y binary, path potentials, makespan."""
    import pyomo.environ as pyo

    model = pyo.ConcreteModel()
    operators = range(len(problem))
    model.spread = pyo.Var(operators, domain=pyo.Binary)
    model.potential = pyo.Var(operators, range(1 if problem.is_chip else 3), domain=pyo.NonNegativeReals)
    model.makespan = pyo.Var(domain=pyo.NonNegativeReals)
    model.objective = pyo.Objective(expr=model.makespan)
    for i in operators:
        if i not in problem.spreadable:
            model.spread[i].fix(0)
    add_crash_rows(model, problem)
    return model


def solve_crash_bound(problem: BlockProblem, *, time_limit_s: float, max_nodes: int = 0) -> CrashAnswer:
    """Solve the crash MIP; the bound is valid however early the solver stops."""
    model = build_crash_model(problem)
    answer = HighsSolver(model).solve(time_limit_s=time_limit_s, max_nodes=max_nodes)
    modes = None
    if answer.has_solution:
        modes = tuple(i in problem.spreadable and answer.value(model.spread[i]) > 0.5 for i in range(len(problem)))
    return CrashAnswer(lower=max(0.0, answer.bound), is_spread=modes)
