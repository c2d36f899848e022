"""Plug-ins from outside: found by name through entry points, conforming, and fatal when they do not load."""

import importlib
import json
import os
import pickle
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from child_process import run_python

from phaze_opt.errors import PluginError
from phaze_opt.estimate.protocol import Estimator
from phaze_opt.graph.traced.operator_rule import GuardedRule, OperatorRule, operator_rules
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin
from phaze_opt.schedule.layer_fusion import Fuser
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.pruner import Pruner
from phaze_opt.search.result import SearchResult
from phaze_opt.search.run import run_search
from phaze_opt.search.strategy import Strategy
from phaze_opt.testing.estimators import EstimatorConformance
from phaze_opt.testing.fusers import FuserConformance
from phaze_opt.testing.operators import OperatorRuleConformance, RuleCase, given, operator_call
from phaze_opt.testing.problems import ToyObjective, ToyScenario, tiny_space
from phaze_opt.testing.pruners import PrunerConformance
from phaze_opt.testing.strategies import StrategyConformance
from phaze_opt.testing.trackers import StudyTrackerConformance, TrackerConformance
from phaze_opt.track.protocol import StudyTracker, Tracker, TrackerConfig

PLUGIN = Path(__file__).parent / "sample_plugin"

BY_NAME = """
import json, sys
from pathlib import Path
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.testing.estimators import EstimatorConformance
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.problems import ToyBounder, ToyObjective, ToyScenario
from phaze_opt.track.protocol import TrackerConfig

def main():
    work_dir = Path(sys.argv[1])
    estimator = load_plugin(PluginGroup.ESTIMATORS, "roofline")
    session = load_plugin(PluginGroup.TRACKERS, "json-lines").open(TrackerConfig(work_dir=work_dir))
    results = [
        run_search(
            SearchConfig("coordinate-descent", num_trials=30, jobs=jobs, work_dir=work_dir / str(jobs)),
            scenario=ToyScenario(), space=tiny_space(), objective_factory=ToyObjective, observers=observers,
        )
        for jobs, observers in ((1, [session]), (2, []))
    ]
    pruned = run_search(
        SearchConfig(
            "coordinate-descent", num_trials=30, pruner="worthwhile", pruner_options={"min_gain": 0.02},
            work_dir=work_dir / "pruned",
        ),
        scenario=ToyScenario(), space=tiny_space(), objective_factory=ToyObjective, bounder_factory=ToyBounder,
    )
    print(json.dumps({
        "names": {group.name: [entry.name for entry in list_plugins(group)] for group in PluginGroup},
        "estimator": estimator.name,
        "run_id": session.run_id,
        "delivered": session.close().num_delivered,
        "search_id": results[0].search_id,
        "best": [result.best.throughput_samples_per_s for result in results],
        "pruned": pruned.pruned,
        "pruned_best": pruned.best.throughput_samples_per_s,
        "events": next(work_dir.glob("json-lines/*/*.jsonl")).read_text().splitlines(),
    }))

if __name__ == "__main__":
    main()
"""


def install(target: Path, *, name: str, groups: dict[str, dict[str, str]]) -> None:
    """Write what an installer would write beside a package, without network or build tools."""
    info = target / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in known.items())
        for group, known in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory that the sample plug-in is installed into, as its own pyproject.toml says."""
    site = tmp_path / "site"
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    install(site, name=project["name"], groups=project["entry-points"])
    (site / "phaze_sample_plugin").symlink_to(PLUGIN / "phaze_sample_plugin")
    return site


@pytest.fixture
def on_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, importable in this process."""
    monkeypatch.syspath_prepend(site)
    return site


def test_an_installed_package_works_by_name_in_a_process_of_its_own(site: Path, tmp_path: Path) -> None:
    script = tmp_path / "by_name.py"
    script.write_text(BY_NAME)
    done = run_python("-W", "error", script, tmp_path / "work", env={**os.environ, "PYTHONPATH": str(site)})
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert "coordinate-descent" in said["names"]["STRATEGIES"]
    assert "tpe" in said["names"]["STRATEGIES"]
    assert said["estimator"] == "roofline"
    assert said["best"][0] == said["best"][1]
    assert said["pruned"] > 0
    assert said["pruned_best"] >= 0.9 * said["best"][0]
    assert said["run_id"] == said["search_id"]
    assert said["delivered"] == len(said["events"]) == 32
    assert [json.loads(line)["event"] for line in said["events"]][:2] == ["SearchStarted", "TrialFinished"]


class TestCoordinateDescent(StrategyConformance):
    """The strategy passes the suite that phaze_opt ships."""

    @pytest.fixture
    def strategy(self, on_path: Path) -> Strategy:
        strategy = load_plugin(PluginGroup.STRATEGIES, "coordinate-descent")
        assert isinstance(strategy, Strategy)
        return strategy


class TestWorthwhile(PrunerConformance):
    """The pruner passes the suite that phaze_opt ships; it declares itself unsafe, and loses what it says it may."""

    max_loss = 0.01

    @pytest.fixture
    def pruner(self, on_path: Path) -> Pruner:
        pruner = load_plugin(PluginGroup.PRUNERS, "worthwhile")
        assert isinstance(pruner, Pruner)
        assert not pruner.is_safe
        return pruner


class TestRoofline(EstimatorConformance):
    """The estimator passes the suite that phaze_opt ships."""

    @pytest.fixture
    def estimator(self, on_path: Path) -> Estimator:
        estimator = load_plugin(PluginGroup.ESTIMATORS, "roofline")
        assert isinstance(estimator, Estimator)
        return estimator


class TestJsonLines(TrackerConformance):
    """The tracker passes the suite that phaze_opt ships."""

    @pytest.fixture
    def tracker(self, on_path: Path) -> Tracker:
        tracker = load_plugin(PluginGroup.TRACKERS, "json-lines")
        assert isinstance(tracker, Tracker)
        return tracker

    def recorded(self, config: TrackerConfig) -> dict[int, float]:
        (file,) = config.work_dir.glob("json-lines/*/*.jsonl")
        trials = [known for known in map(json.loads, file.read_text().splitlines()) if "number" in known]
        assert len({trial["number"] for trial in trials}) == len(trials)
        return {trial["number"]: trial["throughput_samples_per_s"] for trial in trials}


class TestJsonLinesStudies(StudyTrackerConformance):
    """It records studies too."""

    @pytest.fixture
    def tracker(self, on_path: Path) -> StudyTracker:
        tracker = load_plugin(PluginGroup.TRACKERS, "json-lines")
        assert isinstance(tracker, StudyTracker)
        return tracker

    def recorded(self, config: TrackerConfig) -> dict[tuple[str, int], float]:
        (file,) = config.work_dir.glob("json-lines/studies/*.jsonl")
        searches = [known for known in map(json.loads, file.read_text().splitlines()) if "search" in known]
        assert len({search["search"] for search in searches}) == len(searches)
        return {
            (search["search"], number): rate for search in searches for number, rate in enumerate(search["throughputs"])
        }


class TestSquaredRelu(OperatorRuleConformance):
    """The operator rule passes the suite that phaze_opt ships."""

    @pytest.fixture
    def rule(self, on_path: Path) -> OperatorRule:
        rule = load_plugin(PluginGroup.OPERATORS, "squared-relu")
        assert isinstance(rule, OperatorRule)
        return rule

    @pytest.fixture
    def cases(self) -> list[RuleCase]:
        return [RuleCase(operator_call("sample.squared_relu", given(4, 8), results=((4, 8),)), stash_bytes=64)]

    def test_traced_models_find_it(self, on_path: Path) -> None:
        found = operator_rules()["sample.squared_relu"]
        assert isinstance(found, GuardedRule)
        assert type(found.rule).__name__ == "SquaredRelu"


class TestGreedyFuser(FuserConformance):
    """The fuser passes the suite that phaze_opt ships."""

    max_regret = 0.5

    @pytest.fixture
    def fuser(self, on_path: Path) -> Fuser:
        fuser = load_plugin(PluginGroup.FUSERS, "greedy")
        assert isinstance(fuser, Fuser)
        return fuser


BROKEN = [
    ("raise ImportError('no module named quantum')", "ImportError at phaze_broken.py:1: no module named quantum"),
    ("import there_is_no_such_module", "ModuleNotFoundError"),
    ("1 / 0", "ZeroDivisionError"),
    ("def f(:", "SyntaxError"),
    ("", "AttributeError"),
    ("class Broken:\n    def __init__(self, needed):\n        pass", "TypeError"),
]


AddPlugin = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddPlugin:
    """Installs a package with one plug-in, and with a module of its own if it is given a source."""

    def install_one(group: PluginGroup, name: str, target: str, source: str | None = None) -> None:
        site = tmp_path / "site"
        install(site, name=f"phaze-{name}", groups={group: {name: target}})
        if source is not None:
            (site / "phaze_broken.py").write_text(source)
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, "phaze_broken", raising=False)

    return install_one


def test_two_rules_of_one_operation_are_refused(add: AddPlugin) -> None:
    add(PluginGroup.OPERATORS, "other-softmax", "phaze_opt.graph.traced.rules.elementwise:SoftmaxRule")
    with pytest.raises(PluginError, match=r"'other-softmax' and 'softmax' both have a rule for aten\.softmax"):
        operator_rules()


def test_an_operator_rule_of_another_form_is_refused(add: AddPlugin) -> None:
    add(PluginGroup.OPERATORS, "odd", "fractions:Fraction")
    with pytest.raises(PluginError, match="'odd' is no operator rule"):
        operator_rules()


def search(config: SearchConfig) -> SearchResult:
    return run_search(config, scenario=ToyScenario(), space=tiny_space(), objective_factory=ToyObjective)


@pytest.mark.parametrize(("source", "reason"), BROKEN)
@pytest.mark.parametrize("group", list(PluginGroup))
def test_a_plugin_that_does_not_load_is_fatal_with_name_and_reason(
    group: PluginGroup, source: str, reason: str, add: AddPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(group, "broken", "phaze_broken:Broken", source)
    assert "broken" in [entry.name for entry in list_plugins(group)]
    with pytest.raises(PluginError, match="'broken'") as caught:
        load_plugin(group, "broken")
    assert reason in str(caught.value)
    assert "phaze_broken:Broken" in str(caught.value)
    monkeypatch.delitem(sys.modules, "phaze_broken", raising=False)


def test_entry_points_of_another_version_are_told_from_broken_plugins(add: AddPlugin) -> None:
    add(PluginGroup.PRUNERS, "moved", "phaze_opt.no_such_room:Moved", "")
    with pytest.raises(PluginError, match=r"'moved'.*no_such_room.*install the package that brings it again"):
        load_plugin(PluginGroup.PRUNERS, "moved")


def test_a_pruner_that_does_not_load_stops_the_search_before_anything_is_written(
    tmp_path: Path, add: AddPlugin
) -> None:
    add(PluginGroup.PRUNERS, "broken", "phaze_broken:Broken", "import there_is_no_such_module")
    with pytest.raises(PluginError, match="'broken'.*ModuleNotFoundError.*there_is_no_such_module"):
        search(SearchConfig("random", pruner="broken", work_dir=tmp_path / "work"))
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("group", "names", "rule"),
    [
        (PluginGroup.PRUNERS, {"strategy": "random", "pruner": "odd"}, "name, is_safe and start"),
        (PluginGroup.STRATEGIES, {"strategy": "odd"}, "name, capabilities and start"),
    ],
)
def test_something_that_is_no_plugin_is_refused(
    group: PluginGroup, names: dict[str, str], rule: str, tmp_path: Path, add: AddPlugin
) -> None:
    add(group, "odd", "fractions:Fraction")
    with pytest.raises(PluginError, match=f"'odd'.*lacks one of {rule}"):
        search(SearchConfig(**names, work_dir=tmp_path))
    assert not list(tmp_path.glob("odd-*"))


def test_a_broken_plugin_does_not_hinder_the_others(tmp_path: Path, add: AddPlugin) -> None:
    add(PluginGroup.STRATEGIES, "broken", "phaze_broken:Broken")
    assert search(SearchConfig("random", num_trials=2, work_dir=tmp_path)).evaluations == 2


def test_two_packages_with_one_name_are_refused(add: AddPlugin) -> None:
    add(PluginGroup.STRATEGIES, "tpe", "rival:Strategy")
    with pytest.raises(PluginError, match="'tpe' is registered twice.*rival:Strategy"):
        load_plugin(PluginGroup.STRATEGIES, "tpe")


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(
    ("group", "name"),
    [
        (PluginGroup.STRATEGIES, "coordinate-descent"),
        (PluginGroup.PRUNERS, "worthwhile"),
        (PluginGroup.ESTIMATORS, "roofline"),
        (PluginGroup.TRACKERS, "json-lines"),
        (PluginGroup.FUSERS, "greedy"),
    ],
)
def test_registered_objects_carry_their_names_and_pickle(group: PluginGroup, name: str) -> None:
    plugin = load_plugin(group, name)
    assert plugin.name == name  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(plugin)).name == name
    assert importlib.import_module("phaze_sample_plugin").__doc__
