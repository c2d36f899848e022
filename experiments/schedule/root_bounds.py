"""Records what each strengthening group of the ordering model is worth: its root bound with all groups and without one.

    python experiments/schedule/root_bounds.py

The root bound is the optimum of the model with integrality relaxed, before the solver's own presolve and cuts. Writes
root_bounds.json beside itself; tests/schedule/data/root_bounds.json is the copy that tests compare with, and changes
only in a commit that says why.
"""

import json
import platform
from collections.abc import Iterable
from pathlib import Path

import highspy
import numpy as np

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.highs import HighsSolver
from phaze_opt.schedule.mip_models import GROUPS, GroupRole, build_ordering_model
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.structure import compile_structure

# Drawn blocks on which the groups differ; on most, the crash rows alone reach what the others do.
_RECORDED_SEEDS = {Exclusivity.CHIP: (3, 7, 32, 66), Exclusivity.TYPE: (7, 23, 37, 50)}
_TYPES = (CoreType.TC, CoreType.VC, CoreType.TC_AND_VC)


def root_bound(problem: BlockProblem, upper: float, *, groups: Iterable[str]) -> float:
    """Optimum of the relaxed model.

    Args:
        problem: the block.
        upper: makespan of a known schedule, of which fixings and big-M make use.
        groups: names of the strengthening groups used beside the others.
    """
    import pyomo.environ as pyo

    names = set(groups)
    chosen = [group for group in GROUPS.values() if group.role is not GroupRole.STRENGTHENING or group.name in names]
    model = build_ordering_model(problem, upper, groups=chosen)
    pyo.TransformationFactory("core.relax_integer_vars").apply_to(model)
    return HighsSolver(model).solve(time_limit_s=30.0).bound


def strengthening_groups() -> tuple[str, ...]:
    """Names of the groups that claim to move a root bound."""
    return tuple(group.name for group in GROUPS.values() if group.role is GroupRole.STRENGTHENING)


def root_bound_row(problem: BlockProblem, upper: float) -> dict[str, float]:
    """Root bounds of one block: defining groups alone, all, ``+name`` one added to them, ``-name`` one left out.

    ``~name``: left out where the crash rows, which hide much of what the others do, are left out too.
    """
    names = strengthening_groups()
    others = [name for name in names if name != "bound_rows"]
    row = {"none": root_bound(problem, upper, groups=()), "all": root_bound(problem, upper, groups=names)}
    row["-bound_rows"] = root_bound(problem, upper, groups=others)
    for name in others:
        row[f"+{name}"] = root_bound(problem, upper, groups=[name])
        row[f"-{name}"] = root_bound(problem, upper, groups=[other for other in names if other != name])
        row[f"~{name}"] = root_bound(problem, upper, groups=[other for other in others if other != name])
    return row


def root_bound_table() -> list[dict[str, object]]:
    """Rows of the recorded table: problem, incumbent, root bounds."""
    return [
        {"problem": key, "upper": upper, "bounds": root_bound_row(problem, upper)}
        for key, (problem, upper) in root_bound_problems().items()
    ]


def root_bound_problems() -> dict[str, tuple[BlockProblem, float]]:
    """Named blocks, each with its optimal makespan."""
    problems = {}
    for exclusivity, seeds in _RECORDED_SEEDS.items():
        for seed in seeds:
            problem = _drawn_block(seed, exclusivity)
            problems[f"{exclusivity.value}-{seed}"] = (problem, _optimum(problem))
    return problems


def _optimum(problem: BlockProblem) -> float:
    core_types = {1: CoreType.TC, 2: CoreType.VC, 3: CoreType.TC_AND_VC}
    whole = ScheduleProblem(
        core_types=tuple(core_types[mask] for mask in problem.block.masks),
        one_core_s=problem.one_core,
        spread_s=problem.spread,
        edges=problem.block.edges,
        cores=problem.cores,
        exclusivity=problem.exclusivity,
    )
    return solve_schedule(whole).makespan_s


def _drawn_block(seed: int, exclusivity: Exclusivity) -> BlockProblem:
    """A block of 8 operators whose parallel branches compete for few cores."""
    generator = np.random.default_rng(seed)
    while True:
        core_types = [_TYPES[k] for k in generator.choice(3, size=8, p=(0.5, 0.35, 0.15))]
        edges = [(i, j) for i in range(8) for j in range(i + 1, 8) if generator.random() < 0.22]
        blocks = compile_structure(core_types, edges).blocks
        largest = max(blocks, key=len)
        if len(largest) >= 7:
            break
    one_core = generator.integers(5, 40, size=len(largest)).astype(float)
    spread = np.round(one_core * generator.uniform(0.3, 1.0, size=len(largest)), 1)
    cores = Cores(int(generator.integers(1, 4)), int(generator.integers(1, 4)))
    return BlockProblem(largest, tuple(one_core.tolist()), tuple(spread.tolist()), cores, exclusivity)


def main() -> None:
    """Compute the table, print it and write it."""
    rows = root_bound_table()
    meta = {
        "version": 1,
        "date": "2026-11-21",
        "tolerance_relative": 1e-6,
        "highspy": str(highspy.Highs().version()),
        "python": platform.python_version(),
        "what": "optimum of the relaxed ordering model: none = defining groups alone, +g = with g, -g = all but g, "
        "~g = neither g nor bound_rows",
    }
    record = json.dumps({"_meta": meta, "rows": rows}, indent=1) + "\n"
    Path(__file__).with_suffix(".json").write_text(record)
    for row in rows:
        print(row["problem"], f"upper {row['upper']:.5g}", {k: round(v, 3) for k, v in row["bounds"].items()})


if __name__ == "__main__":
    main()
