"""Every shipped strategy passes the shipped conformance suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest

from phaze_opt.errors import PluginError
from phaze_opt.objective.goals import Goal
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin
from phaze_opt.search.options import OptionValue
from phaze_opt.search.probe import CountingProbe, probe_limit
from phaze_opt.search.samplers.gp import GPStrategy
from phaze_opt.search.strategy import Strategy, StrategyContext
from phaze_opt.search.wham.strategy import WhamStrategy
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.strategies import StrategyConformance
from phaze_opt.testing.toy_search import ToyBounder, ToyScenario

SHIPPED = (
    *(
        "random",
        "tpe",
        "cma-es",
        "nsga2",
        "nsga3",
        "qmc",
        "grid",
        "exhaustive",
        "phaze",
        "digamma",
        "confuciux",
        "wham",
    ),
    *("spotlight", "spotlight-ga", "spotlight-random", "spotlight-vanilla", "spotlight-fixed"),
)


class TestShippedStrategies(StrategyConformance):
    @pytest.fixture(params=SHIPPED)
    def strategy(self, request: pytest.FixtureRequest) -> Strategy:
        strategy = load_plugin(PluginGroup.STRATEGIES, request.param)
        assert isinstance(strategy, Strategy)
        assert strategy.name == request.param
        return strategy


class TestWhamWithBounds(StrategyConformance):
    @pytest.fixture
    def strategy(self) -> Strategy:
        return WhamStrategy()

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


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="gp needs torch")
class TestGP(StrategyConformance):
    num_trials = 14

    @pytest.fixture
    def strategy(self) -> Strategy:
        return GPStrategy()


def test_every_shipped_strategy_is_held_to_the_suite() -> None:
    assert {*SHIPPED, "gp"} == {entry.name for entry in list_plugins(PluginGroup.STRATEGIES)}


def test_gp_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phaze_opt.search.samplers.gp.find_spec", lambda name: None)
    context = StrategyContext(space=tiny_space(), directions=("maximize",), num_trials=1, seed=0)
    with pytest.raises(PluginError, match=r"phaze-opt\[torch\]") as caught:
        GPStrategy().start(context)
    assert "\n" not in str(caught.value)
