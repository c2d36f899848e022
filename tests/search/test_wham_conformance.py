"""Strategy `wham` passes the shipped suite, blind (no probe) and with a toy's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from phaze_opt.objective.goals import Goal
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.search.options import OptionValue
from phaze_opt.search.probe import CountingProbe, probe_limit
from phaze_opt.search.strategy import Strategy, StrategyContext
from phaze_opt.search.wham.strategy import WhamStrategy
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.strategies import StrategyConformance
from phaze_opt.testing.toy_search import ToyBounder, ToyScenario


class TestBlind(StrategyConformance):
    @pytest.fixture
    def strategy(self) -> Strategy:
        strategy = load_plugin(PluginGroup.STRATEGIES, "wham")
        assert isinstance(strategy, WhamStrategy)
        return strategy


class TestWithBounds(TestBlind):
    def context(
        self,
        space: SearchSpace,
        *,
        seed: int = 7,
        goal: Goal = Goal.THROUGHPUT,
        options: Mapping[str, OptionValue] | None = None,
    ) -> StrategyContext:
        context = super().context(space, seed=seed, goal=goal, options=options)
        # The suite starts several runs from one context: there must be probes left for each of them, or they differ.
        limit = 10 * probe_limit(self.num_trials, space.num_architectures * len(space.axes.hbm_bytes))
        probe = CountingProbe(partial(ToyBounder, ToyScenario()), goal, limit=limit, who="wham")
        return replace(context, probe=probe)
