"""Tables of plans against the same steps built one by one, over all shipped software, models and networks."""

from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from itertools import product

import numpy as np
import pytest
from kits.arrays import assert_close
from kits.plain_plans import plain_memory
from kits.plain_steps import plain_batch

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler
from phaze_opt.cost.plan_memory import peak_bytes, plan_memories
from phaze_opt.cost.price_kernel import plan_bounds_s, plan_prices_s
from phaze_opt.cost.price_rows import layer_times, price_rows
from phaze_opt.cost.price_step import StackColumns, batch_loads, price_batch
from phaze_opt.cost.stacks import list_stacks, load_stack
from phaze_opt.cost.step_table import StepTable, build_batch, build_table
from phaze_opt.cost.step_table_parts import list_layouts
from phaze_opt.cost.step_time import lower_s
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Chunking, Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import PlanChoices, Recompute
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

FITTED = load_fitted()
DEVICES, PLANS = 64, 24
TRAINING = TrainingSpec(1, 512, 256)
MODELS = ("gpt2-xl", "llama-2-7b", "mixtral-8x7b", "opt-350m")
"""Tied and untied heads, experts, a projected embedding."""
CHOICES = PlanChoices(
    tensor=(1, 4),
    interleave=(1, 2, 3, 4),
    zero=(0, 1, 2, 3),
    expert=(1, 4),
    context=(1, 4),
    micro_batch=(1, 2),
    state_shards=(0, 2),
    expert_tensor=(0, 1, 2),
)


def network(name: str) -> Network:
    """Measured curves, specified links of two levels, crossed in chunks or not, a torus."""
    plain, _, chunking = name.partition(" ")
    found = load_network(plain, num_devices=DEVICES, fitted=FITTED)
    return found.with_chunking(Chunking(chunking)) if chunking else found


NETWORKS = ("dgx-h100", "two-level", "two-level themis", "tpu-v5p-torus")


def some_plans(model_name: str, seed: int) -> PlanColumns:
    """Plans of a model, drawn from all."""
    plans = list_plans(load_model(model_name), TRAINING, num_devices=DEVICES, choices=CHOICES)
    chosen = np.random.default_rng(seed).choice(len(plans), size=PLANS, replace=False)
    return plans.take(chosen)


def both_ways(
    model_name: str, network_name: str, stack: TrainingStack, *, seed: int
) -> tuple[StepTable, list[CompiledStep], list[Network]]:
    """A table of some plans, and the same plans compiled one by one."""
    model, plans, own = load_model(model_name), some_plans(model_name, seed), network(network_name)
    compiler = StepCompiler()
    table = build_table(list_layouts(model, TRAINING, plans, network=own, stack=stack))
    steps = [compiler.compile(model, TRAINING, plan, stack=stack) for plan in plans]
    return table, steps, [plan_network(own, plan) for plan in plans]


def leaves(one: object, other: object, name: str = "") -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Arrays of two records, by name."""
    if is_dataclass(one):
        for field in fields(one):
            yield from leaves(getattr(one, field.name), getattr(other, field.name), f"{name}.{field.name}")
    else:
        yield name, np.asarray(one), np.asarray(other)


CASES = [
    (software, MODELS[(place + turn) % len(MODELS)], name)
    for place, software in enumerate(list_stacks())
    for turn, name in enumerate(NETWORKS)
]


QUICK = [case for number, case in enumerate(CASES) if (number // 8 + number) % 2 == 0]
"""Every software on two networks with two models."""


def seed_of(software: str, network_name: str) -> int:
    return len(software) + len(network_name)


def test_the_plans_drawn_have_every_feature() -> None:
    """And pairs of them: every ZeRO stage with hybrid shards, interleaved and not, experts, context, recomputation."""
    drawn = [plan for software, name, own in QUICK for plan in some_plans(name, seed_of(software, own))]
    features = {(plan.zero, plan.state_shards > 0, plan.interleave > 1, plan.context > 1) for plan in drawn}
    assert {each for each in features if each[0]} == set(product((1, 2, 3), *[(False, True)] * 3))
    assert {(plan.zero, plan.expert, plan.recompute) for plan in drawn} >= set(product(range(4), (1, 4), Recompute))
    folds = {(plan.zero, plan.expert, plan.expert_tensor) for plan in drawn if plan.tensor == 4}
    assert folds >= set(product(range(4), (1, 4), (0, 1, 2))) - {(zero, 4, 1) for zero in range(4)}


@pytest.mark.parametrize(
    ("software", "model_name", "network_name"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES],
)
def test_a_table_holds_what_steps_built_one_by_one_do(software: str, model_name: str, network_name: str) -> None:
    """Traffic by traffic, memory to the last bit; then prices and bounds of the kernel on two chips."""
    stack = load_stack(software, FITTED)
    table, steps, networks = both_ways(model_name, network_name, stack, seed=seed_of(software, network_name))
    plain, everything = plain_batch(steps, networks), np.arange(len(steps))
    batch = table.batch(everything)
    for name, found, expected in leaves(batch, plain):
        # Plain latencies are told from whole times by subtraction: their last digit is that of the whole.
        assert_close(found, expected, rel=1e-12, abs=1e-15, of=name)
    memories = [
        plain_memory(
            [layer.graph for layer in step.layers],
            step.plan,
            blocks=step.blocks,
            num_micro_batches=step.num_micro_batches,
            stack=stack,
        )
        for step in steps
    ]
    optimizer = TRAINING.optimizer
    # A share of what is kept rounds, and either way multiplies it in at another place.
    rel = 0.0 if stack.kept_share == 1.0 else 1e-14
    peaks = [each.peak_bytes for each in memories]
    assert peak_bytes(table, optimizer=optimizer, stack=stack).tolist() == pytest.approx(peaks, rel=rel, abs=0.0)
    for found, expected in zip(
        plan_memories(table, everything, optimizer=optimizer, stack=stack), memories, strict=True
    ):
        for stage, plain_stage in zip(found.stages, expected.stages, strict=True):
            assert asdict(stage) == pytest.approx(asdict(plain_stage), rel=rel, abs=0.0)

    rng = np.random.default_rng(1)
    shape = (2, len(table.graphs), 3)
    classes_s, attention_s = 10.0 ** rng.uniform(-6, -2, (*shape, 4, 3)), 10.0 ** rng.uniform(-6, -3, shape)
    rows, layer_s = price_rows(table, stack), layer_times(table, classes_s, attention_s, stack)
    graph, stacks = table.graph_of_group[table.plans.group], StackColumns([stack] * len(steps))
    prices, bounds = plan_prices_s(rows, layer_s), plan_bounds_s(rows, layer_s)
    for chip in range(2):
        times = classes_s[chip][graph], attention_s[chip][graph]
        assert_close(prices[chip], price_batch(plain, *times, stacks).seconds, rel=1e-12)
        assert_close(bounds[chip], lower_s(*batch_loads(plain, *times, stacks)), rel=1e-12)


def test_rows_of_any_models_and_software_are_the_same_steps() -> None:
    """As validation builds them, with cuts of their own."""
    steps, networks = [], []
    for place, (software, model_name, network_name) in enumerate(CASES[::7]):
        _, found, own = both_ways(model_name, network_name, load_stack(software, FITTED), seed=place)
        for step, each in zip(found[:4], own, strict=False):
            blocks = list(step.blocks)
            if len(blocks) > 1 and step.plan.interleave == 1:
                blocks[0], blocks[-1] = blocks[0] - 1, blocks[-1] + 1
            steps.append(replace(step, blocks=tuple(blocks)))
            networks.append(each)
    for name, found, expected in leaves(build_batch(steps, networks), plain_batch(steps, networks)):
        assert_close(found, expected, rel=1e-12, abs=1e-15, of=name)


def test_times_that_are_not_told_apart_may_come_without_classes() -> None:
    """As matmuls of any number of chips at once; a lone head, launches and gradient sums are still the software's."""
    for software in ("megatron-2021", "llm-foundry"):
        stack = replace(load_stack(software, FITTED), lone_head_efficiency=0.7, host_s_per_operator=1e-5)
        table, _, _ = both_ways("gpt2-xl", "two-level", stack, seed=4)
        rng, shape = np.random.default_rng(5), (4, len(table.graphs), 3)
        alone, attention_s = rng.uniform(1e-4, 1e-3, (*shape, 4, 1)), rng.uniform(1e-5, 1e-4, shape)
        told = np.concatenate([alone, np.zeros((*shape, 4, 2))], axis=-1)
        found, expected = (layer_times(table, each, attention_s, stack) for each in (alone, told))
        assert_close(found, expected, rel=1e-14)
        for chip in range(4):
            one = layer_times(table, told[chip : chip + 1], attention_s[chip : chip + 1], stack)
            assert (one[0] == expected[chip]).all()


def test_some_plans_of_a_table_are_priced_as_all_are() -> None:
    """In any order, on any number of chips."""
    stack = load_stack("megatron-core", FITTED)
    table, _, _ = both_ways("gpt2-xl", "dgx-h100", stack, seed=3)
    shape = (3, len(table.graphs), 3)
    rng = np.random.default_rng(2)
    times = layer_times(table, rng.uniform(1e-4, 1e-3, (*shape, 4, 3)), rng.uniform(1e-5, 1e-4, shape), stack)
    rows, chosen = price_rows(table, stack), rng.permutation(PLANS)[:10]
    for price in (plan_prices_s, plan_bounds_s):
        everything = price(rows, times)
        assert (price(rows, times, chosen) == everything[:, chosen]).all()
        assert (price(rows, times[1:2]) == everything[1:2]).all()
        assert len(np.unique(everything)) > PLANS
