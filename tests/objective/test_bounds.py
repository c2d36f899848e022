"""Bounds hold for every point, are the same one by one and in batch, and know what certainly does not fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.scenarios import make_point, make_scenario

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective import bounds as bounds_module
from phaze_opt.objective.bounds import ThroughputBounder, bound_batch_times, bound_points, build_relaxation
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementStatus, RecomputePolicy
from phaze_opt.placement.solve import solve_placement
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.units import gib_to_bytes
from phaze_opt.workload.training import AttentionForm, Optimizer

SPACE = phaze_space()
ROUNDING = 1e-9
CASES = [
    ("tiny", {}),
    ("bert-large", {}),
    ("bert-large", {"attention": AttentionForm.UNFUSED, "network": "phaze", "optimizer": Optimizer.SGD}),
    ("gpt2-xl", {"exclusivity": Exclusivity.TYPE, "is_sequence_parallel": False}),
    ("gpt2-xl", {"network": "phaze", "recompute": RecomputePolicy.ALWAYS}),
    ("llama-2-7b", {"exclusivity": Exclusivity.TYPE, "network": "phaze"}),
    ("llama-2-7b", {"devices": 24, "recompute": RecomputePolicy.NEVER}),
    ("gpt3-175b", {"devices": 128, "global_batch": 1536}),
    ("gpt3-175b", {"devices": 56, "tensor_parallel": (8,)}),
    ("mixtral-8x7b", {"attention": AttentionForm.UNFUSED, "devices": 48}),
]


def scenario_of(model, changes):
    return make_scenario(model, **({"devices": 64, "global_batch": 512, "tensor_parallel": (1, 2, 4, 8)} | changes))


def draw_points(count, *, seed):
    """Few-core chips, whose schedules take seconds to solve, are left to the slow test."""
    indices = np.random.default_rng(seed).permutation(SPACE.size)
    points = (SPACE.point(int(index)) for index in indices[: 20 * count])
    chosen = (point for point in points if min(point.num_tc, point.num_vc) >= 8)
    return [point for point, _ in zip(chosen, range(count), strict=False)]


def assert_bounds_hold(objective, points):
    for point, bound in zip(points, bound_points(objective, points), strict=True):
        evaluation = objective.evaluate(point)
        assert (bound.tdp_w, bound.area_mm2) == pytest.approx((evaluation.tdp_w, evaluation.area_mm2), rel=1e-12)
        assert bound.throughput_samples_per_s >= evaluation.throughput_samples_per_s, point
        assert bound.throughput_samples_per_s >= evaluation.throughput_bound_samples_per_s * (1 - ROUNDING), point
        if bound.reason:
            assert not evaluation.is_feasible


@pytest.mark.parametrize(("model", "changes"), CASES)
def test_no_evaluation_beats_its_bound(model, changes):
    assert_bounds_hold(Objective(scenario_of(model, changes)), draw_points(4, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "changes"), CASES)
def test_no_evaluation_of_many_beats_its_bound(model, changes):
    indices = np.random.default_rng(2).choice(SPACE.size, size=60, replace=False)
    assert_bounds_hold(Objective(scenario_of(model, changes)), [SPACE.point(int(index)) for index in indices])


@pytest.mark.parametrize("common", list(CommonMean))
def test_common_designs_are_bounded(common):
    scenario = make_scenario("tiny", "gpt2-xl", devices=32, global_batch=256, common=common)
    assert_bounds_hold(Objective(scenario), draw_points(6, seed=3))


def test_one_by_one_equals_in_batch_to_the_bit():
    objective = Objective(scenario_of("bert-large", {}))
    points = draw_points(40, seed=4)
    together = ThroughputBounder(objective).bound_points(points)
    backwards = ThroughputBounder(objective).bound_points(points[::-1])[::-1]
    alone = ThroughputBounder(objective)
    assert together == backwards == tuple(alone.bound_points([point])[0] for point in points)


def test_chunks_change_nothing(monkeypatch):
    objective = Objective(scenario_of("gpt2-xl", {}))
    points = draw_points(30, seed=5)
    whole = bound_points(objective, points)
    monkeypatch.setattr(bounds_module, "CHUNK_ROWS", 4)
    assert bound_points(objective, points) == whole
    assert bound_points(objective, []) == ()


def test_bounds_are_tight_on_the_demonstration():
    """The bound of a design with cores to spare is within a tenth of a percent of the truth for half of them."""
    objective = Objective(scenario_of("bert-large", {"devices": 1024, "global_batch": 4096}))
    points = draw_points(24, seed=6)
    evaluations = [objective.evaluate(point) for point in points]
    ratios = [
        bound.throughput_samples_per_s / evaluation.throughput_samples_per_s
        for bound, evaluation in zip(bound_points(objective, points), evaluations, strict=True)
    ]
    assert np.median(ratios) < 1.002
    assert max(ratios) < 1.15


def test_budgets_decide_as_in_an_evaluation():
    free = Objective(make_scenario())
    points = draw_points(30, seed=7)
    exact = free.evaluate(points[0])
    tight = make_scenario(max_area_mm2=exact.area_mm2, max_tdp_w=exact.tdp_w)
    objective = Objective(tight)
    verdicts = [(bool(bound.reason), bound.reason) for bound in bound_points(objective, points)]
    assert [reason for over, reason in verdicts[:1]] == [""]
    for point, (is_out, reason) in zip(points, verdicts, strict=True):
        evaluation = objective.evaluate(point)
        assert is_out == (not evaluation.is_feasible)
        assert ("area" in reason, "TDP" in reason) == (
            evaluation.status.value == "over_area",
            evaluation.status.value == "over_tdp",
        )


def test_too_little_memory_is_certain():
    """gpt3-175b needs 2.8 TB of state: not on 8 devices of 32 GiB; on 1,024 it fits."""
    point = make_point(hbm_bytes=gib_to_bytes(32), micro_batch=1)
    few = make_scenario("gpt3-175b", devices=8, tensor_parallel=(1, 2, 4, 8))
    many = make_scenario("gpt3-175b", devices=1024, tensor_parallel=(1, 2, 4, 8))
    bound = bound_points(Objective(few), [point])[0]
    assert bound.reason == "no placement fits the memory"
    assert bound.throughput_samples_per_s == 0.0
    assert bound_points(Objective(many), [point])[0].reason == ""


class PlainEstimator:
    """An estimator by the protocol alone: it neither compiles operators nor is it the analytic one; twice as slow."""

    name = "plain"

    def with_constants(self, constants):
        self.inner = AnalyticEstimator(constants)
        return self

    def estimate(self, operators, accelerators):
        found = self.inner.estimate(list(operators), accelerators)
        return type(found)(2.0 * found.one_core_s, 2.0 * found.spread_s, found.energy_j, found.traffic_bytes)

    def explain(self, operators, accelerator):
        return self.inner.explain(list(operators), accelerator)


def test_other_estimators_are_bounded(monkeypatch):
    monkeypatch.setattr("phaze_opt.estimate.protocol.load_plugin", lambda group, name: PlainEstimator())
    slow = Objective(make_scenario("bert-large", devices=32))
    monkeypatch.undo()
    points = draw_points(4, seed=8)
    assert_bounds_hold(slow, points)
    fast = bound_points(Objective(make_scenario("bert-large", devices=32)), points)
    halves = bound_points(slow, points)
    assert all(
        half.throughput_samples_per_s < 0.9 * whole.throughput_samples_per_s
        for half, whole in zip(halves, fast, strict=True)
    )


def random_costs(rng, chain, degree):
    """Layers of equal kind cost the same; the last layer may share the first one's weights."""
    num_kinds = max(chain) + 1

    def column(low, high):
        return rng.uniform(low, high, size=num_kinds)[list(chain)] / degree

    update_s, tied = column(1e-5, 1e-3), float(rng.random() < 0.5)
    state_bytes, gradient_bytes = column(1e8, 4e9), column(1e7, 1e9)
    share = tied * 0.5
    return LayerCosts(
        tensor_parallel=degree,
        forward_s=column(1e-4, 3e-3),
        backward_s=column(1e-4, 6e-3),
        update_s=update_s,
        state_bytes=state_bytes,
        gradient_bytes=gradient_bytes,
        stash_bytes=column(1e7, 1e9),
        input_bytes=column(1e6, 1e8),
        working_set_bytes=column(1e7, 2e9),
        output_bytes=column(1e6, 5e8),
        tied_state_bytes=share * state_bytes[-1],
        tied_gradient_bytes=share * gradient_bytes[-1],
        tied_update_s=share * update_s[-1],
    )


def relaxed_and_exact(seed, *, is_usual):
    """Both batch times of a random chain; usual is embedding, equal blocks, head."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(3, 14))
    chain = (0, *[1] * (length - 2), 2) if is_usual else tuple(rng.permutation([0, 1, 2, *rng.integers(0, 3, length)]))
    chain = tuple(int(kind) for kind in chain)
    network = str(rng.choice(["two-level", "phaze"]))
    devices = int(rng.integers(8, 40))
    cluster = Cluster(devices, load_network(network, num_devices=devices, constants=load_constants()))
    costs = tuple(random_costs(rng, chain, degree) for degree in (1, 2, 4))
    policy = list(RecomputePolicy)[int(rng.integers(3))]
    problem = PlacementProblem(
        options=costs,
        cluster=cluster,
        memory_bytes=float(rng.choice([0.5e9, 1e9, 2e9, 4e9, 64e9])),
        global_batch=int(rng.integers(4, 200)),
        micro_batch=int(rng.choice([1, 2, 4])),
        recompute=policy,
    )
    parts = -(-problem.global_batch // problem.micro_batch)
    relaxation = build_relaxation(costs, chain, cluster=cluster, parts=parts, recompute=policy)
    first = [chain.index(kind) for kind in range(3)]
    times = np.array([[np.column_stack((c.forward_s, c.backward_s, c.update_s))[first] for c in costs]])
    bound = float(bound_batch_times(relaxation, times, np.array([problem.memory_bytes]))[0])
    placed = solve_placement(problem)
    return bound, placed.batch_time_s if placed.status is PlacementStatus.OPTIMAL else np.inf


@given(seed=st.integers(0, 2**32 - 1), is_usual=st.booleans())
@settings(max_examples=150, deadline=None)
def test_relaxed_placement_never_exceeds_the_exact_one(seed, is_usual):
    """Random chains, memories, policies and networks; ``inf`` stands for nothing fits."""
    bound, exact = relaxed_and_exact(seed, is_usual=is_usual)
    assert bound <= exact


def test_relaxed_placement_is_close_to_the_exact_one():
    """On chains of embedding, blocks and head; it also sees most of what does not fit."""
    pairs = np.array([relaxed_and_exact(seed, is_usual=True) for seed in range(120)])
    fits = np.isfinite(pairs[:, 1])
    assert 20 < fits.sum() < 110
    assert np.median(pairs[fits, 0] / pairs[fits, 1]) > 0.97
    assert np.isinf(pairs[~fits, 0]).mean() > 0.9
