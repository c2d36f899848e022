"""Where every point was proposed, strategies that may repeat themselves do so at once, without looking for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phaze_opt.search.samplers.cma_es import CmaEsStrategy
from phaze_opt.search.samplers.sampler_run import SamplerRun
from phaze_opt.search.samplers.tpe import TPEStrategy
from phaze_opt.search.spotlight.spotlight import SpotlightRandomStrategy
from phaze_opt.search.strategy import Strategy, StrategyContext
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.strategies import ToyJudge, assert_all_kept

NUM_TRIALS = 40


def small_space() -> SearchSpace:
    """Eight points: one chip more or less, four micro-batches."""
    axes = tiny_space().axes
    small = replace(
        axes,
        num_tc=(1,),
        num_vc=(1,),
        tc_width=axes.tc_width[:1],
        tc_depth=axes.tc_depth,
        glb_bytes=axes.glb_bytes[:1],
        hbm_bytes=axes.hbm_bytes[:1],
        micro_batch=(1, 2, 4, 8),
    )
    return replace(tiny_space(), axes=small)


def run_to_end(strategy: Strategy) -> object:
    """A run that was asked for far more points than there are."""
    space, judge = small_space(), ToyJudge()
    assert space.size == 8
    run = strategy.start(StrategyContext(space=space, directions=("maximize",), num_trials=NUM_TRIALS, seed=1))
    for number in range(0, NUM_TRIALS, 4):
        points = run.ask(4)
        assert len(points) == 4
        assert_all_kept(space, points)
        run.tell([judge(number + position, point) for position, point in enumerate(points)])
    return run


@pytest.mark.parametrize("strategy", [CmaEsStrategy(), TPEStrategy()])
def test_samplers_are_not_told_of_repeats_again_and_again(strategy: Strategy) -> None:
    """One trial a proposal once the space is spent; retelling 32 times each would make 1,000 of them here."""
    run = run_to_end(strategy)
    assert isinstance(run, SamplerRun)
    assert len(run.study.trials) < 8 * 34 + NUM_TRIALS


def test_random_draws_stop_when_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    draw = SearchSpace.draw

    def counted(*arguments: object) -> object:
        counts.append(1)
        return draw(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SearchSpace, "draw", counted)
    run_to_end(SpotlightRandomStrategy())
    assert len(counts) < 2 * NUM_TRIALS
