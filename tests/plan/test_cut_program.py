"""The program over cuts: equal to trying all cuts and recomputations under the code that prices steps."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.pipelines import columns_of_equal_units

from phaze_opt.cost.step_time import StageLoads, StepRules, lower_reading, lower_s, price_reading, step_times
from phaze_opt.plan.cut_bound import least_slowest_s, pipeline_bound_s
from phaze_opt.plan.cut_program import (
    FIRST_LABELS,
    PipelineRules,
    StageCandidates,
    front_bounds,
    search_labels,
    solve_cuts,
)

RECOMPUTATIONS = 2
NAMES = [each.name for each in fields(StageLoads)]


def all_cuts(num_blocks: int, stages: int) -> list[tuple[int, ...]]:
    """Blocks of every stage, every way: the first and the last stage may be without."""
    ends = {0, stages - 1}
    return [
        cuts
        for cuts in product(range(num_blocks + 1), repeat=stages)
        if sum(cuts) == num_blocks and all(each or stage in ends for stage, each in enumerate(cuts))
    ]


def drawn_loads(rng: np.random.Generator, shape: tuple[int, ...], zero: int) -> StageLoads:
    """Times of stages of so many blocks under a ZeRO stage; more blocks take longer, up to some noise."""
    blocks = np.arange(shape[1])[None, :, None] + 0.3 * rng.random(shape)
    size = {name: blocks * 10.0 ** rng.uniform(-2, 0) for name in NAMES}
    forward = size["matmul_s"] * rng.uniform(0.2, 0.5, shape)
    busy = sum(size[name] for name in ("matmul_s", "attention_s", "vector_s", "launch_s", "tensor_s"))
    size["backward_s"] = busy - forward
    size["transfer_s"] = rng.uniform(0.01, 0.2, (shape[0], 1, 1)) + np.zeros(shape)
    size["parameter_s"] = size["parameter_s"] * (zero == 3) * 20
    size["reduction_s"] = size["reduction_s"] * (zero == 2) * 20
    size["gradient_s"] = size["gradient_s"] * 30
    return StageLoads(**size)


def rows(loads: StageLoads) -> StageLoads:
    """All candidates as stages of one step."""
    return StageLoads(**{name: getattr(loads, name).reshape(1, -1) for name in NAMES})


def brute_force(loads: StageLoads, kinds, allowed, rules: StepRules, num_blocks: int):
    """Price and bound of every plan, by the code that prices steps, and the choices."""
    stages = len(kinds)
    found = [
        (cuts, choice)
        for cuts in all_cuts(num_blocks, stages)
        for choice in product(range(RECOMPUTATIONS), repeat=stages)
        if all(allowed[stage, n, r] for stage, (n, r) in enumerate(zip(cuts, choice, strict=True)))
    ]
    if not found:
        return None
    cuts, choices = (np.array(each) for each in zip(*found, strict=True))
    chosen = StageLoads(**{name: getattr(loads, name)[kinds[None, :], cuts, choices] for name in NAMES})
    many = StepRules(**{each.name: np.repeat(getattr(rules, each.name), len(found)) for each in fields(StepRules)})
    return found, step_times(chosen, many).seconds, lower_s(chosen, many)


def solve(reading, shape, kinds, allowed, rules, num_blocks, limit=np.inf):
    parts = [getattr(reading, name).reshape(shape) for name in ("forward_s", "backward_s", "sync_s", "least_sync_s")]
    m, v = float(rules.num_micro_batches[0]), float(rules.interleave[0])
    overhead, factor = float(rules.overhead_s[0]), 1.0 + float(rules.waiting[0])
    value, chosen, most, _ = solve_cuts(
        StageCandidates(np.stack(parts, axis=-1), kinds, *columns_of_equal_units(num_blocks), allowed),
        PipelineRules(num_blocks, m, v, float(reading.hidden_share[0])),
        limit / factor - overhead,
    )
    return (value + overhead) * factor, [tuple(map(int, each)) for each in chosen], most


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    zero=st.integers(0, 3),
    stages=st.integers(1, 4),
    num_blocks=st.integers(2, 6),
    m=st.integers(1, 12),
    overlaps=st.tuples(st.sampled_from([0.0, 0.5, 0.95]), st.sampled_from([0.0, 0.6])),
    interleave=st.sampled_from([1.0, 1.0, 1.0, 2.0]),
)
def test_equals_trying_everything(seed, zero, stages, num_blocks, m, overlaps, interleave):
    """Price and bound to 1e-12, with ZeRO 0 to 3, overlaps, waiting, and candidates that do not fit."""
    if num_blocks < stages - 2:
        return
    rng = np.random.default_rng(seed)
    kinds = np.array([0, *[1] * (stages - 2), 2][:stages] if stages > 1 else [0], np.intp)
    shape = (3, num_blocks + 1, RECOMPUTATIONS)
    loads = drawn_loads(rng, shape, zero)
    one = [np.array([each]) for each in (float(m), interleave, *overlaps, 0.05, 0.02)]
    rules = StepRules(*one)
    allowed = rng.random((stages, num_blocks + 1, RECOMPUTATIONS)) < 0.85
    allowed[1:-1, 0] = False
    everything = brute_force(loads, kinds, allowed, rules, num_blocks)
    readings = price_reading(rows(loads), rules), lower_reading(rows(loads), rules)
    (price, chosen, most), (lower, _, most_lower) = (
        solve(each, shape, kinds, allowed, rules, num_blocks) for each in readings
    )
    if everything is None:
        assert (most, most_lower) == (0, 0)
        return
    found, prices, lowers = everything
    assert price == pytest.approx(prices.min(), rel=1e-12)
    assert lower == pytest.approx(lowers.min(), rel=1e-12)
    assert lower <= price * (1 + 1e-12)
    own = prices[found.index((tuple(n for n, _ in chosen), tuple(r for _, r in chosen)))]
    assert own == pytest.approx(price, rel=1e-12), "the stages that are named take that time"
    # Below a limit the same is found, and nothing if nothing is below it.
    assert solve(readings[0], shape, kinds, allowed, rules, num_blocks, price * (1 + 1e-9))[:2] == (price, chosen)
    assert solve(readings[0], shape, kinds, allowed, rules, num_blocks, price * (1 - 1e-9))[2] == 0


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6), stages=st.integers(1, 6), m=st.integers(1, 12), interleave=st.sampled_from([1.0, 3.0])
)
def test_no_cut_is_below_the_closed_bound(seed, stages, m, interleave):
    """Of loads drawn at random, by the code that prices steps; even stages meet it."""
    rng = np.random.default_rng(seed)
    forward, backward = rng.random((2, 1, stages)) * 10.0 ** rng.uniform(-1, 1, (2, 1, stages))
    for ahead, back in ((forward, backward), (np.full_like(forward, 0.4), np.full_like(forward, 0.7))):
        nothing = np.zeros_like(ahead)
        loads = replace(StageLoads(*[nothing] * len(NAMES)), matmul_s=ahead + back, backward_s=back)
        rules = StepRules(*(np.array([each]) for each in (float(m), interleave, 0.0, 0.0, 0.0, 0.0)))
        step = float(step_times(loads, rules).seconds[0])
        both = ahead + back
        bound = pipeline_bound_s(float(both.sum()), float(both.max()), float(stages), float(m), interleave)
        assert bound <= step
        looser = pipeline_bound_s(float(both.sum()), float(both.max()) * 0.9, float(stages), float(m), interleave)
        assert looser <= bound
    if m > stages:
        assert bound == pytest.approx(step, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(
    ends=st.tuples(st.floats(0, 9), st.floats(0, 9)),
    block=st.floats(0.1, 3),
    between=st.floats(0, 2),
    num_blocks=st.integers(1, 8),
    stages=st.integers(1, 5),
)
def test_least_slowest_stage_by_trying_all_cuts(ends, block, between, num_blocks, stages):
    cuts = all_cuts(num_blocks, stages)
    if not cuts:
        return
    least = min(
        max(
            each * block + ends[0] * (stage == 0) + ends[1] * (stage == stages - 1) + between * (0 < stage < stages - 1)
            for stage, each in enumerate(choice)
        )
        for choice in cuts
    )
    found = least_slowest_s(ends[0], block, ends[1], between, num_blocks, stages)
    assert found <= least
    assert found == pytest.approx(least, rel=1e-9)


def test_many_labels_and_no_limit_give_the_same():
    """More labels than the arrays begin with; limits above the bound, one after the other, lose nothing."""
    rng = np.random.default_rng(5)
    stages, num_blocks, m = 8, 30, 6
    kinds = np.array([0, *[1] * (stages - 2), 2], np.intp)
    shape = (3, num_blocks + 1, RECOMPUTATIONS)
    loads = drawn_loads(rng, shape, zero=1)
    rules = StepRules(*(np.array([each]) for each in (float(m), 1.0, 0.8, 0.0, 0.0, 0.0)))
    reading = price_reading(rows(loads), rules)
    parts = [getattr(reading, name).reshape(shape) for name in ("forward_s", "backward_s", "sync_s", "least_sync_s")]
    allowed = rng.random((stages, num_blocks + 1, RECOMPUTATIONS)) < 0.9
    allowed[1:-1, 0] = False
    cuts = StageCandidates(np.stack(parts, axis=-1), kinds, *columns_of_equal_units(num_blocks), allowed)
    plain = PipelineRules(num_blocks, float(m), 1.0, 0.0)
    everything, chosen, _, count = search_labels(cuts, plain, *front_bounds(cuts, num_blocks), np.inf)
    value, same, _, fewer = solve_cuts(cuts, plain, np.inf)
    assert count > FIRST_LABELS > fewer
    assert (value, same.tolist()) == (everything, chosen.tolist())
