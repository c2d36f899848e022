"""Pipelines whose stages choose among chips: equal to trying all chips, cuts and recomputations, each priced alone."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.mixed_pipelines import price_everything
from kits.pipelines import columns_of_equal_units
from kits.steps import SMALL_MODEL

from phaze_opt.cost.price_step import LayerTimes, StageDevices, price_stages, price_step
from phaze_opt.cost.stage_costs import choice_bytes
from phaze_opt.cost.step_time import StageLoads, StepRules, lower_reading, price_reading, step_times
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.plan.cut_program import PipelineRules, StageCandidates, solve_cuts
from phaze_opt.plan.cuts import MixedStages, lower_of_stages, price_of_stages
from phaze_opt.plan.optimum import free_degrees
from phaze_opt.plan.plan_degrees import StageChip
from phaze_opt.plan.plan_search import Machine
from phaze_opt.workload.plan import PlanChoices
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

NAMES = [each.name for each in fields(StageLoads)]
NETWORK = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 4, 100e9, 1e-6), NetworkDimension(Topology.SWITCH, 4, 10e9, 5e-6))
)
TRAINING = TrainingSpec(micro_batch=1, sequence_length=256, global_batch=16)
MODEL = replace(SMALL_MODEL, hidden_size=512, embedding_size=512, num_heads=8, num_kv_heads=8, ffn_size=2048)
SOFTWARE = st.sampled_from(
    [
        {},
        {"data_overlap": 0.7, "parameter_overlap": 0.5, "transfer_overlap": 0.3, "step_overhead_s": 1e-3},
        {"data_overlap": 0.95, "waiting_share": 0.05, "host_s_per_operator": 1e-5},
    ]
)


class SomeClock:
    """Asked for nothing: times are drawn."""


def drawn_loads(rng, shape, zero):
    """Times of stages by kind, blocks and choice; more blocks take longer, up to some noise."""
    size = {
        name: (np.arange(shape[1])[None, :, None] + rng.random(shape)) * 10.0 ** rng.uniform(-2, 0) for name in NAMES
    }
    busy = sum(size[name] for name in ("matmul_s", "attention_s", "vector_s", "launch_s", "tensor_s"))
    size["backward_s"] = busy * rng.uniform(0.4, 0.8, shape)
    size["parameter_s"] *= 20 * (zero == 3)
    size["reduction_s"] *= 20 * (zero == 2)
    size["gradient_s"] *= 30
    return size


def scaled(size, forward, backward):
    """The same with other forward and backward passes and updates; what is sent stays."""
    names = ("matmul_s", "attention_s", "vector_s", "launch_s", "tensor_s")
    busy = sum(size[name] for name in names)
    ahead, back = (busy - size["backward_s"]) * forward, size["backward_s"] * backward
    return (
        size
        | {name: size[name] / busy * (ahead + back) for name in names}
        | {"backward_s": back, "update_s": size["update_s"] * backward}
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    zero=st.integers(0, 3),
    stages=st.integers(1, 3),
    num_blocks=st.integers(2, 5),
    m=st.integers(1, 9),
    chips=st.integers(1, 3),
    overlaps=st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.6])),
    interleave=st.sampled_from([1.0, 1.0, 2.0]),
)
def test_prices_of_some_chips_and_bounds_of_others_are_below_every_pipeline(
    seed, zero, stages, num_blocks, m, chips, overlaps, interleave
):
    """The program over two readings (decision 0264): never above the price of any pipeline at the true times, and the
    least price itself where what it chose is priced."""
    rng = np.random.default_rng(seed)
    kinds = np.array([0, *[1] * (stages - 2), 2][:stages] if stages > 1 else [0], np.intp)
    shape, ways = (3, num_blocks + 1, 2), 2
    one = [np.array([each]) for each in (float(m), interleave, *overlaps, 0.0, 0.0)]
    rules = StepRules(*one)
    is_exact = rng.random(chips) < 0.5
    true, parts, hidden = [], [], 0.0
    for exact in is_exact:
        size = drawn_loads(rng, shape, zero)
        true.append(size)
        known = size if exact else scaled(size, rng.uniform(0.3, 1.0), rng.uniform(0.3, 1.0))
        flat = StageLoads(**{name: known[name].reshape(1, -1) for name in NAMES})
        reading = price_reading(flat, rules) if exact else lower_reading(flat, rules)
        each = (reading.forward_s, reading.backward_s, reading.sync_s, reading.least_sync_s)
        parts.append(np.stack([values.reshape(shape) for values in each], axis=-1))
        hidden = max(hidden, float(reading.hidden_share[0]))
    allowed = rng.random((stages, num_blocks + 1, ways * chips)) < 0.85
    allowed[1:-1, 0] = False
    found, chosen, most, _ = solve_cuts(
        StageCandidates(np.concatenate(parts, axis=2), kinds, *columns_of_equal_units(num_blocks), allowed),
        PipelineRules(num_blocks, float(m), interleave, hidden),
        np.inf,
    )
    labels = [
        (cuts, choice)
        for cuts in product(range(num_blocks + 1), repeat=stages)
        if sum(cuts) == num_blocks
        for choice in product(range(ways * chips), repeat=stages)
        if all(allowed[stage, n, c] for stage, (n, c) in enumerate(zip(cuts, choice, strict=True)))
    ]
    assert bool(most) == bool(labels)
    if not labels:
        return
    cuts, choices = (np.array(each) for each in zip(*labels, strict=True))
    every = {name: np.concatenate([size[name] for size in true], axis=2) for name in NAMES}
    loads = StageLoads(**{name: every[name][kinds[None], cuts, choices] for name in NAMES})
    many = StepRules(**{each.name: np.repeat(getattr(rules, each.name), len(labels)) for each in fields(StepRules)})
    prices = step_times(loads, many).seconds
    assert found <= prices.min() * (1 + 1e-12)
    if is_exact[chosen[:, 1] // ways].all():
        assert found == pytest.approx(prices.min(), rel=1e-12)
        own = labels.index((tuple(chosen[:, 0].tolist()), tuple(chosen[:, 1].tolist())))
        assert prices[own] == pytest.approx(found, rel=1e-12)


def chips_of(rng, step, count):
    """Times of a step's layers on chips that are good at different ones."""
    base = np.array([[0.2, 0.4, 0.1, 0.2], [1.0, 2.0, 0.2, 1.0], [0.5, 1.0, 0.3, 0.5]]) * 1e-3
    found = []
    for _ in range(count):
        classes_s = np.zeros((3, 4, 3))
        classes_s[..., 0] = base * rng.uniform(0.3, 2.0, (3, 1)) * rng.uniform(0.7, 1.3, (3, 4))
        classes_s[:, 3] = np.minimum(classes_s[:, 3], classes_s[:, 0])
        found.append(LayerTimes(classes_s, np.array([0.0, 2e-4, 0.0]) * rng.uniform(0.5, 2.0)))
    return found


def one_set(num_layers, pipeline, zero, interleave=1, **software):
    """The one set of degrees of a chain, on four devices a replica."""
    stack = TrainingStack(**{"attention": AttentionForm.UNFUSED, "k_ramp": 0.0, "exposed_traffic": 0.0, **software})
    machine = Machine(SomeClock(), 1e15, NETWORK, stack)
    choices = PlanChoices((2,), (pipeline,), data=(2,), micro_batch=(1,), zero=(zero,), interleave=(interleave,))
    model = replace(MODEL, num_layers=num_layers)
    degrees = free_degrees(model, TRAINING, num_devices=4 * pipeline, choices=choices, machine=machine)
    assert len(degrees) == 1
    return degrees


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from([(2, 2), (3, 2), (5, 2), (3, 3), (4, 1)]),
    zero=st.integers(0, 3),
    count=st.integers(1, 3),
    software=SOFTWARE,
    quantile=st.sampled_from([0.3, 0.7, 1.0]),
)
def test_equals_pricing_every_choice_of_chips_cuts_and_recomputations(seed, shape, zero, count, software, quantile):
    """Chains of up to five blocks, three chips with memories of their own, ZeRO 0 to 3, overlaps."""
    rng = np.random.default_rng(seed)
    degrees = one_set(*shape, zero, **software)
    step = degrees.step(0)
    times = chips_of(rng, step, count)
    peaks = np.unique(degrees_memory(degrees))
    memories = [float(np.quantile(peaks, min(1.0, quantile * rng.uniform(0.6, 1.2)))) for _ in times]
    chips = [StageChip(each, memory) for each, memory in zip(times, memories, strict=True)]
    labels, seconds = price_everything(degrees, 0, times, memories)
    found = degrees.best_stages_on(0, chips)
    if not labels:
        assert found is None
        return
    best = found.ranked
    assert best.time.seconds == pytest.approx(seconds.min(), rel=1e-9)
    own = MixedStages(best.plan.blocks or step.blocks, found.chips, best.plan.recomputes)
    assert seconds[labels.index(own)] == pytest.approx(best.time.seconds, rel=1e-12)
    assert all(stage.total_bytes <= memories[chip] for stage, chip in zip(best.memory.stages, found.chips, strict=True))
    tables = degrees.tables(0, chips)
    for number in rng.choice(len(labels), min(20, len(labels)), replace=False):
        assert price_of_stages(tables, labels[number]) == pytest.approx(seconds[number], rel=1e-12)
        assert lower_of_stages(tables, labels[number]) <= seconds[number] * (1 + 1e-12)
    bound = degrees.least_choice(0, [replace(chip, is_exact=False) for chip in chips])
    assert bound.seconds <= best.time.seconds * (1 + 1e-9)
    for each in chips:
        alone = degrees.best_stages(0, each.times, each.memory_bytes)
        assert alone is None or best.time.seconds <= alone.time.seconds * (1 + 1e-9)


def degrees_memory(degrees):
    """What stages hold under any choice, bytes."""
    return choice_bytes(degrees.step(0))[:, list(degrees.sizes(0))].ravel()


def test_stages_of_interleaved_plans_pick_chips_too():
    """Cuts are given: the stages of least load, all of them tried."""
    rng = np.random.default_rng(4)
    degrees = one_set(4, 2, 1, interleave=2, data_overlap=0.5)
    chosen = set()
    for _ in range(8):
        times = chips_of(rng, degrees.step(0), 3)
        labels, seconds = price_everything(degrees, 0, times, [1e15] * 3)
        found = degrees.best_stages_on(0, [StageChip(each, 1e15) for each in times])
        assert found.ranked.time.seconds == pytest.approx(seconds.min(), rel=1e-9)
        assert {label.blocks for label in labels} == {(2, 2)}
        chosen.add(found.chips)
    assert len({len(set(chips)) for chips in chosen}) == 2


def test_one_chip_in_a_list_is_one_chip():
    rng = np.random.default_rng(1)
    degrees = one_set(5, 3, 1, data_overlap=0.5)
    (times,) = chips_of(rng, degrees.step(0), 1)
    alone = degrees.best_stages(0, times, 1e15)
    assert degrees.best_stages_on(0, [StageChip(times, 1e15)]).ranked == alone
    twins = degrees.best_stages_on(0, [StageChip(times, 1e15)] * 3)
    assert (twins.ranked, twins.chips) == (alone, (0, 0, 0))
    step = replace(degrees.step(0), plan=alone.plan, blocks=alone.plan.blocks or degrees.step(0).blocks)
    devices, network = StageDevices([times] * 2, (0, 1, 0)), degrees.network_of(0)
    assert price_step(step, devices, network) == price_step(step, times, network)
    mixed, plain = price_stages(step, devices, network), price_stages(step, times, network)
    assert np.array_equal(mixed.micro_batch_s, plain.micro_batch_s)
    assert np.array_equal(mixed.sync_s, plain.sync_s)


def test_each_stage_updates_and_waits_on_its_own_chip():
    """The update of a slow chip counts where it is, and only there."""
    degrees = one_set(4, 2, 0)
    quick, slow = chips_of(np.random.default_rng(2), degrees.step(0), 1) * 2
    slow = LayerTimes(slow.classes_s.copy(), slow.attention_s)
    slow.classes_s[:, 2] *= 1000.0
    network, step = degrees.network_of(0), degrees.step(0)
    times = [price_step(step, StageDevices([quick, slow], each), network) for each in ((0, 0), (0, 1), (1, 0))]
    stages = [price_stages(step, StageDevices([quick, slow], each), network) for each in ((0, 1), (1, 0))]
    assert times[0].update_s < times[1].update_s
    assert times[0].update_s < times[2].update_s
    assert stages[0].sync_s[0, 0] < stages[1].sync_s[0, 0]
    assert stages[1].sync_s[0, 1] < stages[0].sync_s[0, 1]
    assert np.array_equal(stages[0].micro_batch_s, stages[1].micro_batch_s)


def test_last_digits_of_a_cpu_choose_no_chip():
    """Layer times of equal chips that differ where rounding does lead to the same stages."""
    degrees = one_set(5, 3, 1, data_overlap=0.5)
    first, second = chips_of(np.random.default_rng(3), degrees.step(0), 2)
    chosen = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        noisy = [
            replace(each, classes_s=each.classes_s * (1.0 + 1e-14 * rng.uniform(-1, 1, each.classes_s.shape)))
            for each in (first, second, first, second)
        ]
        found = degrees.best_stages_on(0, [StageChip(each, 1e15) for each in noisy])
        bound = degrees.least_choice(0, [StageChip(each, 1e15, number > 0) for number, each in enumerate(noisy)])
        chosen.add((found.ranked.plan, found.chips, bound.stages))
    assert len(chosen) == 1
