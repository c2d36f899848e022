"""Strategies that no package brings: in a file, registered, any sampler of Optuna; all pass the suite."""

import json
import pickle
from functools import partial
from importlib.metadata import version

import optuna
import pytest
from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler
from toy_runs import toy_context

import phaze_opt as po
from phaze_opt.errors import InputError, PluginError
from phaze_opt.plugins import GivenPlugin, PluginGroup, given_plugin, load_plugin, plugin_origins
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.encodings import Rejected
from phaze_opt.search.journal import JOURNAL_FILE
from phaze_opt.search.run import load_strategy, run_search
from phaze_opt.search.samplers.optuna_sampler import OptunaStrategy
from phaze_opt.search.samplers.random import RandomStrategy
from phaze_opt.search.strategy import Capability
from phaze_opt.space.codec import Codec
from phaze_opt.testing.problems import ToyObjective, ToyScenario, tiny_space
from phaze_opt.testing.strategies import StrategyConformance, ToyJudge, propose

BY_NAME = ("TPESampler", "CmaEsSampler")
OTHERS = ("RandomSampler", "NSGAIISampler", "NSGAIIISampler", "QMCSampler", "optuna.samplers.TPESampler")
SOURCE = """
from phaze_opt.search.samplers.random import RandomStrategy


class Mine(RandomStrategy):
    name = "mine"


class NoStrategy:
    pass
"""


class TestSamplersByName(StrategyConformance):
    @pytest.fixture(params=[*BY_NAME, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
    def strategy(self, request):
        return load_strategy(given(f"optuna:{request.param}"))


@pytest.mark.slow
class TestSamplersOfOnesOwn(StrategyConformance):
    @pytest.fixture(params=[NSGAIISampler, partial(TPESampler, multivariate=True), RandomSampler(seed=3)])
    def strategy(self, request):
        return po.optuna_strategy(request.param, name="mine")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr("phaze_opt.plugins._OF_THIS_PROCESS", {})


@pytest.fixture
def file(tmp_path):
    """A file with a strategy."""
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def given(name):
    return given_plugin(PluginGroup.STRATEGIES, name)


def search(strategy, folder, **more):
    config = SearchConfig(strategy, num_trials=8, work_dir=folder, **more)
    return run_search(config, scenario=ToyScenario(), space=tiny_space(), objective_factory=ToyObjective)


def points(result):
    return [trial.point for trial in result.trials]


def test_a_sampler_proposes_what_optuna_proposes_with_the_same_seed():
    """By name, by class and by function; another seed proposes others, and a sampler keeps its own."""
    judge = partial(propose, judge=ToyJudge())
    named = judge(load_strategy("optuna:RandomSampler"), toy_context(seed=5))
    for made in (RandomSampler, partial(RandomSampler), RandomSampler(5)):
        assert judge(po.optuna_strategy(made), toy_context(seed=5)) == named
    assert judge(po.optuna_strategy(RandomSampler), toy_context(seed=6)) != named
    # The first points are the sampler's alone; later ones stand in for repeats, by the seed of the search.
    assert judge(po.optuna_strategy(RandomSampler(5)), toy_context(seed=6))[:8] == named[:8]
    codec, study = Codec(tiny_space()), optuna.create_study(sampler=RandomSampler(5))
    asked = [codec.decode(study.ask(codec.distributions()).params) for _ in range(30)]
    assert [point for point in asked if not isinstance(point, Rejected)][:8] == list(named[:8])


def test_a_sampler_is_searched_with_as_an_object_under_the_name_of_its_class(tmp_path):
    small = po.optuna_strategy(partial(NSGAIISampler, population_size=4))
    assert small.name == "NSGAIISampler"
    named = search("optuna:NSGAIISampler", tmp_path, options={"population_size": 4})
    assert points(search(po.register(small), tmp_path)) == points(named)
    po.register(po.optuna_strategy(RandomSampler, name="optuna:TPESampler"))
    assert load_strategy("optuna:TPESampler").sampler is RandomSampler


def test_options_are_the_samplers_own():
    strategy = load_strategy("optuna:NSGAIISampler")
    small, large = (propose(strategy, toy_context(seed=1, population_size=size), judge=ToyJudge()) for size in (4, 30))
    assert small != large
    with pytest.raises(InputError) as fault:
        strategy.start(toy_context(population=4))
    assert fault.value.key == "population"
    with pytest.raises(PluginError, match="population_size"):
        strategy.start(toy_context(population_size=0))
    with pytest.raises(PluginError, match="did you mean TPESampler"):
        load_strategy("optuna:TPESampeler").start(toy_context())
    with pytest.raises(PluginError, match="no sampler of Optuna"):
        OptunaStrategy("mine", lambda: 3).start(toy_context())
    assert Capability.MULTI_OBJECTIVE not in load_strategy("optuna:CmaEsSampler").capabilities
    assert version("optuna").startswith("5.")


def test_a_file_is_searched_with_and_its_change_is_noticed(file, tmp_path):
    name = f"{file}:Mine"
    found = search(name, tmp_path / "runs")
    assert points(found) == points(search("random", tmp_path / "runs"))
    assert found.search_id.startswith("Mine-")
    kept = tmp_path / "runs" / found.search_id / JOURNAL_FILE
    assert kept.is_file()
    (origin,) = plugin_origins([(PluginGroup.STRATEGIES, given(name))])
    file.write_text(SOURCE + "\n# changed\n")
    (changed,) = plugin_origins([(PluginGroup.STRATEGIES, given(name))])
    assert origin.digest != changed.digest
    with pytest.raises(InputError, match="the code of 'mine.py:Mine'"):
        search(name, tmp_path / "runs", resume=True)
    first = type(load_plugin(PluginGroup.STRATEGIES, given(name)))
    assert first is type(load_plugin(PluginGroup.STRATEGIES, given(name)))
    file.write_text(SOURCE)
    assert type(load_plugin(PluginGroup.STRATEGIES, given(name))) is not first


def test_a_file_is_known_by_its_name_wherever_it_lies(file, tmp_path):
    name = given(f"{file}:Mine")
    assert (name, name.file) == ("mine.py:Mine", file)
    twin = pickle.loads(pickle.dumps(name))
    assert (type(twin), twin.file) == (GivenPlugin, file)
    other = tmp_path / "elsewhere" / file.name
    other.parent.mkdir()
    other.write_text(SOURCE)
    identities = {search(f"{path}:Mine", tmp_path / "runs").search_id for path in (file, other)}
    assert len(identities) == 1


SAMPLER = """
import optuna


class Hybrid(optuna.samplers.TPESampler):
    def __init__(self, seed=None, width=3):
        super().__init__(seed=seed)


def hybrid(seed):
    return Hybrid(seed)
"""


def test_a_sampler_in_a_file_is_searched_with_as_one_of_optuna_is(tmp_path):
    (tmp_path / "mine.py").write_text(SAMPLER)
    found = search(f"{tmp_path / 'mine.py'}:Hybrid", tmp_path)
    assert points(found) == points(search("optuna:TPESampler", tmp_path))
    with pytest.raises(InputError, match="no option 'depth'"):
        search(f"{tmp_path / 'mine.py'}:Hybrid", tmp_path, options={"depth": 3})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("optuna:mysampler.HybridSampler", r"if it is in a file, name it mysampler\.py:HybridSampler"),
        ("optuna:os.getcwd", "no class of a sampler"),
        ("optuna:collections.OrderedDict", "no class of a sampler"),
        ("optuna:nsgaii", "no class of a sampler"),
        ("mine.py", "give FILE:CLASS, such as mine.py:Mine"),
    ],
)
def test_what_is_no_sampler_is_never_made(name, words):
    with pytest.raises(PluginError, match=words):
        load_strategy(given(name)).start(toy_context())


@pytest.mark.parametrize(
    ("name", "words"),
    [("nowhere.py:Mine", "is no file"), ("{file}:Other", "named 'Other'"), ("{file}:NoStrategy", "lacks one of name")],
)
def test_a_file_without_the_strategy_is_refused(file, name, words):
    with pytest.raises(PluginError, match=words):
        load_strategy(given(name.format(file=file)))


def test_a_file_that_fails_says_why(file):
    file.write_text("1 / 0")
    with pytest.raises(PluginError, match=r"fails to load: ZeroDivisionError at mine\.py:1: division by zero"):
        load_strategy(given(f"{file}:Mine"))
    file.write_text("import sys; sys.exit(7)")
    with pytest.raises(PluginError, match=r"SystemExit at mine\.py:1: 7"):
        load_strategy(given(f"{file}:Mine"))


def test_what_is_registered_is_found_by_name(tmp_path):
    class Own(RandomStrategy):
        name = "own-random"

    assert po.register(Own) == "own-random"
    assert po.register(Own(), name="other") == "other"
    assert points(search("own-random", tmp_path)) == points(search("random", tmp_path))
    assert load_strategy("other").name == "own-random"
    with pytest.raises(PluginError, match="did you mean own-random"):
        load_strategy("own-randon")
    for taken in ("tpe", "a.py:B", "a/b", "x" * 70):
        with pytest.raises(PluginError):
            po.register(Own, name=taken)
    with pytest.raises(InputError) as fault:
        po.register(dict)
    assert fault.value.key == "plugin"
    (origin,) = plugin_origins([(PluginGroup.STRATEGIES, "own-random")])
    assert json.loads(json.dumps([origin.name, origin.distribution])) == ["own-random", ""]
    assert origin.digest
