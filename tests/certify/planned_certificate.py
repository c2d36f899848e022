"""A certificate of a few designs with full plans, written from the prover's schedules and prices."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from phaze_opt.objective.best_plan import PlannedModel, best_plan
from small_problems import small_model, small_scenario, small_space

from phaze_opt.certify.certificate import (
    BOUND_SLACK,
    DATA_FILES,
    FORMAT,
    Certificate,
    CertificateProvenance,
    Claim,
    PoolFile,
    Slot,
    Solution,
    SolutionsFile,
    SolvedModel,
    SolvedPlan,
    SolvedSchedule,
    content_digest,
)
from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.certify.check.plans.layer_sets import key_of
from phaze_opt.certify.pool_entries import pool_file
from phaze_opt.cost.stacks import load_stack
from phaze_opt.estimate.protocol import CompilingEstimator
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.chip_template import AXES
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.power import tdp_w_table
from phaze_opt.objective.bound_phases import PhasePools, phase_slots, pool_key
from phaze_opt.objective.compile import PHASES, compile_steps
from phaze_opt.objective.goals import Goal, problem_digest
from phaze_opt.plan.plan_space import enumerate_plans
from phaze_opt.plan.priced_plans import price_plans
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.record.plain_data import to_plain
from phaze_opt.units import UM2_PER_MM2, gib_to_bytes, mib_to_bytes
from phaze_opt.workload.plan import PlanChoices

PLANS = PlanChoices(tensor=(1, 2), interleave=(), micro_batch=(1, 2), zero=(0, 1))
SPACE = small_space(
    num_tc=(8, 16), num_vc=(16,), tc_width=(32,), micro_batch=(1,), hbm_bytes=(mib_to_bytes(1), gib_to_bytes(32))
)
"""Four designs, two of them without the memory for any plan."""


def planned_scenario(software: str):
    """A small chain on a few devices."""
    stack = load_stack(software, load_fitted())
    return small_scenario(small_model(), devices=8, global_batch=16, plans=PLANS, stack=stack)


class PlannedProver:
    """The least that a prover of plans does: grows vectors, bounds every design, solves the best one."""

    def __init__(self, software: str) -> None:
        self.scenario, self.constants = planned_scenario(software), load_constants()
        self.model = self.scenario.models[0]
        self.check = CutCheck(self.scenario, self.model, self.scenario.plans)
        training = self.scenario.training_of(self.model, 1)
        plans = list(enumerate_plans(self.model, training, num_devices=8, choices=self.scenario.plans))
        network = self.scenario.cluster.network
        prices = price_plans(self.model, training, plans, network=network, stack=self.scenario.stack)
        order = sorted(range(len(prices.sets)), key=lambda number: key_of(prices.sets[number].plan))
        new_number = np.argsort(order)
        prices = replace(prices, sets=tuple(prices.sets[at] for at in order), set_of=new_number[prices.set_of])
        self.estimator = load_plugin(PluginGroup.ESTIMATORS, self.scenario.estimator).with_constants(self.constants)
        prepare = self.estimator.compile if isinstance(self.estimator, CompilingEstimator) else tuple
        self.planned = PlannedModel(compile_steps(prices.sets, prepare=prepare), prices)
        self.columns = SPACE.columns(np.arange(SPACE.size))
        self.chips = chips_of(self.columns, self.constants)
        self.estimates = self.estimator.estimate(self.planned.compiled.operators, self.chips)
        self.pools = PhasePools(self.scenario.exclusivity)
        self.pools.grow(self.planned.compiled, self.estimates, self.chips)
        self.bounds = self.pools.bounds_and_choices(self.planned.compiled, self.estimates, self.chips)

    def uppers(self):
        """Upper bounds of every design by the least bound of any plan."""
        attention_s = self.check.even.attention_s(self.estimates.spread_s)
        makespan_s = self.bounds.makespan_s
        batch_s = [
            self.check.least_bound(makespan_s[at], attention_s[at], capacity_bytes=float(hbm_bytes))
            for at, hbm_bytes in enumerate(self.columns.hbm_bytes)
        ]
        return self.scenario.global_batch / (np.array(batch_s) * (1 - BOUND_SLACK))

    def solved(self, row: int):
        """The best plan with even cuts of a design, by the prover's schedules and price: its rate and its solution."""
        estimates = self.estimator.estimate(self.planned.compiled.operators, self.chips.take(np.array([row])))
        chip = self.chips.row(row)
        lower_s = self.bounds.makespan_s[row]
        best = best_plan(self.planned, estimates, chip, lower_s=lower_s, scenario=self.scenario)
        step = self.planned.prices.steps[best.row]
        schedules = tuple(
            SolvedSchedule(layer, (*PHASES, PHASES[0])[column], each.start_s, each.is_spread, is_again=column == 3)
            for layer, of_layer in enumerate(best.times.schedules)
            for column, each in enumerate(of_layer)
        )
        plan = SolvedPlan(best.plan, step.blocks, (best.plan.recompute,) * best.plan.pipeline)
        model = SolvedModel(best.plan.tensor, best.plan.data, (), schedules, plan)
        return self.scenario.global_batch / best.step.seconds, Solution(row, (model,))

    def slots(self, topologies):
        """Columns of the multipliers."""
        sets = self.planned.prices.sets
        position = {key: number for number, key in enumerate(topologies)}
        return tuple(
            Slot(
                0,
                sets[slot.option].plan.tensor,
                slot.layer,
                (*PHASES, PHASES[0])[slot.phase],
                position[slot.key],
                slot.block,
                slot.option,
                is_again=slot.phase == 3,
            )  # fmt: skip
            for slot in phase_slots(self.planned.compiled)
        )

    def topologies(self):
        """Of all sets, each once."""
        options = self.planned.compiled.options
        return tuple(dict.fromkeys(pool_key(p) for option in options for layer in option.phases for p in layer))


def write_planned_certificate(software: str, directory: Path) -> Path:
    """Every file of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    prover = PlannedProver(software)
    upper = prover.uppers()
    incumbent = int(np.argmax(upper))
    rate, solution = prover.solved(incumbent)
    topologies, size = prover.topologies(), SPACE.size
    directory.mkdir()
    source = SimpleNamespace(topologies=topologies, pool=lambda number: prover.pools.pools()[topologies[number]])
    write(directory / "pool.json", PoolFile, pool_file(source))
    write(directory / "solutions.json", SolutionsFile, SolutionsFile((solution,)))
    np.savez_compressed(directory / "multipliers.npz", mb1=prover.bounds.choices)
    is_solved = np.arange(size) == incumbent
    axes = [axis for axis in AXES if axis.name in SPACE.axes.stated or axis.default is None]
    points = {axis.name: getattr(prover.columns, axis.name).astype(axis.parquet) for axis in axes}
    table = {
        "index": np.arange(size),
        **points,
        "area_mm2": area_um2_table(prover.chips, constants=prover.constants) / UM2_PER_MM2,
        "tdp_w": tdp_w_table(prover.chips, prover.scenario.cluster.network, prover.constants),
        "throughput_samples_per_s": np.where(is_solved, rate, 0.0),
        "throughput_upper_samples_per_s": upper,
        "status": [("pruned-by-bound", "solved")[each] for each in is_solved.tolist()],
        "bound": ["exact"] * size,
        "reason": ["" if each > 0 else "no placement fits the memory" for each in upper],
        "multipliers_index": np.arange(size, dtype=np.int32),
    }
    pq.write_table(pa.table(table), directory / "points.parquet")
    gap = float(upper.max() / rate - 1)
    claim = Claim(
        True, incumbent, SPACE.point(incumbent), rate, float(upper.max()), rate, gap, 1e-3, gap <= 1e-3, size, 1
    )
    digest = problem_digest(prover.scenario, prover.constants, space=SPACE, goal=Goal.THROUGHPUT)
    files = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in DATA_FILES}
    certificate = Certificate(
        FORMAT, claim, Goal.THROUGHPUT, prover.scenario, SPACE, prover.constants.digest, digest,
        prover.slots(topologies), files, CertificateProvenance("1", "3", "HiGHS", 0, 0, 1.0),
    )  # fmt: skip
    certificate = replace(certificate, digest=content_digest(to_plain(Certificate, certificate)))
    write(directory / "certificate.json", Certificate, certificate)
    return directory


def write(path: Path, kind: type, value: object) -> None:
    """One JSON file."""
    path.write_text(json.dumps(to_plain(kind, value)) + "\n", encoding="utf-8")
