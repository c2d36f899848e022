"""What the checker's price of full plans costs: CPU time a plan and chip, and of the program over cuts.

Chips are drawn from Phaze's space; layers take the sum of their operators' shorter latencies, which bounds every
schedule.

Run: python experiments/plans/check.py [--write]
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from records import finish, parser_of

from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.certify.check.plans.plan_check import PlanCheck
from phaze_opt.certify.check.points_table import enumerate_architectures, joined_points
from phaze_opt.cost.stacks import load_stack
from phaze_opt.estimate.protocol import CompilingEstimator
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.units import gib_to_bytes
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import PlanChoices

DEVICES, BATCH, HBM_GB, NUM_BEST = 1024, 4096, 80, 8
CHIPS = {"bert-large": 2048, "gpt3-175b": 2048, "mixtral-8x7b": 1024}
ALL_CHIPS = 88_080
"""Architectures of Phaze's space times three HBM sizes."""
CHOICES = PlanChoices(expert=(), interleave=(), zero=(0, 1, 2, 3))


@dataclass(frozen=True)
class Timed:
    """A value and the CPU time that it took, s."""

    value: Any
    seconds: float


def timed(work: Callable[[], Any]) -> Timed:
    """Run some work."""
    started = time.process_time()
    value = work()
    return Timed(value, time.process_time() - started)


def scenario_of(name: str) -> Scenario:
    """One model on a large cluster."""
    network = load_network("two-level", num_devices=DEVICES)
    stack = load_stack("maxtext", load_fitted())
    return Scenario((load_model(name),), Cluster(DEVICES, network), BATCH, plans=CHOICES, stack=stack)


def layer_times(check: PlanCheck, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of layers on some chips of Phaze's space."""
    constants = load_constants()
    space = phaze_space(hbm_bytes=(gib_to_bytes(HBM_GB),), micro_batches=(1,))
    points = joined_points(space, enumerate_architectures(space, constants))
    chosen = np.sort(np.random.default_rng(0).choice(len(points), size=count, replace=False))
    estimator = load_plugin(PluginGroup.ESTIMATORS, "analytic").with_constants(constants)
    operators = estimator.compile(check.operators) if isinstance(estimator, CompilingEstimator) else check.operators
    makespans, attention = [], []
    for start in range(0, count, 512):
        estimates = estimator.estimate(operators, chips_of(points.take(chosen[start : start + 512]), constants))
        shorter = np.minimum(estimates.spread_s, estimates.one_core_s)
        sets = [
            [[shorter[:, phase.columns].sum(axis=1) for phase in layer] for layer in layers.phases]
            for layers in check.sets
        ]
        makespans.append(np.moveaxis(np.array(sets), -1, 0))
        attention.append(check.attention_s(estimates.spread_s))
    return np.concatenate(makespans), np.concatenate(attention)


def measure(name: str, count: int) -> dict[str, float]:
    """One model."""
    scenario, hbm_bytes = scenario_of(name), float(gib_to_bytes(HBM_GB))
    model = scenario.models[0]
    made = timed(lambda: PlanCheck(scenario, model, CHOICES))
    even: PlanCheck = made.value
    times = timed(lambda: layer_times(even, count))
    makespan_s, attention_s = times.value
    cuts = CutCheck(scenario, model, CHOICES)
    fitting = timed(lambda: cuts.fitting(hbm_bytes))
    num_cut = sum(len(plans) for group in (fitting.value.fixed, fitting.value.cut) for plans in group.values())
    closed = timed(lambda: cuts.lower_bounds(makespan_s, attention_s, capacity_bytes=hbm_bytes))
    best = np.argsort(closed.value)[:NUM_BEST].tolist()
    cuts.least_bound(makespan_s[best[0]], attention_s[best[0]], capacity_bytes=hbm_bytes)
    least = timed(lambda: [cuts.least_bound(makespan_s[at], attention_s[at], capacity_bytes=hbm_bytes) for at in best])
    price = timed(lambda: [cuts.least_price(makespan_s[at], attention_s[at], capacity_bytes=hbm_bytes) for at in best])
    return {
        "plans": len(even.plans),
        "sets": len(even.sets),
        "make_s": made.seconds,
        "estimates_s_of_all_chips": times.seconds / count * ALL_CHIPS,
        "degrees_that_fit": num_cut,
        "fitting_s": fitting.seconds,
        "closed_ns_a_degree_and_chip": closed.seconds / count / num_cut * 1e9,
        "closed_s_of_all_chips": closed.seconds / count * ALL_CHIPS,
        "least_bound_ms_a_chip": least.seconds / NUM_BEST * 1e3,
        "least_price_ms_a_chip": price.seconds / NUM_BEST * 1e3,
        "least_bound_over_closed_form": float(np.max(np.array(least.value) / closed.value[best])),
        "price_over_least_bound": float(np.max(np.array(price.value) / np.array(least.value))),
    }


def main() -> None:
    """Measure, print, and maybe write."""
    given = parser_of(__doc__).parse_args()
    figures = {
        "clock": "CPU time of one process",
        "models": {name: measure(name, count) for name, count in CHIPS.items()},
    }
    finish(__file__, figures, write=given.write)


if __name__ == "__main__":
    main()
