"""Heterogeneous pipelines on the real objective: not below the best uniform design, means recomputed, budgets kept."""

import math
from dataclasses import replace

import pytest
from kits.scenarios import make_point, make_scenario

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import area_mm2, tdp_w
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.heterogeneous import evaluate_heterogeneous
from phaze_opt.units import gib_to_bytes

CANDIDATES = (
    make_point(),
    make_point(num_tc=16, num_vc=8),
    make_point(num_tc=4, num_vc=64),
    make_point(num_tc=2, num_vc=8, hbm_bytes=gib_to_bytes(16)),
)


def pipelined(**changes: object) -> Objective:
    """A scenario that pipelines: little memory for a model of a gigabyte and more, replicas of few devices."""
    return Objective(make_scenario("opt-350m", devices=8, global_batch=32, **changes))


def small_memory(point: DesignPoint) -> DesignPoint:
    """The point with two GiB of HBM, at micro-batch 1: layers must be spread over stages."""
    return replace(point, hbm_bytes=gib_to_bytes(2), micro_batch=1)


@pytest.mark.parametrize("points", [CANDIDATES, tuple(small_memory(point) for point in CANDIDATES[:2])])
def test_is_never_below_the_best_uniform_candidate(points: tuple[DesignPoint, ...]) -> None:
    objective = pipelined()
    found = evaluate_heterogeneous(objective, points)
    uniform = [objective.evaluate(point) for point in points]
    assert found.uniform.throughput_samples_per_s == max(entry.throughput_samples_per_s for entry in uniform)
    assert found.gain >= 0.0
    assert found.throughput_samples_per_s >= found.uniform.throughput_samples_per_s


def test_figures_are_those_of_its_stages() -> None:
    objective = pipelined()
    found = evaluate_heterogeneous(objective, [small_memory(point) for point in CANDIDATES[:2]])
    assert len(found.stages) > 1
    chips = [objective.accelerator(stage.point) for stage in found.stages]
    areas = [area_mm2(chip) for chip in chips]
    powers = [tdp_w(chip, objective.scenario.cluster.network, objective.constants) for chip in chips]
    assert found.mean_area_mm2 == pytest.approx(sum(areas) / len(areas))
    assert found.largest_area_mm2 == max(areas)
    assert found.mean_tdp_w == pytest.approx(sum(powers) / len(powers))
    assert found.throughput_per_tdp == pytest.approx(found.throughput_samples_per_s / (found.mean_tdp_w * 8))
    assert found.iteration_time_s == pytest.approx(32 / found.throughput_samples_per_s)
    layers = sum(count for stage in found.stages for _, count in stage.layers)
    assert layers == found.stages[-1].stage.last + 1
    for stage in found.stages:
        assert stage.stage.memory_bytes <= stage.point.hbm_bytes


def test_one_candidate_is_its_uniform_evaluation() -> None:
    objective = pipelined()
    for point in CANDIDATES:
        uniform, found = objective.evaluate(point), evaluate_heterogeneous(objective, [point])
        assert found.throughput_samples_per_s == pytest.approx(uniform.throughput_samples_per_s, rel=1e-9)
        assert found.throughput_per_tdp == pytest.approx(uniform.throughput_per_tdp, rel=1e-9)
        assert found.num_designs == 1


def test_candidates_over_a_budget_are_left_out() -> None:
    free = Objective(make_scenario("opt-350m", devices=8, global_batch=32))
    powers = sorted(free.evaluate(point).tdp_w for point in CANDIDATES)
    objective = pipelined(max_tdp_w=powers[1])
    found = evaluate_heterogeneous(objective, CANDIDATES)
    assert found.num_candidates == 2
    assert all(stage.tdp_w <= powers[1] for stage in found.stages)
    assert evaluate_heterogeneous(pipelined(max_tdp_w=powers[0] / 2), CANDIDATES) is None


def test_every_micro_batch_is_tried_with_every_candidate() -> None:
    objective = pipelined()
    one, eight = (evaluate_heterogeneous(objective, CANDIDATES, micro_batches=(size,)) for size in (1, 8))
    both = evaluate_heterogeneous(objective, CANDIDATES, micro_batches=(1, 8))
    assert both.throughput_samples_per_s == max(one.throughput_samples_per_s, eight.throughput_samples_per_s)


def test_a_pipeline_may_fit_where_no_uniform_design_does() -> None:
    """A chip with memory for the heavy ends of the chain; without a uniform design the gain is infinite."""
    objective = pipelined()
    found = evaluate_heterogeneous(objective, [replace(CANDIDATES[0], hbm_bytes=gib_to_bytes(0.25), micro_batch=1)])
    assert found is None or math.isfinite(found.gain)


def test_several_models_and_no_candidate_are_refused() -> None:
    with pytest.raises(InputError, match="exactly one model"):
        evaluate_heterogeneous(Objective(make_scenario("tiny", "opt-350m")), CANDIDATES)
    with pytest.raises(InputError, match="at least one candidate"):
        evaluate_heterogeneous(pipelined(), ())
