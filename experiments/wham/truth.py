"""The best point of a whole joined space, by bounds and exact evaluation; what regret is measured against.

Every point gets a lower bound on its batch time that needs neither a schedule nor a placement: a layer takes at least
its longest path and its work over its cores, the slowest stage at least the mean of the stages, and synchronisation at
least its floor. Points are then taken best bound first, bounded again as probes are, and evaluated while their bounds
beat the best value seen; what is left over cannot. Not the code of any strategy or pruner.

    python experiments/wham/truth.py bert-large two-level > truth.json
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from phaze_opt import Cluster, Objective, Scenario, load_model, load_network, phaze_space
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.operator import CoreType
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import tdp_w_table
from phaze_opt.objective.best_placement import placement_problem
from phaze_opt.objective.compile import CompiledModel, CompiledOption, CompiledPhase
from phaze_opt.placement import kernels
from phaze_opt.placement.solve import pack_options
from phaze_opt.search.objective_bounder import ObjectiveBounder
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI

NUM_DEVICES = 1024
GLOBAL_BATCH = 4096
ROWS = 2048
GRID = 4000
BATCH = 64
GOALS = ("throughput", "throughput_per_tdp")


def joined_space() -> SearchSpace:
    """The 352,320 points: HBM 32, 64, 80 GiB, micro-batch 1, 2, 4, 8."""
    return phaze_space(hbm_bytes=tuple(gib * GIBI for gib in (32, 64, 80)), micro_batches=(1, 2, 4, 8))


def scenario_of(model: str, network: str) -> Scenario:
    """One model of the zoo, or of a config file, on 1024 devices."""
    cluster = Cluster(num_devices=NUM_DEVICES, network=load_network(network, num_devices=NUM_DEVICES))
    return Scenario(models=(load_model(model),), cluster=cluster, global_batch=GLOBAL_BATCH)


def phase_floor_s(phase: CompiledPhase, estimates: Estimates, table: AcceleratorTable) -> np.ndarray:
    """Lower bound on one makespan on every accelerator, shape (num_accelerators,), s."""
    one, spread = estimates.one_core_s[:, phase.columns], estimates.spread_s[:, phase.columns]
    fastest = np.minimum(one, spread)
    finish = fastest.copy()
    for before, after in sorted(phase.edges):
        assert before < after
        finish[:, after] = np.maximum(finish[:, after], finish[:, before] + fastest[:, after])
    bound = finish.max(axis=1, initial=0.0)
    for kind, count in ((CoreType.TC, table.num_tc), (CoreType.VC, table.num_vc)):
        needs = np.array([core in {kind, CoreType.TC_AND_VC} for core in phase.core_types])
        work = np.minimum(spread, one / count[:, None])[:, needs].sum(axis=1)
        bound = np.maximum(bound, work)
    traffic = estimates.traffic_bytes[:, phase.columns].sum(axis=1)
    return np.maximum(bound, traffic / table.hbm_bandwidth_bytes_per_s)


def option_total_s(option: CompiledOption, estimates: Estimates, table: AcceleratorTable) -> np.ndarray:
    """Forward and backward of a whole replica for one micro-batch at one tensor degree, shape (num_accelerators,)."""
    total = np.zeros(len(table.num_tc))
    for row, layer in enumerate(option.phases):
        for phase in layer[:2]:
            total += option.graph.chain.count(row) * (phase_floor_s(phase, estimates, table) + phase.collective_s)
    return total


def batch_floor_s(
    objective: Objective, compiled: CompiledModel, option: int, hbm_bytes: int, totals: np.ndarray
) -> np.ndarray:
    """Lower bound on the batch time by replica time a micro-batch, over all (stages, d) that fit the memory."""
    chosen = compiled.options[option]
    nothing = np.zeros((len(chosen.phases), 3))
    problem = placement_problem(replace(compiled, options=(chosen,)), [nothing], hbm_bytes, scenario=objective.scenario)
    triples, bounds = kernels.bound_candidates(pack_options(problem))
    if not len(triples):
        return np.full(len(totals), np.inf)
    stages, degree = triples[:, 1], triples[:, 2]
    slots = -(-GLOBAL_BATCH // (compiled.training.micro_batch * degree)) + stages - 1
    floors = bounds[:, 1]
    idle = bounds[:, 0] - floors
    grid = np.geomspace(totals.min(), totals.max(), GRID)
    least = np.array([(np.maximum(slots / stages * value, idle) + floors).min() for value in grid])
    return least[np.clip(np.searchsorted(grid, totals, side="right") - 1, 0, GRID - 1)]


def crude_bounds(objective: Objective, space: SearchSpace) -> tuple[np.ndarray, np.ndarray]:
    """Upper bound on throughput and exact TDP, shapes (architectures, HBM, micro-batch) and (architectures, HBM)."""
    axes = space.axes
    throughput = np.zeros((space.num_architectures, len(axes.hbm_bytes), len(axes.micro_batch)))
    tdp = np.zeros(throughput.shape[:2])
    for column, hbm in enumerate(axes.hbm_bytes):
        table = space.accelerator_table(objective.constants, hbm_bytes=hbm)
        tdp[:, column] = tdp_w_table(table, objective.scenario.cluster.network, objective.constants)
        for position, micro_batch in enumerate(axes.micro_batch):
            compiled = objective.compiled(0, micro_batch)
            totals = np.zeros((len(compiled.options), len(table.num_tc)))
            for first in range(0, len(table.num_tc), ROWS):
                rows = slice(first, first + ROWS)
                part = AcceleratorTable(**{name: getattr(table, name)[rows] for name in table.__dataclass_fields__})
                estimates = objective._estimator.estimate(compiled.operators, part)
                for index, option in enumerate(compiled.options):
                    totals[index, rows] = option_total_s(option, estimates, part)
            seconds = np.min(
                [batch_floor_s(objective, compiled, i, hbm, total) for i, total in enumerate(totals)], axis=0
            )
            throughput[:, column, position] = GLOBAL_BATCH / seconds
    return throughput, tdp


def best_of(objective: Objective, space: SearchSpace, crude: np.ndarray, goal: str) -> dict[str, object]:
    """The best point of one goal, with how many points were bounded again and evaluated."""
    bounder = ObjectiveBounder(objective)
    order = np.argsort(-crude, kind="stable")
    best, found, num_bounded, evaluated = 0.0, [], 0, 0
    for first in range(0, len(order), BATCH):
        rows = order[first : first + BATCH]
        if crude[rows[0]] < best * (1 - 1e-9):
            break
        points = [space.point(int(row)) for row in rows]
        num_bounded += len(points)
        limits = [
            getattr(b, "throughput_samples_per_s" if goal == "throughput" else goal) for b in bounder.bound(points)
        ]
        for at in np.argsort(limits)[::-1]:
            if limits[at] < best * (1 - 1e-9):
                break
            evaluation = objective.evaluate(points[at])
            evaluated += 1
            value = getattr(evaluation, "throughput_samples_per_s" if goal == "throughput" else goal)
            best = max(best, value)
            p = points[at]
            shape = (p.num_tc, p.tc_width, p.tc_depth, p.num_vc, p.glb_bytes >> 20, p.hbm_bytes >> 30, p.micro_batch)
            found.append((value, *shape))
    found.sort(reverse=True)
    return {"best": best, "num_bounded": num_bounded, "num_evaluated": evaluated, "top": found[:20]}


def main() -> None:
    """Print the truth of one model and network."""
    model, network = sys.argv[1:3]
    started = time.time()
    space = joined_space()
    objective = Objective(scenario_of(model, network))
    throughput, tdp = crude_bounds(objective, space)
    crude = {
        "throughput": throughput.ravel(),
        "throughput_per_tdp": (throughput / tdp[:, :, None]).ravel() / NUM_DEVICES,
    }
    result = {"model": Path(model).stem, "network": network, "num_points": space.size, "crude_s": time.time() - started}
    for goal in GOALS:
        result[goal] = best_of(objective, space, crude[goal], goal)
    result["wall_s"] = time.time() - started
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
