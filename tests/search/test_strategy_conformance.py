"""Every shipped strategy passes the shipped conformance suite."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from phaze_opt.errors import PluginError
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin
from phaze_opt.search.samplers.gp import GPStrategy
from phaze_opt.search.strategy import Strategy, StrategyContext
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.strategies import StrategyConformance

SAMPLERS = ("random", "tpe", "cma-es", "nsga2", "qmc", "grid")


class TestShippedStrategies(StrategyConformance):
    @pytest.fixture(params=SAMPLERS)
    def strategy(self, request: pytest.FixtureRequest) -> Strategy:
        strategy = load_plugin(PluginGroup.STRATEGIES, request.param)
        assert isinstance(strategy, Strategy)
        assert strategy.name == request.param
        return strategy


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="gp needs torch")
class TestGP(StrategyConformance):
    num_trials = 14

    @pytest.fixture
    def strategy(self) -> Strategy:
        return GPStrategy()


def test_every_sampler_of_the_issue_is_registered() -> None:
    assert {*SAMPLERS, "gp"} <= {entry.name for entry in list_plugins(PluginGroup.STRATEGIES)}


def test_gp_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phaze_opt.search.samplers.gp.find_spec", lambda name: None)
    context = StrategyContext(space=tiny_space(), directions=("maximize",), num_trials=1, seed=0)
    with pytest.raises(PluginError, match=r"phaze-opt\[torch\]") as caught:
        GPStrategy().start(context)
    assert "\n" not in str(caught.value)
