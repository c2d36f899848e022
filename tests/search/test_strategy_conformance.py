"""Every shipped strategy passes the shipped conformance suite."""

from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest
from toy_runs import feasible_throughput, few_points, fill, toy_context, toy_optimum

from phaze_opt.errors import InputError, PluginError
from phaze_opt.objective.goals import Goal
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin
from phaze_opt.search.confuciux.strategy import ConfuciuXStrategy
from phaze_opt.search.digamma.strategy import DigammaStrategy
from phaze_opt.search.probe import CountingProbe, probe_limit
from phaze_opt.search.samplers.cma_es import CmaEsStrategy
from phaze_opt.search.samplers.gp import GPStrategy
from phaze_opt.search.samplers.random import RandomStrategy
from phaze_opt.search.samplers.sampler_run import SamplerRun
from phaze_opt.search.samplers.tpe import TPEStrategy
from phaze_opt.search.spotlight.spotlight import SpotlightRandomStrategy
from phaze_opt.search.strategy import Strategy, StrategyContext
from phaze_opt.search.wham.strategy import WhamStrategy
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.isolation import assert_imports_cheaply
from phaze_opt.testing.problems import ToyBounder, ToyScenario
from phaze_opt.testing.strategies import StrategyConformance, ToyJudge, assert_all_kept, propose

NUM_TRIALS = 40
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
WRONG_OPTIONS = {
    "confuciux": {"policy_share": 1.5, "learning_rate": -1.0, "parents": 0, "lr": 1.0},
    "digamma": {"population": 1, "grow_rate": 1.1, "mutation_sites": 0, "rate": 1},
    "nsga3": {"population": 1, "divisions": 0, "crossover_probability": 1.5},
    "phaze": {"bucket_mm2": 0.0, "patience": 1, "stop_rule": 1, "bucket": 1.0},
    "wham": {"top_k": 0},
}


class TestShippedStrategies(StrategyConformance):
    @pytest.fixture(params=SHIPPED)
    def strategy(self, request: pytest.FixtureRequest) -> Strategy:
        strategy = load_plugin(PluginGroup.STRATEGIES, request.param)
        assert isinstance(strategy, Strategy)
        assert strategy.name == request.param
        return strategy


def test_the_suite_catches_a_module_that_pulls_in_a_heavy_package() -> None:
    heavy = type("Heavy", (), {"__module__": "optuna.distributions"})()
    with pytest.raises(AssertionError, match="optuna"):
        assert_imports_cheaply(heavy)


class TestWhamWithBounds(StrategyConformance):
    @pytest.fixture
    def strategy(self) -> Strategy:
        return WhamStrategy()

    def context(self, space: SearchSpace, *, goal: Goal = Goal.THROUGHPUT, **rest: object) -> StrategyContext:
        context = super().context(space, goal=goal, **rest)
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
    with pytest.raises(PluginError, match=r"phaze-opt\[torch\]") as caught:
        GPStrategy().start(toy_context())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("strategy", "name"), [(key, name) for key, wrong in WRONG_OPTIONS.items() for name in wrong])
def test_wrong_options_are_refused_by_name(strategy: str, name: str) -> None:
    with pytest.raises(InputError) as caught:
        load_plugin(PluginGroup.STRATEGIES, strategy).start(toy_context(**{name: WRONG_OPTIONS[strategy][name]}))
    assert caught.value.key == name


@pytest.mark.parametrize(("strategy", "share"), [(DigammaStrategy(), 0.95), (ConfuciuXStrategy(), 0.97)])
def test_what_is_bred_beats_chance_on_the_toy_objective(strategy: Strategy, share: float) -> None:
    """Best values that runs of 60 find, relative to the optimum by enumeration."""

    def shares(strategy: Strategy) -> float:
        runs = [propose(strategy, toy_context(seed=seed), judge=ToyJudge()) for seed in range(6)]
        return sum(max(map(feasible_throughput, points)) for points in runs) / toy_optimum()

    bred = shares(strategy)
    assert bred > shares(RandomStrategy())
    assert bred / 6 > share


@pytest.mark.parametrize(
    ("strategy", "options"),
    [(DigammaStrategy(), {"population": 3}), (ConfuciuXStrategy(), {}), (DigammaStrategy(), {})],
)
@pytest.mark.parametrize("num_tc", [(1,), pytest.param((1, 2), marks=pytest.mark.slow)])
def test_what_is_bred_goes_on_in_a_space_that_is_spent(strategy, options, num_tc) -> None:
    space = few_points(num_tc)
    points = propose(strategy, toy_context(space=space, num_trials=30, **options), judge=ToyJudge())
    assert len(points) == 30
    assert set(points) == set(space.points())


def run_to_end(strategy: Strategy) -> object:
    """A run that was asked for far more points than there are."""
    space = few_points(micro_batch=(1, 2, 4, 8))
    assert space.size == 8
    run = strategy.start(toy_context(space=space, seed=1))
    points = fill(run, NUM_TRIALS, ToyJudge())
    assert len(points) == NUM_TRIALS
    assert_all_kept(space, points)
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
