"""Plans that lay experts out alike in other words: one price, one memory."""

from dataclasses import replace

import numpy as np
import pytest
from kits.fewer_cases import every

from phaze_opt.cost.compiled_step import NUM_PASSES
from phaze_opt.cost.device_seconds import NUM_CLASSES
from phaze_opt.cost.stacks import load_stack
from phaze_opt.graph.layer import NUM_PLAIN_PARTS
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.plan.priced_plans import PricedPlans, price_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.training import TrainingSpec

DEVICES = 64
MODEL, TRAINING = load_model("mixtral-8x7b"), TrainingSpec(1, 512, 128)
CHOICES = PlanChoices(
    tensor=(2, 4, 8), context=(1, 2), expert=(1, 2, 4, 8), interleave=(1, 2), micro_batch=(1,), zero=(0, 1, 2, 3),
    state_shards=(0, 2),
)  # fmt: skip


def priced(plans: list[ParallelPlan], network: Network, software: str) -> tuple[PricedPlans, np.ndarray, np.ndarray]:
    """Plans whose layers all take the same times, their prices and their bounds."""
    stack = load_stack(software, load_fitted())
    found = price_plans(MODEL, TRAINING, PlanColumns.of(plans), network=network, stack=stack)
    one = np.random.default_rng(4).uniform(1e-4, 1e-3, (NUM_PLAIN_PARTS, NUM_PASSES, NUM_CLASSES))
    classes_s = np.broadcast_to(one, (len(found.sets), *one.shape))
    attention_s, everything = np.zeros((len(found.sets), NUM_PLAIN_PARTS)), np.arange(len(plans))
    return found, found.seconds(everything, classes_s, attention_s), found.lower_s(everything, classes_s, attention_s)


def drawn(*, has_groups: bool) -> list[ParallelPlan]:
    plans = list_plans(MODEL, TRAINING, num_devices=DEVICES, choices=CHOICES)
    fitting = np.flatnonzero((plans.expert > 1) == has_groups)
    chosen = np.random.default_rng(7).choice(fitting, size=200, replace=False)
    return list(plans.take(np.sort(chosen)))


@pytest.mark.parametrize(
    ("name", "software"),
    every(2, ["two-level", "dgx-h100", "tpu-v5p-torus"], ["megatron-core", "maxtext", "llm-foundry"]),
)
def test_all_of_a_tensor_group_named_or_not_is_one_price(name, software):
    """To the last bit: price, bound and memory."""
    network, plans = load_network(name, num_devices=DEVICES), drawn(has_groups=True)
    named = [replace(plan, expert_tensor=plan.tensor) for plan in plans]
    (before, seconds, lower), (after, others, bounds) = (priced(each, network, software) for each in (plans, named))
    assert others.tolist() == seconds.tolist()
    assert bounds.tolist() == lower.tolist()
    assert after.peak_bytes.tolist() == before.peak_bytes.tolist()


@pytest.mark.parametrize("software", ["megatron-core", "maxtext", "llm-foundry"])
def test_whole_experts_within_a_tensor_group_are_what_plans_without_experts_degrees_have(software):
    """Where collectives take no latency, sending experts' gradients apart takes as long as with all others."""
    links = tuple(NetworkDimension(Topology.SWITCH, size, rate, 0.0) for size, rate in ((8, 4e11), (8, 5e10)))
    network, plans = Network("links", links), drawn(has_groups=False)
    folded = [replace(plan, expert=plan.tensor, expert_tensor=1) for plan in plans]
    (before, seconds, lower), (after, others, bounds) = (priced(each, network, software) for each in (plans, folded))
    assert others == pytest.approx(seconds, rel=1e-12)
    assert bounds == pytest.approx(lower, rel=1e-12)
    assert after.peak_bytes == pytest.approx(before.peak_bytes, rel=1e-12)
    slow = load_network("dgx-h100", num_devices=DEVICES)
    apart, together = priced(folded, slow, software)[1], priced(plans, slow, software)[1]
    assert (apart >= together * (1 - 1e-12)).all()
    assert (apart > together * (1 + 1e-12)).any()
