"""Scenarios with full plans, their checker, and the prover's prices of the same plans beside it."""

from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.certify.check.plans.layer_sets import SetKey, key_of
from phaze_opt.certify.check.plans.plan_check import PlanCheck, StagedPlan
from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.price_step import StackColumns, batch_loads
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StageLoads, StepRules
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Cluster, Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.best_placement import bound_option, solve_option
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.plan_refinement import layer_classes
from phaze_opt.objective.scenario import PLANNED, Scenario
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import PlanChoices

WIDE = PlanChoices(
    context=(1, 2), expert=(), interleave=(), micro_batch=(1, 2), zero=(0, 1, 2, 3), state_shards=(0, 2),
    expert_tensor=(),
)  # fmt: skip
"""Every kind of plan there is."""


def planned_scenario(
    model: str | ModelSpec,
    *,
    software: str = "maxtext",
    network: str | Network = "two-level",
    devices: int = 32,
    batch: int = 128,
    choices: PlanChoices = WIDE,
) -> Scenario:
    """One model on a cluster, with plans."""
    wires = load_network(network, num_devices=devices) if isinstance(network, str) else network
    return Scenario(
        models=(load_model(model) if isinstance(model, str) else model,),
        cluster=Cluster(devices, wires),
        global_batch=batch,
        sequence_length=256,
        plans=choices,
        stack=load_stack(software, load_fitted()),
    )


def checker(scenario: Scenario) -> PlanCheck:
    """The checker of a scenario's only model."""
    return PlanCheck(scenario, scenario.models[0], scenario.plans)


@dataclass(frozen=True)
class DrawnTimes:
    """Times of layers on chips, as the checker takes them."""

    makespan_s: Floats
    attention_s: Floats


def draw_times(check: PlanCheck, rng: np.random.Generator, *, chips: int = 1, wide: bool = True) -> DrawnTimes:
    """Log-uniform times; ``wide``: over decades of compute against traffic."""
    num_layers, num_passes = len(check.sets[0].phases), len(check.sets[0].phases[0])
    scale = 10.0 ** rng.uniform(-5, -1, size=(chips, len(check.sets), 1, 1)) if wide else 1e-3
    makespan_s = scale * 10.0 ** rng.uniform(-1, 1, size=(chips, len(check.sets), num_layers, num_passes))
    attention_s = makespan_s[..., 0] * rng.uniform(0, 1, size=(chips, len(check.sets), num_layers))
    attention_s[..., [not each for each in check.sets[0].attention]] = 0.0
    return DrawnTimes(makespan_s, attention_s)


def compiled(scenario: Scenario, staged: StagedPlan) -> CompiledStep:
    """The prover's step of a plan, its cuts and its recomputations."""
    model = scenario.models[0]
    plan = staged.plan.with_stages(staged.blocks, staged.recompute)
    return compile_step(model, scenario.training_of(model, plan.micro_batch), plan, stack=scenario.stack)


def prover_loads(
    scenario: Scenario, check: PlanCheck, staged: StagedPlan, times: DrawnTimes, chip: int
) -> tuple[StageLoads, StepRules]:
    """What the prover has each stage do."""
    key: SetKey = key_of(staged.plan)
    number = [layers.key for layers in check.sets].index(key)
    step = compiled(scenario, staged)
    classes_s = layer_classes(times.makespan_s[chip, number], step.graph)[None]
    attention_s = step.graph.of_parts(times.attention_s[chip, number])[None]
    batch = build_batch([step], [plan_network(scenario.cluster.network, step.plan)])
    return batch_loads(batch, classes_s, attention_s, StackColumns([scenario.stack]))


def least_of_all(objective: Objective, point: DesignPoint, check: CutCheck) -> float:
    """Solve every set's schedules, and have the checker's program find the least price over all plans."""
    planned, chip = objective.planned(0), objective.accelerator(point)
    estimates = objective.estimate(chip, PLANNED)
    makespan_s = []
    for option in planned.compiled.options:
        times = bound_option(option, estimates, chip, scenario=objective.scenario)
        solve_option(option, times, estimates, chip, scenario=objective.scenario)
        forward, again = times.upper_s[:, :1], times.upper_s[:, 3:]
        makespan_s.append(np.concatenate([times.upper_s[:, :3], np.minimum(again, forward)], axis=1))
    columns = {operator: at for at, operator in enumerate(planned.compiled.operators)}
    spread_s = estimates.spread_s[:, [columns[operator] for operator in check.even.operators]]
    attention_s = check.even.attention_s(spread_s)[0]
    return check.least_price(np.array(makespan_s), attention_s, capacity_bytes=float(chip.hbm_bytes))
