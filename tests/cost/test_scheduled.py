"""Designed chips under software: what full recomputation spares, and what comes again, is not scheduled again."""

import numpy as np
import pytest

from phaze_opt.cost import clocks
from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.compiled_step import AGAIN, compile_step
from phaze_opt.estimate.protocol import load_estimator
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.schedule.problem import Exclusivity, ScheduleOptions
from phaze_opt.schedule.solve import solve_compiled
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import FusionLevel, TrainingStack
from phaze_opt.workload.training import TrainingSpec

LAST = ("mlp_down", "mlp_residual", "mlp_output_bias", "mlp_dropout")


def make_clock() -> ScheduleClock:
    return ScheduleClock(
        load_architecture("phaze-tpu-v4"),
        estimator=load_estimator("analytic"),
        exclusivity=Exclusivity.CHIP,
        options=ScheduleOptions(mip_gap=0.01),
    )


def times(recompute: Recompute, kept: tuple[str, ...]) -> np.ndarray:
    """Passes of a block of bert-large, s."""
    clock = make_clock()
    stack = TrainingStack(fusion=FusionLevel.NONE, kept_operators=kept)
    plan = ParallelPlan(recompute=recompute)
    step = compile_step(load_model("bert-large"), TrainingSpec(1, 512, 1), plan, stack=stack)
    return clock.times(step).pass_s[1]


def test_what_is_spared_is_not_in_the_pass_that_full_recomputation_runs_again() -> None:
    """A block ends in a chain, so what is spared is what its operators take one after the other."""
    plain, spared = times(Recompute.FULL, ()), times(Recompute.FULL, LAST)
    stack = TrainingStack(fusion=FusionLevel.NONE, kept_operators=LAST)
    step = compile_step(load_model("bert-large"), TrainingSpec(1, 512, 1), ParallelPlan(), stack=stack)
    kept = [step.operators[column] for column in step.layers[1].forward.kept_columns]
    assert {operator.name for operator in kept} == set(LAST)
    from phaze_opt.hardware.accelerator import AcceleratorTable

    table = AcceleratorTable.from_accelerators([load_architecture("phaze-tpu-v4")])
    alone_s = load_estimator("analytic").estimate(kept, table).spread_s[0].sum()
    assert plain[0] == spared[0]
    assert plain[AGAIN] - spared[AGAIN] == pytest.approx(alone_s, rel=0.02)
    assert plain[AGAIN] == plain[0]
    assert times(Recompute.NONE, LAST)[1] == spared[1] == plain[1]


def test_all_of_forward_spared_is_no_recomputation() -> None:
    stack = TrainingStack(fusion=FusionLevel.NONE)
    step = compile_step(load_model("bert-large"), TrainingSpec(1, 512, 1), ParallelPlan(), stack=stack)
    everything = tuple(step.operators[column].name for column in step.layers[1].forward.columns)
    assert times(Recompute.FULL, everything)[AGAIN] == 0.0


def test_a_problem_that_comes_again_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of other degrees share layers; a clock's second answer is its first, another clock's is the same."""
    solved = []

    def solve(*given, **options):
        solved.append(given)
        return solve_compiled(*given, **options)

    monkeypatch.setattr(clocks, "solve_compiled", solve)
    stack = TrainingStack(fusion=FusionLevel.NONE)
    steps = [
        compile_step(load_model("bert-large"), TrainingSpec(size, 512, 4), ParallelPlan(micro_batch=size), stack=stack)
        for size in (1, 2)
    ]
    clock = make_clock()
    first = [clock.schedules(step) for step in steps]
    # An update is the same for any micro-batch: three problems less than eighteen.
    assert len(solved) == 15
    assert [clock.schedules(step) for step in steps] == first
    assert len(solved) == 15
    assert [make_clock().schedules(step) for step in steps] == first
    assert len(solved) == 33
