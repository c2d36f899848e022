"""A fault of somebody's plug-in names the plug-in, the file and the line; one of the package's own is a bug."""

import logging
import pickle
from functools import partial
from pathlib import Path

import pytest
from toy_runs import search_toy

from phaze_opt.cli.main import describe_failure
from phaze_opt.errors import InputError, PluginFaultError
from phaze_opt.estimate import protocol as estimators
from phaze_opt.estimate.protocol import CompilingEstimator
from phaze_opt.graph.traced.operator_rule import GuardedRule, record_call
from phaze_opt.plugins import PluginGroup, plugin_code
from phaze_opt.search.config import SearchConfig
from phaze_opt.track import protocol
from phaze_opt.track.protocol import TrackerConfig

CODE = """
import sys
from dataclasses import replace
from phaze_opt.search.samplers.optuna_sampler import RandomStrategy


class Mine(RandomStrategy):
    def start(self, context):
        # start
        return Run(context.space)


class Run:
    def __init__(self, space):
        self.space, self.asked = space, 0

    def ask(self, count):
        points, self.asked = [self.space.point(self.asked + number) for number in range(count)], self.asked + count
        # ask
        return points

    def tell(self, outcomes):
        pass  # tell


class Drops:
    name = "drops"
    is_safe = False

    def start(self, context):
        return self

    def judge(self, points, incumbents):
        # judge
        return ()
"""


def search(folder: Path, *, pruner: str = "", **changes: str) -> object:
    code = CODE
    for place, line in changes.items():
        code = code.replace(f"# {place}", line)
    (folder / "mine.py").write_text(code)
    names = {"pruner": f"{folder}/mine.py:{pruner}" if pruner else ""}
    return search_toy(SearchConfig(f"{folder}/mine.py:Mine", num_trials=8, work_dir=folder, **names))


RAISED = r"^strategy mine\.py:Mine raised "


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tell": "\n        raise RuntimeError('boom')"}, RAISED + r"RuntimeError at mine\.py:24: boom$"),
        ({"ask": "raise ValueError"}, RAISED + r"ValueError at mine\.py:19$"),
        ({"ask": "sys.exit(7)"}, RAISED + r"SystemExit at mine\.py:19: 7$"),
        (
            {"start": "import missing_module"},
            RAISED + r"ModuleNotFoundError at mine\.py:9: .*'missing_module'; install",
        ),
        ({"start": "[].pop()"}, RAISED + r"IndexError at mine\.py:9"),
        ({"ask": "replace(points[0], num_tc=0)"}, RAISED + r"InputError at mine\.py:19: 'num_tc'"),
        (
            {"ask": "points = [replace(points[0], num_tc=333)]"},
            r"^strategy mine\.py:Mine proposed a point outside the space in its ask at mine\.py:17: 'num_tc': .* 333",
        ),
        (
            {"ask": "points = ['a', 'b']"},
            r"^strategy mine\.py:Mine proposed a str, and no DesignPoint in its ask at mine\.py:17: 'a'$",
        ),
        (
            {"pruner": "Drops", "judge": "1 / 0"},
            r"^pruner mine\.py:Drops raised ZeroDivisionError at mine\.py:34: division by zero$",
        ),
        ({"pruner": "Drops"}, r"^pruner mine\.py:Drops gave 0 verdicts on \d points; give a Verdict for each$"),
    ],
)
def test_a_search_names_the_plug_in_and_the_place(changes: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(PluginFaultError, match=sentence) as fault:
        search(tmp_path, **changes)
    said, code = describe_failure(fault.value)
    assert code == 2
    assert said == f"{fault.value}; PHAZE_OPT_TRACEBACK=1 shows the traceback"


def test_what_a_plug_in_says_of_its_options_stays_as_it_is(tmp_path: Path) -> None:
    line = "from phaze_opt.errors import InputError; raise InputError('is odd', key='width')"
    with pytest.raises(InputError, match="^'width': is odd$"):
        search(tmp_path, start=line)


def test_a_fault_of_the_packages_own_is_a_bug() -> None:
    with pytest.raises(PluginFaultError) as fault, plugin_code(PluginGroup.STRATEGIES, "tpe"):
        raise ZeroDivisionError
    said, code = describe_failure(fault.value)
    assert (code, "this is a fault of phaze-opt" in said) == (1, True)


def test_a_fault_travels_between_processes() -> None:
    with pytest.raises(PluginFaultError) as fault, plugin_code(PluginGroup.ESTIMATORS, "roofline"):
        raise ZeroDivisionError
    twin = pickle.loads(pickle.dumps(fault.value))
    assert (str(twin), twin.group, twin.is_own) == (str(fault.value), "phaze_opt.estimators", False)


class Broken:
    """Every kind of plug-in, and none that works."""

    name = "broken"
    operators = ("mine.op",)

    def with_constants(self, constants: object) -> "Broken":
        return self

    def fail(self, *_: object) -> None:
        message = "boom"
        raise RuntimeError(message)

    compile = estimate = explain = record = open = fail


HERE = Path(__file__).name


def test_an_estimator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "load_plugin", lambda *_: Broken())
    estimator = estimators.load_estimator("theirs").with_constants(None)  # type: ignore[arg-type]
    assert isinstance(estimator, CompilingEstimator)
    assert estimator.name == "broken"
    for call in (estimator.compile, partial(estimator.estimate, ()), partial(estimator.explain, ())):
        with pytest.raises(PluginFaultError, match=rf"^estimator theirs raised RuntimeError at {HERE}:\d+: boom$"):
            call(None)  # type: ignore[arg-type]


def test_an_operator_rule_is_named() -> None:
    rule = GuardedRule(Broken(), "theirs")  # type: ignore[arg-type]
    assert rule.operators == ("mine.op",)
    with pytest.raises(PluginFaultError, match=rf"^operator rule theirs raised RuntimeError at {HERE}:\d+: boom$"):
        record_call(rule, None, None)  # type: ignore[arg-type]


def test_a_tracker_is_named_where_it_opens(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(protocol, "load_plugin", lambda *_: Broken())
    with pytest.raises(PluginFaultError, match=rf"^tracker theirs raised RuntimeError at {HERE}:\d+: boom$"):
        protocol.open_tracker("theirs", TrackerConfig())
    monkeypatch.setattr(Broken, "open", lambda self, _: self)
    session = protocol.open_tracker("theirs", TrackerConfig())
    with caplog.at_level(logging.WARNING):
        assert session.run_id == ""
    assert "tracker theirs raised AttributeError" in caplog.text
