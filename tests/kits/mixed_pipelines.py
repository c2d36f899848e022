"""Every pipeline of a set of degrees whose stages choose chips, by pricing the whole plan on each chip alone."""

from dataclasses import fields, replace
from itertools import product

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StageLoads, StepRules, step_times
from phaze_opt.hardware.network import Network
from phaze_opt.plan.cuts import MixedStages
from phaze_opt.plan.plan_degrees import PlanDegrees
from phaze_opt.plan.plan_search import step_memory

NAMES = [each.name for each in fields(StageLoads)]


def price_everything(
    degrees: PlanDegrees, number: int, times: list[LayerTimes], memories: list[float]
) -> tuple[list[MixedStages], np.ndarray]:
    """Cuts, chips and recomputations of every pipeline that fits, and its price: each stage as the plan has it alone.

    Args:
        degrees: of the model.
        number: of the set.
        times: of its layers on each chip.
        memories: of each chip, bytes.
    """
    first, network, compiler = degrees.step(number), degrees.network_of(number), StepCompiler()
    stages, num_blocks, ways = first.plan.pipeline, first.model.num_layers, degrees.recomputes
    labels: list[MixedStages] = []
    seconds = [np.zeros(0)]
    for cuts in product(range(num_blocks + 1), repeat=stages):
        if sum(cuts) != num_blocks or not all(cuts[1:-1]) or (first.plan.interleave > 1 and cuts != first.blocks):
            continue
        plans = [first.plan.with_stages(cuts, [way] * stages) for way in ways]
        steps = [compiler.compile(first.model, first.training, plan, stack=first.stack) for plan in plans]
        memory = np.array([[each.total_bytes for each in step_memory(one).stages] for one in steps])
        priced = [loads_of(one, each, network) for each in times for one in steps]
        fits = [(memory <= capacity).tolist() for capacity in memories]
        may = [[c for c in range(len(priced)) if fits[c // len(ways)][c % len(ways)][k]] for k in range(stages)]
        choices = list(product(*may))
        if not choices:
            continue
        picked, rules = np.array(choices), priced[0][1]
        own = {name: np.array([getattr(each, name)[0] for each, _ in priced]) for name in NAMES}
        chosen = StageLoads(**{name: values[picked, np.arange(stages)] for name, values in own.items()})
        many = {each.name: np.repeat(getattr(rules, each.name), len(picked)) for each in fields(StepRules)}
        seconds.append(step_times(chosen, StepRules(**many)).seconds)
        labels += [
            MixedStages(cuts, tuple(c // len(ways) for c in each), tuple(ways[c % len(ways)] for c in each))
            for each in choices
        ]
    return labels, np.concatenate(seconds)


def loads_of(step: CompiledStep, times: LayerTimes, network: Network) -> tuple[StageLoads, StepRules]:
    """Loads and rules of one step on one chip."""
    batch = build_batch([step], [network])
    return batch_loads(batch, times.classes_s[None], times.attention_s[None], StackColumns([replace(step.stack)]))
