"""Stages and replicas that no plan was listed of: what their plans take at least, by the passes of one micro-batch.

With S these passes and M what the slowest of p stages does of them, S / p or more, m micro-batches take (m - 1) M / 2
beside S: a stage that ends then has waited for all behind it but for passes of its own, m - 1 in one direction. Where
m > p they take as long as in equal stages at least (`quick`), and in v chunks m M and a v-th of the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.check.plans.admitted import Spread, divisors, every_spread, first_spreads
from phaze_opt.certify.check.plans.layer_sets import BACKWARD, FORWARD, HEAD, LayerSet
from phaze_opt.certify.check.plans.wires import Wires
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.workload import Workload

SLACK = 1.0 - 1e-12
Layers = tuple[int, int, int]
"""Tensor, context and micro-batch."""


@dataclass(frozen=True, slots=True)
class OtherSpreads:
    """Spreads beside those of plans that are listed.

    Attributes:
        times_total: what their plans take at least, as multiples of a micro-batch's passes, by layers and spread.
        smallest: of which none of the others needs less memory.
        overhead_s: what a step takes beside.
    """

    times_total: Mapping[Layers, Mapping[Spread, float]]
    smallest: frozenset[Spread]
    overhead_s: float

    def lower_s(self, totals_s: Mapping[Layers, Floats]) -> Floats:
        """What all of their plans take at least, shape (chips,), s; a micro-batch's passes are of each chip."""
        least = np.full(len(next(iter(totals_s.values()))), np.inf)
        for layers, total_s in totals_s.items():
            of_layers = self.times_total.get(layers)
            if of_layers:
                least = np.minimum(least, min(of_layers.values()) * total_s)
        return np.asarray((least + self.overhead_s) * SLACK)

    def below(self, totals_s: Mapping[Layers, Floats], limit_s: float) -> frozenset[Spread]:
        """Those that may have a plan below a limit on one chip."""
        return frozenset(
            spread
            for layers, total_s in totals_s.items()
            for spread, times in self.times_total.get(layers, {}).items()
            if (times * float(total_s[0]) + self.overhead_s) * SLACK < limit_s
        )


def other_spreads(scenario: Scenario, model: Workload, choices: PlanChoices) -> OtherSpreads:
    """All that are free but those that are looked at first."""
    stack, batch, wires = scenario.stack, scenario.global_batch, Wires(scenario.cluster.network, scenario.stack)
    layers = model.num_units, 2
    found: dict[Layers, dict[Spread, float]] = {}
    most: dict[tuple[int, int, int, int], int] = {}
    for tensor in choices.tensor:
        for context in choices.context:
            devices = scenario.cluster.num_devices // (tensor * context)
            first = set(first_spreads(choices, devices, layers, batch))
            for p, data, micro_batch in sorted(set(every_spread(choices, devices, layers, batch)) - first):
                m = batch // (data * micro_batch)
                plan = ParallelPlan(tensor, p, data, context)
                waiting = stack.waiting_share * float(np.log2(wires.num_islands(plan)))
                times = min(_times_total(p, m, v * stack.fill_chunks) for v in _chunks(model, choices, p, m))
                found.setdefault((tensor, context, micro_batch), {})[tensor, context, p, data, micro_batch] = times * (
                    1.0 + waiting
                )
                key = tensor, context, p, micro_batch
                most[key] = max(most.get(key, 0), data)
    is_any = (
        model.has_experts or bool(stack.rules) or 1 not in (choices.interleave or (1,)) or any(choices.state_shards)
    )
    # Replicas share state and have fewer micro-batches each; one alone needs no room to talk to others.
    smallest = frozenset(
        each
        for of_layers in found.values()
        for each in of_layers
        if is_any or each[1] * each[3] == 1 or most[each[0], each[1], each[2], each[4]] == each[3]
    )
    return OtherSpreads(found, smallest, stack.step_overhead_s)


def _chunks(model: Workload, choices: PlanChoices, stages: int, num_micro: int) -> tuple[int, int]:
    """One chunk a stage, and the most that may be."""
    if len(model.cut.units) > 1 or stages == 1 or num_micro % stages:
        return 1, 1
    known = choices.interleave or divisors(model.num_units)
    return 1, max((each for each in known if each * stages <= model.num_units + 2), default=1)


def _times_total(stages: int, num_micro: int, chunks: int) -> float:
    if chunks > 1:
        return (num_micro + (stages - 1) / chunks) / stages
    if num_micro > stages:
        return (num_micro + stages - 1) / stages
    return 1.0 + (num_micro - 1) / (2 * stages)


def total_s(layers: LayerSet, makespan_s: Floats, lone_head_efficiency: float) -> Floats:
    """Passes of a micro-batch through all layers on cores, shape (chips,), s; makespans (chips, layers, passes), s."""
    runs = np.moveaxis(makespan_s[..., FORWARD] + makespan_s[..., BACKWARD], -1, 0)
    parts = layers.in_parts(runs)
    parts[HEAD] *= min(1.0, 1.0 / lone_head_efficiency)
    counts = 1, *layers.held(0, len(layers.order)), 1
    return np.asarray(sum(count * part for count, part in zip(counts, parts, strict=True)))
