"""Every variant of Spotlight passes the shipped conformance suite."""

from __future__ import annotations

import pytest

from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.search.strategy import Strategy
from phaze_opt.testing.strategies import StrategyConformance

VARIANTS = ("spotlight", "spotlight-ga", "spotlight-random", "spotlight-vanilla", "spotlight-fixed")


class TestSpotlight(StrategyConformance):
    @pytest.fixture(params=VARIANTS)
    def strategy(self, request: pytest.FixtureRequest) -> Strategy:
        strategy = load_plugin(PluginGroup.STRATEGIES, request.param)
        assert isinstance(strategy, Strategy)
        assert strategy.name == request.param
        return strategy
