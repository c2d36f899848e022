"""The best plan over degrees, cuts and recomputation per stage: equal to pricing every one of them."""

from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.family_models import SMALL
from kits.fewer_cases import every
from kits.steps import SMALL_MODEL, serial_times

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler, compile_step
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads, price_step
from phaze_opt.cost.stacks import list_stacks, load_stack
from phaze_opt.cost.stage_costs import build_cut_table, choice_bytes, list_stage_choices
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StageLoads, StepRules, step_times
from phaze_opt.errors import InputError
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.cuts import best_choice, least_bound_s
from phaze_opt.plan.optimum import free_degrees, optimal_plan
from phaze_opt.plan.plan_degrees import PlanDegrees
from phaze_opt.plan.plan_search import Machine, clock_sets, step_memory
from phaze_opt.plan.plan_space import list_plans, plan_obstacle
from phaze_opt.plan.stage_room import fitting_stages, stage_sizes
from phaze_opt.workload.config import parse_config
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

NETWORK = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 4, 100e9, 1e-6), NetworkDimension(Topology.SWITCH, 4, 10e9, 5e-6))
)
TRAINING = TrainingSpec(micro_batch=1, sequence_length=256, global_batch=16)
NAMES = [each.name for each in fields(StageLoads)]
MODEL = replace(SMALL_MODEL, hidden_size=512, embedding_size=512, num_heads=8, num_kv_heads=8, ffn_size=2048)
EXPERTS = replace(MODEL, num_experts=4, num_active_experts=2, name="experts")


class MadeUpClock:
    """Rates that need not be true; what full recomputation leaves out is left out."""

    def times(self, step: CompiledStep) -> LayerTimes:
        seconds = np.array([3e-15 * each.macs + 5e-13 * each.traffic_bytes for each in step.operators])
        return serial_times(step, seconds)


def machine_of(memory_bytes: float, **software) -> Machine:
    defaults = {"attention": AttentionForm.UNFUSED, "k_ramp": 0.0, "exposed_traffic": 0.0}
    return Machine(MadeUpClock(), memory_bytes, NETWORK, TrainingStack(**{**defaults, **software}))


def all_cuts(model, plan: ParallelPlan) -> list[tuple[int, ...]]:
    """Every way that the plan's degrees can be cut, by trying all numbers."""
    ways = product(range(model.num_units + 1), repeat=plan.pipeline)
    whole = [cuts for cuts in ways if sum(cuts) == model.num_units and all(cuts[1:-1])]
    return [cuts for cuts in whole if plan_obstacle(model, training_of(model), replace(plan, blocks=cuts)) is None]


def training_of(model) -> TrainingSpec:
    """Of a sequence as long as the model takes."""
    return replace(TRAINING, sequence_length=min(256, model.own_sequence_length))


def price_all(model, machine: Machine, plan: ParallelPlan, recomputes) -> tuple[list, np.ndarray, np.ndarray]:
    """Every plan of one set of degrees: cuts with recomputations, times, and peaks of memory."""
    labels, chosen, peaks = [], [], []
    compiler = StepCompiler()
    for cuts in all_cuts(model, plan):
        plans = [replace(plan, blocks=cuts, recompute=each) for each in recomputes]
        steps = [compiler.compile(model, training_of(model), each, stack=machine.stack) for each in plans]
        times = [machine.clock.times(step) for step in steps]
        batch = build_batch(steps, [machine.network] * len(steps))
        arrays = (np.array([getattr(each, name) for each in times]) for name in ("classes_s", "attention_s"))
        loads, rules = batch_loads(batch, *arrays, StackColumns([step.stack for step in steps]))
        memory = np.array([[stage.total_bytes for stage in step_memory(step).stages] for step in steps])
        stages = np.arange(plan.pipeline)
        for choice in product(range(len(recomputes)), repeat=plan.pipeline):
            labels.append((cuts, tuple(recomputes[each] for each in choice)))
            chosen.append({name: getattr(loads, name)[list(choice), stages] for name in NAMES})
            peaks.append(memory[list(choice), stages].max())
    if not labels:
        return [], np.zeros(0), np.zeros(0)
    together = StageLoads(**{name: np.array([each[name] for each in chosen]) for name in NAMES})
    many = StepRules(**{each.name: np.repeat(getattr(rules, each.name)[:1], len(labels)) for each in fields(StepRules)})
    return labels, step_times(together, many).seconds, np.array(peaks)


def brute_force(model, machine: Machine, num_devices: int, choices: PlanChoices):
    """Times and peaks of every plan there is."""
    one_way = replace(choices, recompute=(Recompute.NONE,), has_cuts=True)
    plans = list_plans(model, training_of(model), num_devices=num_devices, choices=one_way)
    degrees = {replace(each, blocks=()) for each in plans}
    found = [price_all(model, machine, each, choices.recompute) for each in degrees]
    return np.concatenate([seconds for _, seconds, _ in found]), np.concatenate([peaks for *_, peaks in found])


def one_set(model, *, num_devices: int, choices: PlanChoices, machine: Machine) -> tuple[PlanDegrees, LayerTimes]:
    """The one set of degrees that choices leave, and the times of its layers."""
    degrees = free_degrees(model, TRAINING, num_devices=num_devices, choices=choices, machine=machine)
    assert len(degrees) == 1
    times = clock_sets(degrees.prices, machine.clock)
    return degrees, LayerTimes(times.classes_s[0], times.attention_s[0])


SOFTWARE = st.sampled_from(
    [
        {},
        {"data_overlap": 0.7, "parameter_overlap": 0.5, "transfer_overlap": 0.3, "step_overhead_s": 1e-3},
        {"kept_operators": ("fc2",), "prefetches_forward": True, "waiting_share": 0.05, "host_s_per_operator": 1e-5},
    ]
)


@settings(max_examples=4, deadline=None)
@given(
    num_layers=st.integers(2, 4),
    num_devices=st.sampled_from([4, 8, 16]),
    zero=st.sampled_from([(0,), (1, 2), (3,)]),
    software=SOFTWARE,
    has_experts=st.booleans(),
    quantile=st.sampled_from([0.02, 0.3, 1.0]),
)
def test_equals_pricing_every_plan(num_layers, num_devices, zero, software, has_experts, quantile):
    """Chains of up to 6 layers, up to 16 devices in two levels, experts; memory that nothing, some or all plans fit."""
    model = replace(EXPERTS if has_experts else MODEL, num_layers=num_layers)
    choices = PlanChoices(
        tensor=(1, 2),
        pipeline=(1, 2, 4),
        interleave=(1, 2),
        micro_batch=(1, 2),
        zero=zero,
        expert=(1, 2) if has_experts else (1,),
        expert_tensor=(0, 1) if has_experts else (0,),
        recompute=(Recompute.NONE, Recompute.FULL) if num_layers == 4 else tuple(Recompute),
    )
    compare_with_every_plan(model, num_devices, choices, software, quantile)


def compare_with_every_plan(model, num_devices: int, choices: PlanChoices, software, quantile: float) -> None:
    """The best plan of a memory that some plans fit, and of one that none does."""
    seconds, peaks = brute_force(model, machine_of(1e15, **software), num_devices, choices)
    memory, training = float(np.quantile(peaks, quantile, method="lower")), training_of(model)
    for capacity in (memory, peaks.min() * 0.999):
        machine = machine_of(capacity, **software)
        optimum = optimal_plan(model, training, num_devices=num_devices, choices=choices, machine=machine)
        fitting = seconds[peaks <= capacity]
        if not len(fitting):
            assert optimum.best is None
            assert optimum.least_bytes == pytest.approx(peaks.min())
            continue
        assert optimum.best.time.seconds == pytest.approx(fitting.min(), rel=1e-9)
        assert optimum.best.memory.fits(capacity)
        step = compile_step(model, training, optimum.best.plan, stack=machine.stack)
        again = price_step(step, machine.clock.times(step), NETWORK)
        assert optimum.best.time.seconds == pytest.approx(again.seconds, rel=1e-12), "as if priced alone"
        assert plan_obstacle(model, training, optimum.best.plan) is None


SOUND = {"model_type": "whisper", "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 4096}
SOUND |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
SOUND |= {"num_mel_bins": 80, "max_source_positions": 128, "max_target_positions": 256}
WORDS = {**SMALL["encoder and decoder"], "num_layers": 2, "num_decoder_layers": 2}


def uneven_model(name: str):
    """Eight layers or ten: an encoder before a decoder, with a table that several of them share; convolutions."""
    if name == "resnet18":
        return load_any_model(str(Path(__file__).parents[1] / "traced_models" / "resnet18.json")).cut_by_layers()
    return parse_config(SOUND if name == "sound" else WORDS, name=name, source="given.json").transformer.cut_by_layers()


@settings(max_examples=5, deadline=None)
@given(
    name=st.sampled_from(["words", "sound", "resnet18"]),
    pipeline=st.sampled_from([(1, 2), (3,), (4,)]),
    zero=st.sampled_from([(0,), (1, 2), (3,)]),
    software=SOFTWARE,
    quantile=st.sampled_from([0.02, 0.3, 1.0]),
)
def test_layers_that_differ_are_cut_at_the_best_of_all_places(name, pipeline, zero, software, quantile):
    """Between any two layers: equal to pricing every cut and recomputation, under memory that none, some or all fit."""
    choices = PlanChoices((1, 2), pipeline, data=(2,), micro_batch=(1, 2), zero=zero, interleave=(1, 2))
    if name == "resnet18" or pipeline == (4,):
        choices = replace(choices, recompute=(Recompute.NONE, Recompute.FULL))
    compare_with_every_plan(uneven_model(name), 16, choices, software, quantile)


@pytest.mark.parametrize(("name", "zero"), every(2, ["words", "sound", "resnet18"], [0, 2, 3]))
def test_bounds_over_all_places_lie_below(name, zero):
    """The closed bound, the least bound and the best price, in this order."""
    model, machine = uneven_model(name), machine_of(1e15, data_overlap=0.8, parameter_overlap=0.6)
    choices = PlanChoices((1,), (3,), data=(2,), micro_batch=(1,), zero=(zero,))
    degrees = free_degrees(model, training_of(model), num_devices=6, choices=choices, machine=machine)
    times = clock_sets(degrees.prices, machine.clock)
    one = LayerTimes(times.classes_s[0], times.attention_s[0])
    closed = degrees.bounds_s(degrees.prices.layer_s(times.classes_s[None], times.attention_s[None]))[0, 0]
    lower = degrees.least_bound_s(0, one, 1e15)
    _, seconds, _ = price_all(model, machine, degrees.step(0).plan, tuple(Recompute))
    # What replicas send every micro-batch is no part of the closed bound.
    assert (0.2 if zero < 2 else 0.0) * seconds.min() < closed <= lower <= seconds.min() * (1 + 1e-12)
    assert lower > 0.8 * seconds.min()


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_tables_price_what_steps_do(zero):
    """Of one set of degrees: each choice of the table is a plan at its price; bounds lie below, in their order."""
    machine = machine_of(1e15, data_overlap=0.8, parameter_overlap=0.6, waiting_share=0.02, step_overhead_s=1e-4)
    model = replace(MODEL, num_layers=4)
    choices = PlanChoices(tensor=(2,), pipeline=(3,), data=(2,), micro_batch=(1,), zero=(zero,))
    degrees, times = one_set(model, num_devices=12, choices=choices, machine=machine)
    step = degrees.step(0)
    sizes = stage_sizes(step)
    table = build_cut_table(list_stage_choices(step, NETWORK), times, blocks=sizes)
    memory = choice_bytes(step)[:, list(sizes)]
    labels, seconds, peaks = price_all(model, machine, replace(step.plan, recompute=Recompute.NONE), tuple(Recompute))
    of_stage = [
        max(
            memory[stage, sizes.index(n), list(Recompute).index(r)]
            for stage, (n, r) in enumerate(zip(*label, strict=True))
        )
        for label in labels
    ]
    assert of_stage == list(peaks)
    allowed = fitting_stages(step, sizes, 1e15, tuple(Recompute))
    best = best_choice([table], allowed)
    assert best.seconds == pytest.approx(seconds.min(), rel=1e-9)
    assert seconds[labels.index((best.blocks, best.recomputes))] == pytest.approx(seconds.min(), rel=1e-9)
    lower = least_bound_s(table, allowed)
    closed = degrees.bounds_s(degrees.prices.layer_s(times.classes_s[None, None], times.attention_s[None, None]))[0, 0]
    # What replicas send every micro-batch is no part of the closed bound where cuts are free.
    assert (0.5 if zero < 2 else 0.0) * lower < closed <= lower <= seconds.min()
    assert degrees.least_bound_s(0, times, 1e15) == lower
    assert lower > 0.8 * seconds.min()


@pytest.mark.parametrize(
    ("name", "zero", "shards"),
    [
        pytest.param(name, *case, marks=() if (place + other) % 3 == 0 else pytest.mark.slow)
        for place, name in enumerate(list_stacks())
        for other, case in enumerate([(1, 0), (2, 2), (3, 0)])
    ],
)
def test_shipped_software_on_a_measured_network(name, zero, shards):
    """Curves of adapters, flat rings, hybrid sharding, 32-bit logits: the cheapest of all stages, each priced alone."""
    fitted = load_fitted()
    machine = Machine(
        MachineClock(load_device("a100-80g"), ComputePath.BF16, fitted),
        1e15,
        load_network("dgx-a100", num_devices=24, fitted=fitted),
        replace(load_stack(name, fitted), rules=()),
    )
    model = replace(MODEL, num_layers=3)
    choices = PlanChoices((2,), (3,), data=(4,), micro_batch=(1,), zero=(zero,), state_shards=(shards,))
    degrees, times = one_set(model, num_devices=24, choices=choices, machine=machine)
    labels, seconds, peaks = price_all(model, machine, degrees.step(0).plan, tuple(Recompute))
    for capacity in (1e15, float(np.median(peaks)), float(peaks.min())):
        best = degrees.best_stages(0, times, capacity)
        fits = peaks <= capacity
        assert best.time.seconds == pytest.approx(seconds[fits].min(), rel=1e-9)
        number = labels.index((best.plan.blocks or (1, 1, 1), best.plan.recomputes))
        assert fits[number]
        assert best.time.seconds == pytest.approx(seconds[number], rel=1e-12)


@pytest.mark.parametrize(("interleave", "share"), [(1, 0.0), (2, 0.8)])
def test_closed_bounds_know_what_memory_makes_stages_recompute(interleave, share):
    """The closed bound of a set rises as memory falls; of given cuts nearly as its best plan does."""
    machine = machine_of(1e15)
    model = replace(MODEL, num_layers=6)
    choices = PlanChoices((1,), (2,), data=(2,), micro_batch=(1,), zero=(0,), interleave=(interleave,))
    degrees, times = one_set(model, num_devices=4, choices=choices, machine=machine)
    layer_s = degrees.prices.layer_s(times.classes_s[None, None], times.attention_s[None, None])
    _, seconds, peaks = price_all(model, machine, degrees.step(0).plan, tuple(Recompute))
    closed, least = [], []
    for capacity in np.unique(peaks):
        plain = degrees.bounds_s(layer_s)[0, 0]
        closed.append(degrees.bounds_s(layer_s, memory_bytes=capacity)[0, 0])
        least.append(seconds[peaks <= capacity].min())
        assert plain <= closed[-1] <= degrees.least_bound_s(0, times, capacity) <= least[-1] * (1.0 + 1e-12)
    assert closed == sorted(closed, reverse=True)
    assert closed[0] - closed[-1] > share * (least[0] - least[-1]) >= 0.0, "fewer bytes make stages recompute"
    assert degrees.bounds_s(layer_s, memory_bytes=peaks.min() * 0.999)[0, 0] == np.inf


def test_more_memory_and_more_choices_are_never_worse():
    model = replace(MODEL, num_layers=5)
    choices = PlanChoices(tensor=(1, 2), pipeline=(2, 4), micro_batch=(1, 2), zero=(0, 1))
    _, peaks = brute_force(model, machine_of(1e15), 8, replace(choices, recompute=(Recompute.NONE, Recompute.FULL)))
    seconds, narrow = [], []
    for memory in np.quantile(peaks, [0.0, 0.05, 0.2, 0.5, 1.0]):
        machine = machine_of(float(memory))
        best = optimal_plan(model, TRAINING, num_devices=8, choices=choices, machine=machine).best
        one = optimal_plan(
            model, TRAINING, num_devices=8, choices=replace(choices, recompute=(Recompute.FULL,)), machine=machine
        )
        seconds.append(best.time.seconds)
        narrow.append(one.best.time.seconds if one.best else np.inf)
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > seconds[-1]
    assert all(each <= other for each, other in zip(seconds, narrow, strict=True))


def test_more_devices_are_never_worse_where_some_may_idle():
    """Degrees that are listed leave devices idle, so what fits few devices is among the plans of many."""
    model = replace(MODEL, num_layers=5)
    choices = PlanChoices(tensor=(1, 2), pipeline=(1, 2, 4), data=(1, 2, 4), micro_batch=(1, 2), interleave=(1, 2))
    machine = machine_of(1e15)
    optima = [
        optimal_plan(model, TRAINING, num_devices=number, choices=choices, machine=machine).best
        for number in (1, 2, 4, 8, 16)
    ]
    seconds = [each.time.seconds for each in optima]
    assert seconds == sorted(seconds, reverse=True)
    assert len(set(seconds)) > 2


def test_last_digits_of_a_cpu_choose_nothing():
    """Layer times that differ where rounding does lead to the same cuts, though several are equal but for rounding."""
    model = replace(MODEL, num_layers=5, vocab_size=1024)
    ways = (Recompute.NONE,)
    choices = PlanChoices((1,), (4,), data=(2,), micro_batch=(4,), recompute=ways)
    machine = machine_of(1e15, data_overlap=0.5)
    degrees, times = one_set(model, num_devices=8, choices=choices, machine=machine)
    _, seconds, _ = price_all(model, machine, degrees.step(0).plan, ways)
    assert (seconds < seconds.min() * (1 + 1e-13)).sum() > 1
    cuts = set()
    for seed in range(20):
        noise = 1.0 + 1e-14 * np.random.default_rng(seed).uniform(-1, 1, times.classes_s.shape)
        cuts.add(degrees.best_stages(0, replace(times, classes_s=times.classes_s * noise), 1e15).plan.blocks)
    assert len(cuts) == 1


def test_each_stage_recomputes_no_more_than_it_must():
    """Where memory is short, stages differ, and none that recomputes could do without: it would not fit, or gain."""
    model = replace(MODEL, num_layers=8, vocab_size=1024)
    ways = (Recompute.NONE, Recompute.FULL)
    choices = PlanChoices(tensor=(1,), pipeline=(4,), data=(1,), micro_batch=(1,), recompute=ways)
    degrees, times = one_set(model, num_devices=4, choices=choices, machine=machine_of(1e15))
    alike = [degrees.step(0).plan.with_stages((2, 2, 2, 2), (way,) * 4) for way in ways]
    plain, full = (degrees.ranked(0, plan, times) for plan in alike)
    num_mixed = 0
    for share in np.linspace(0.0, 1.0, 9):
        capacity = share * plain.memory.peak_bytes + (1.0 - share) * full.memory.peak_bytes
        best = degrees.best_stages(0, times, capacity)
        assert plain.time.seconds * (1 - 1e-9) <= best.time.seconds <= full.time.seconds
        num_mixed += bool(best.plan.stage_recompute)
        for stage, recompute in enumerate(best.plan.recomputes):
            fewer = [*best.plan.recomputes[:stage], Recompute.NONE, *best.plan.recomputes[stage + 1 :]]
            cuts = best.plan.blocks or (2, 2, 2, 2)
            other = degrees.ranked(0, best.plan.with_stages(cuts, fewer), times)
            assert recompute is Recompute.NONE or not (
                other.memory.fits(capacity) and other.time.seconds < best.time.seconds * (1 - 1e-9)
            )
    assert num_mixed > 1


def test_no_degrees_are_refused():
    with pytest.raises(InputError, match="leave no parallel plan of small"):
        optimal_plan(MODEL, TRAINING, num_devices=4, choices=PlanChoices(pipeline=(5,)), machine=machine_of(1e15))
