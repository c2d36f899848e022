"""Cuts of stages: the program of labels and the closed forms against every cut and recomputation there is."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.fewer_cases import every
from kits.planned import WIDE, checker, draw_times, planned_scenario

from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.certify.check.plans.cut_labels import least_before, least_loads, least_step, pipeline_floor
from phaze_opt.certify.check.plans.cuts import cut_table, has_room, list_runs, most_blocks
from phaze_opt.certify.check.plans.plan_check import StagedPlan
from phaze_opt.cost.step_time import fill_s
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import Recompute

EXACT = 1e-12
CHOICES = tuple(Recompute)


def all_cuts(num_layers, stages):
    """Blocks of each stage: at least one between the ends."""
    if stages == 1:
        yield (num_layers,)
        return
    inner = np.ones(stages, dtype=int)
    inner[[0, -1]] = 0
    spare = num_layers - inner.sum()
    for bars in combinations(range(spare + stages - 1), stages - 1):
        ends = (-1, *bars, spare + stages - 1)
        yield tuple(int(own + after - before - 1) for own, before, after in zip(inner, ends, ends[1:], strict=False))


def small_scenario(rng, software, name="mixtral-8x7b"):
    """A chain of few blocks with plans of up to four stages."""
    model = replace(load_model(name), num_layers=int(rng.integers(3, 5)))
    choices = replace(WIDE, micro_batch=(1,), interleave=(1,), recompute=(Recompute.NONE,), tensor=(1, 2))
    return planned_scenario(model, software=software, devices=16, batch=int(rng.choice([16, 48])), choices=choices)


@pytest.mark.parametrize("software", ["maxtext", "megatron-core", "deepspeed-zero3-2021"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_program_finds_the_least_of_all_cuts_and_recomputations(software, seed):
    rng = np.random.default_rng(seed)
    scenario = small_scenario(rng, software)
    check, num_layers = checker(scenario), scenario.models[0].num_layers
    times = draw_times(check, rng, wide=seed == 1)
    plans = [plan for plan in check.plans if plan.pipeline > 1 and plan.pipeline <= 4]
    for plan in [plans[at] for at in rng.choice(len(plans), size=4, replace=False)]:
        cuts = list(all_cuts(num_layers, plan.pipeline))
        every = [StagedPlan(plan, cut, own) for cut in cuts for own in product(CHOICES, repeat=plan.pipeline)]
        peaks = np.array([max(check.memory_bytes(staged)) for staged in every])
        table = cut_table(check.tabler, plan, num_layers, scenario.stack)
        pace = check.paces(times.makespan_s, times.attention_s).of(check.tabler.table(plan).traffic_number)
        for hbm_bytes in (np.quantile(peaks, 0.05), np.quantile(peaks, 0.25), peaks.min() * 0.999):
            most = most_blocks(check.tabler, plan, num_layers, hbm_bytes, CHOICES)
            fitting = [staged for staged, peak in zip(every, peaks, strict=True) if peak <= hbm_bytes]
            assert has_room(most, num_layers) == bool(fitting)
            if not fitting:
                continue
            for is_bound, price in ((True, check.lower_s), (False, check.price_s)):
                found = table.least(pace, most, is_bound=is_bound)
                brute = min(price(staged, times.makespan_s, times.attention_s)[0] for staged in fitting)
                assert found == pytest.approx(brute, rel=EXACT)
                assert table.least(pace, most, is_bound=is_bound, limit=found * (1 + 1e-9)) == pytest.approx(found)
                assert np.isinf(table.least(pace, most, is_bound=is_bound, limit=found * (1 - 1e-9)))


@given(seed=st.integers(0, 2**32 - 1), differs=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_program_equals_brute_force_on_made_up_stages(seed, differs):
    rng = np.random.default_rng(seed)
    stages, blocks, m = int(rng.integers(1, 5)), int(rng.integers(2, 7)), int(rng.integers(1, 9))
    blocks = max(blocks, stages - 2)
    places = min(stages, 3)
    hidden = float(rng.choice([0.0, 0.5, 0.9]))
    per_block = rng.uniform(0.5, 1.5, size=(places, 1, 3, 2))
    seconds = np.zeros((places, blocks + 1, 3, 4))
    seconds[..., :2] = rng.uniform(0, 2, size=(places, 1, 1, 2)) + np.arange(blocks + 1)[:, None, None] * per_block
    seconds[..., 3] = rng.uniform(0, 4, size=(places, blocks + 1, 1))
    seconds[..., 2] = seconds[..., 3] + hidden * rng.uniform(0, 9, size=(places, blocks + 1, 1))
    place = np.array([0 if at == 0 else places - 1 if at == stages - 1 else 1 for at in range(stages)])
    transfers = rng.uniform(0, 0.5, size=stages)
    most = rng.integers(-1, blocks + 2, size=(stages, 3))
    column, fits = np.tile(np.arange(blocks + 1), (blocks + 1, 1)), np.arange(blocks + 1)[:, None] <= most[:, None]
    if differs:
        # Every run of blocks has times and room of its own.
        runs = [(start, stop - start) for start, stop in list_runs(blocks)]
        column = np.full_like(column, -1)
        column[tuple(np.array(runs).T)] = np.arange(len(runs))
        seconds = seconds[:, [length for _, length in runs]] * rng.uniform(0.5, 1.5, size=(1, len(runs), 1, 1))
        fits = rng.random((stages, len(runs), 3)) < 0.8

    def runs_of(cut):
        return [column[sum(cut[:at]), cut[at]] for at in range(stages)]

    def step(cut, own):
        parts = np.array([seconds[place[at], run, own[at]] for at, run in enumerate(runs_of(cut))])
        forward, backward = parts[:, 0] + transfers / 2, parts[:, 1] + transfers / 2
        pipe = fill_s(forward[None], backward[None], np.array([float(m)]), np.array([1.0]))[0]
        slowest = (forward + backward).max()
        return m * slowest + pipe + max(parts[:, 2].max() - hidden * slowest, parts[:, 3].max())

    brute = min(
        (
            step(cut, own)
            for cut in all_cuts(blocks, stages)
            for own in product(range(3), repeat=stages)
            if all(fits[at, run, own[at]] for at, run in enumerate(runs_of(cut)))
        ),
        default=np.inf,
    )
    found = least_step(seconds, place, transfers, column, fits, m, hidden, np.inf)
    assert found == (pytest.approx(brute, rel=EXACT) if np.isfinite(brute) else np.inf)
    sums, tops = least_before(least_loads(seconds, place, transfers, fits), column)
    if np.isfinite(brute):
        assert pipeline_floor(sums[-1, -1], tops[-1, -1], stages, m) <= brute * (1 + EXACT)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_no_pipeline_takes_longer_than_its_slowest_stage_and_one_micro_batch_through_the_others(seed):
    """What the program builds on: the time until the last stage ends is the pipeline's, no cap is needed."""
    rng = np.random.default_rng(seed)
    stages, m = int(rng.integers(1, 9)), int(rng.integers(1, 12))
    forward, backward = 10.0 ** rng.uniform(-2, 1, size=(2, stages))
    loads = forward + backward
    ends = behind = 0.0
    for ahead, at in enumerate(reversed(range(stages))):
        own = min(ahead, m - 1)
        waits = [max(0.0, behind - own * each) for each in (forward[at], backward[at])]
        ends = max(m * loads[at] + (sum(waits) if m - 1 > ahead else max(waits)), loads[at] + ends)
        behind += loads[at]
    assert ends <= (m * loads.max() + loads.sum() - loads.max()) * (1 + EXACT)


@pytest.mark.parametrize(
    ("software", "seed"),
    [
        ("maxtext", 1),
        ("megatron-core", 1),
        ("llm-foundry", 1),
        ("llm-foundry", 2),
        pytest.param("maxtext", 2, marks=pytest.mark.slow),
        pytest.param("megatron-core", 2, marks=pytest.mark.slow),
    ],
)
def test_the_least_of_all_plans_is_that_of_brute_force(software, seed):
    """Degrees with chunks, stages of ends alone, cuts and recomputations: closed bounds below, the program at it."""
    rng = np.random.default_rng(seed)
    model = replace(load_model("mixtral-8x7b"), num_layers=int(rng.choice([2, 4])))
    choices = replace(
        WIDE, micro_batch=(1,), tensor=(1, 2), context=(1,), expert=(1, 2), state_shards=(0,), zero=(0, 3)
    )
    scenario = planned_scenario(model, software=software, devices=8, batch=16, choices=choices)
    check = CutCheck(scenario, model, choices)
    even = check.even
    times = draw_times(even, rng, wide=False)
    given = times.makespan_s, times.attention_s
    every = []
    for plan in dict.fromkeys(replace(plan, recompute=Recompute.NONE) for plan in even.plans):
        is_cut = plan.interleave == 1
        cuts = all_cuts(model.num_layers, plan.pipeline) if is_cut else chunked(model.num_layers, plan)
        every += [StagedPlan(plan, cut, own) for cut in cuts for own in product(CHOICES, repeat=plan.pipeline)]
    peaks = np.array([max(even.memory_bytes(staged)) for staged in every])
    for hbm_bytes in (np.quantile(peaks, 0.02), np.quantile(peaks, 0.25)):
        fits = [staged for staged, peak in zip(every, peaks, strict=True) if peak <= hbm_bytes]
        of_chip = {"makespan_s": given[0][0], "attention_s": given[1][0], "capacity_bytes": hbm_bytes}
        bound, price = check.least_bound(**of_chip), check.least_price(**of_chip)
        assert bound == pytest.approx(min(even.lower_s(staged, *given)[0] for staged in fits), rel=EXACT)
        assert price == pytest.approx(min(even.price_s(staged, *given)[0] for staged in fits), rel=EXACT)
        # What is known of plans that are not listed leaves memory out, so that it is far below where that is scarce.
        closed, listed = (of(*given, capacity_bytes=hbm_bytes)[0] for of in (check.lower_bounds, check.listed_bounds))
        assert closed <= bound * (1 + EXACT)
        assert 0.5 * bound < listed
        assert np.isinf(check.least_bound(**of_chip, limit_s=bound * (1 - 1e-9)))
    assert np.isinf(check.lower_bounds(*given, capacity_bytes=peaks.min() * 0.9)[0])


def chunked(num_layers, plan):
    """Equal chunks, the ends counted as blocks or not."""
    for embedding, head in product((0, 1), repeat=2):
        blocks, rest = divmod(num_layers + embedding + head, plan.pipeline)
        if rest == 0 and blocks % plan.interleave == 0:
            yield (blocks - embedding, *[blocks] * (plan.pipeline - 2), blocks - head)


@pytest.mark.parametrize(("name", "software"), every(2, ["bert-large", "gpt3-175b"], ["maxtext", "megatron-core"]))
def test_closed_bounds_of_many_chips_are_below_the_least_of_each(name, software):
    rng = np.random.default_rng(4)
    choices = replace(WIDE, context=(1,), micro_batch=(1, 4), state_shards=(0,), zero=(0, 1, 3), tensor=(1, 4))
    scenario = planned_scenario(name, software=software, choices=choices)
    check = CutCheck(scenario, scenario.models[0], choices)
    times = draw_times(check.even, rng, chips=3, wide=False)
    even, given = check.even, (times.makespan_s, times.attention_s)
    plans = [even.staged(plan) for plan in even.plans]
    peaks = np.array([max(even.memory_bytes(staged)) for staged in plans])
    hbm_bytes = float(np.quantile(peaks, 0.2))
    fits = [staged for staged, peak in zip(plans, peaks, strict=True) if peak <= hbm_bytes]
    best_even = np.min([even.lower_s(staged, *given) for staged in fits], axis=0)
    closed = check.lower_bounds(*given, capacity_bytes=hbm_bytes)
    for chip, bound in enumerate(closed):
        least = check.least_bound(times.makespan_s[chip], times.attention_s[chip], capacity_bytes=hbm_bytes)
        assert 0.7 * least < bound <= least * (1 + EXACT)
        assert least <= best_even[chip] * (1 + EXACT)
