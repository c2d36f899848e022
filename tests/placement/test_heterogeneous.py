"""Placement on several chips: brute force over cuts, chips and degrees; what theory promises; the check bites."""

import math
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from kits.placers import random_problem

from phaze_opt.errors import InputError, VerificationError
from phaze_opt.placement.heterogeneous import HeterogeneousPlacement, solve_heterogeneous
from phaze_opt.placement.problem import PlacementProblem, PlacementResult, PlacementStatus, RecomputePolicy, Stage
from phaze_opt.placement.solve import solve_placement
from phaze_opt.placement.verify import STAGE_TERMS, SYNC_TERMS, stage_memory_bytes, stage_terms, verify_heterogeneous


def chips_of(seed: int, count: int, *, recompute: RecomputePolicy = RecomputePolicy.AUTO) -> list[PlacementProblem]:
    """One random chain on some random chips: each layer's times and the memory differ."""
    base = random_problem(seed, num_layers=2 + seed % 3, num_devices=2 + seed % 7, recompute=recompute)
    base = replace(base, global_batch=base.global_batch + 20)
    rng = np.random.default_rng([seed, 1])
    chips = []
    for _ in range(count):
        options = []
        for option in base.options:
            factors = rng.uniform(0.5, 2.0, (3, option.num_layers))
            update_s = option.update_s * factors[2]
            options.append(
                replace(
                    option,
                    forward_s=option.forward_s * factors[0],
                    backward_s=option.backward_s * factors[1],
                    update_s=update_s,
                    tied_update_s=float(update_s[-1]) / 3,
                    # Dear all-reduces make every other problem pipeline rather than replicate.
                    gradient_bytes=option.gradient_bytes * (300.0 if seed % 2 else 1.0),
                )
            )
        memory = base.memory_bytes * float(rng.uniform(0.5, 2.0))
        chips.append(replace(base, options=tuple(options), memory_bytes=memory))
    return chips


def stage_on(problem: PlacementProblem, draft: PlacementResult, number: int) -> tuple[float, float] | None:
    """(time, sync) of one stage on one chip from the definitions; None if it does not fit."""
    stash, recomputed = stage_memory_bytes(problem, draft, number)
    is_recomputed = problem.recompute is RecomputePolicy.ALWAYS or (
        problem.recompute is RecomputePolicy.AUTO and stash > problem.memory_bytes
    )
    if (recomputed if is_recomputed else stash) > problem.memory_bytes:
        return None
    stages = list(draft.stages)
    stages[number] = replace(stages[number], is_recomputed=is_recomputed)
    terms = stage_terms(problem, replace(draft, stages=tuple(stages)), number)
    return sum(terms[term] for term in STAGE_TERMS), sum(terms[term] for term in SYNC_TERMS)


def brute_force(chips: list[PlacementProblem], weights: list[float]) -> list[tuple[float, float]]:
    """(batch time, total weight) of every placement on every choice of chips."""
    base, found = chips[0], []
    num_layers = base.options[0].num_layers
    for option in base.options:
        t = option.tensor_parallel
        for num_stages in range(1, min(num_layers, base.cluster.num_devices // t) + 1):
            for d in range(1, base.cluster.num_devices // (t * num_stages) + 1):
                m = math.ceil(base.global_batch / (base.micro_batch * d))
                for cuts in combinations(range(1, num_layers), num_stages - 1):
                    bounds = (0, *cuts, num_layers)
                    stages = tuple(Stage(a, b - 1, False, 0.0, 0.0, 0.0) for a, b in pairwise(bounds))
                    draft = PlacementResult(PlacementStatus.FEASIBLE, 0.0, t, d, m, stages)
                    table = [[stage_on(chip, draft, number) for chip in chips] for number in range(num_stages)]
                    for choice in product(range(len(chips)), repeat=num_stages):
                        picked = [table[number][chip] for number, chip in enumerate(choice)]
                        if any(entry is None for entry in picked):
                            continue
                        times, syncs = zip(*(entry for entry in picked if entry is not None), strict=True)
                        seconds = max(times) * (m + num_stages - 1) + max(syncs)
                        found.append((seconds, sum(weights[chip] for chip in choice)))
    return found


@pytest.mark.parametrize("policy", list(RecomputePolicy))
def test_equals_brute_force(policy: RecomputePolicy) -> None:
    num_mixed = 0
    for seed in range(30):
        chips = chips_of(seed, 2 + seed % 2, recompute=policy)
        weights = [1.0, 2.0, 3.0][: len(chips)]
        everything = brute_force(chips, weights)
        found = solve_heterogeneous(chips, weights)
        assert (found is None) == (not everything)
        if found is None:
            continue
        verify_heterogeneous(chips, found)
        assert found.placement.batch_time_s == pytest.approx(min(everything)[0], rel=1e-9)
        num_mixed += len(set(found.chips)) > 1
    assert num_mixed > 2


def test_of_equal_times_the_lightest_chips_are_taken() -> None:
    """On twins of different weight everything runs on the light one; a stage with slack takes the light slow chip."""
    twin = replace(chips_of(3, 1)[0], memory_bytes=1e12)
    found = solve_heterogeneous([twin, twin], [2.0, 1.0])
    assert set(found.chips) == {1}
    for seed in range(20):
        chips, weights = [replace(chip, memory_bytes=1e12) for chip in chips_of(seed, 2)], [5.0, 1.0]
        found = solve_heterogeneous(chips, weights)
        within_s = found.placement.batch_time_s * (1 + 1e-12)
        lightest = min(weight for seconds, weight in brute_force(chips, weights) if seconds <= within_s)
        assert sum(weights[chip] for chip in found.chips) == lightest


def test_one_chip_is_the_uniform_placement_and_more_chips_are_never_worse() -> None:
    for seed in range(25):
        chips = chips_of(seed, 3)
        uniform = [solve_placement(chip) for chip in chips]
        single = solve_heterogeneous(chips[:1], [1.0])
        assert (single is None) == (uniform[0].status is PlacementStatus.INFEASIBLE)
        if single is not None:
            assert single.placement.batch_time_s == pytest.approx(uniform[0].batch_time_s, rel=1e-9)
        times = [result.batch_time_s for result in uniform if result.status is not PlacementStatus.INFEASIBLE]
        if times:
            found = solve_heterogeneous(chips, [1.0, 1.0, 1.0])
            assert found.placement.batch_time_s <= min(times) * (1 + 1e-9)


def test_a_chain_that_synchronises_nothing_ends() -> None:
    """One replica whose update takes no time: the falling cap on the synchronisation reaches zero at once."""
    problem = chips_of(2, 1)[0]
    still = np.zeros(problem.options[0].num_layers)
    option = replace(problem.options[0], tensor_parallel=1, update_s=still, tied_update_s=0.0)
    alone = replace(problem, options=(option,), cluster=replace(problem.cluster, num_devices=1), memory_bytes=1e15)
    found = solve_heterogeneous([alone], [1.0])
    assert found.placement.stages[0].sync_s == 0.0
    assert math.isclose(found.placement.batch_time_s, solve_placement(alone).batch_time_s, rel_tol=1e-12)


def test_every_stage_fits_its_own_chip() -> None:
    """A chip too small for anything is never picked, however fast it is."""
    for seed in range(20):
        chips = chips_of(seed, 2)
        fast = tuple(replace(option, forward_s=option.forward_s / 1e3) for option in chips[1].options)
        tiny = replace(chips[1], options=fast, memory_bytes=1.0)
        found = solve_heterogeneous([chips[0], tiny], [1.0, 1.0])
        assert found is None or set(found.chips) == {0}


def test_the_check_refuses_wrong_figures_and_chips() -> None:
    chips = [replace(chip, memory_bytes=1e12) for chip in chips_of(5, 2)]
    found = solve_heterogeneous(chips, [1.0, 1.0])
    verify_heterogeneous(chips, found)
    late = replace(found.placement, batch_time_s=found.placement.batch_time_s * (1 + 1e-6))
    swapped = tuple(1 - chip for chip in found.chips)
    wrong = (replace(found, placement=late), replace(found, chips=swapped), HeterogeneousPlacement(found.placement, ()))
    for other in wrong:
        with pytest.raises(VerificationError):
            verify_heterogeneous(chips, other)


def test_what_is_not_one_chain_is_refused() -> None:
    chips = chips_of(1, 2)
    with pytest.raises(InputError, match="one weight for each"):
        solve_heterogeneous(chips, [1.0])
    with pytest.raises(InputError, match="chip 1 differs"):
        solve_heterogeneous([chips[0], replace(chips[1], global_batch=chips[1].global_batch + 1)], [1.0, 1.0])
    heavier = tuple(replace(option, state_bytes=option.state_bytes * 2) for option in chips[1].options)
    with pytest.raises(InputError, match="chip 1 differs"):
        solve_heterogeneous([chips[0], replace(chips[1], options=heavier)], [1.0, 1.0])
