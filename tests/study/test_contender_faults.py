"""A fault in one strategy's own code fails its searches, is kept with its traceback, and old and new code never mix."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from toy_study import CONFIG, ENGINE, Recorder, table

from phaze_opt.errors import InputError
from phaze_opt.plugins import PluginGroup, plugin_code
from phaze_opt.record.interrupts import WorkerToldToEndError
from phaze_opt.study.compare import compare_studies
from phaze_opt.study.config import Contender, Setting
from phaze_opt.study.events import CellFinished, StudyFinished
from phaze_opt.study.load import load_study
from phaze_opt.study.plan_file import code_origins
from phaze_opt.study.run import run_study
from phaze_opt.study.summary import summarise

MINE = replace(CONFIG, contenders=(*CONFIG.contenders, Contender("mine", "mine")))
CODE = """
from dataclasses import replace
from phaze_opt.search.strategy import Capability


class Mine:
    name = "mine"
    capabilities = frozenset({Capability.SINGLE_OBJECTIVE})

    def start(self, context):
        return Run(context)


class Run:
    def __init__(self, context):
        self.context = context
        self.next = 0

    def ask(self, count):
        first, self.next = self.next, self.next + count
        points = [self.context.space.point(97 * number % self.context.space.size) for number in range(first, self.next)]
        # ask
        return points

    def tell(self, outcomes):
        pass  # tell
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs the strategy ``mine`` as a package of its own would be, as often as its code changes."""
    site = tmp_path / "site"
    info = site / "mine_package-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-package\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[phaze_opt.strategies]\nmine = mine_module:Mine\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(**changes: str) -> None:
        code = CODE
        for key, line in changes.items():
            code = code.replace(f"# {key}", line)
        (site / "mine_module.py").write_text(code)
        monkeypatch.delitem(sys.modules, "mine_module", raising=False)

    write()
    return write


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_study_goes_on_without_the_faulty_strategy(
    install: Install, undisturbed: list[object], tmp_path: Path, jobs: int
) -> None:
    install(ask="if self.next > 8 and self.context.seed == 1: raise ZeroDivisionError('no\\x1b[31m mean')")
    observer = Recorder()
    watch = {"observers": (observer,), "describe": lambda result, _: result.unranked}
    result = run_study(MINE, work_dir=tmp_path, engine=ENGINE, jobs=jobs, **watch)
    assert [row for row in table(result) if ".mine." not in row[0]] == undisturbed
    assert [failure.cell.key for failure in result.failures] == ["default.tiny.mine.1", "default.bert.mine.1"]
    assert result.has_ended
    assert not result.is_complete
    kept = json.loads(result.failures[0].file.read_text())
    assert (kept["contender"], kept["strategy"], kept["seed"]) == ("mine", "mine", 1)
    assert kept["error"] == "ZeroDivisionError: no [31m mean"
    assert 'mine_module.py", line' in kept["traceback"]
    assert load_study(result.directory) == result
    assert result.unranked == ("mine",)
    summary = summarise(result)
    assert {score.contender for score in summary.contenders} == {"random", "tpe"}
    assert {score.contender for score in summary.cells} == {"random", "tpe"}
    told = [event.result.cell.key for event in observer.events if isinstance(event, CellFinished)]
    assert told == [cell.cell.key for cell in result.cells]
    last = observer.events[-1]
    assert isinstance(last, StudyFinished)
    assert last.notes == "- mine"
    assert compare_studies(result, result).first.result.unranked == ("mine",)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"ask": "points = [replace(points[0], num_vc=0)]"}, "InputError: 'num_vc'"),
        ({"ask": "points = [replace(points[0], num_vc=3)]"}, "InputError: 'num_vc'"),
        ({"ask": "points = [replace(points[0], num_tc=4096, tc_width=256, tc_depth=256, vc_width=256)]"}, "InputError"),
        (
            {"ask": "points = ['a point']"},
            "PluginFaultError: strategy mine proposed a str, and no DesignPoint in its ask",
        ),
        ({"ask": "points = None"}, "TypeError"),
        ({"tell": "\n        raise ValueError('never')"}, "ValueError: never"),
        ({"ask": "raise MissingName"}, "NameError"),
        ({"ask": "raise SystemExit(3)"}, "SystemExit: 3"),
        ({"ask": "raise type('Mute', (Exception,), {'__str__': None})"}, "Mute"),
    ],
)
def test_each_kind_of_fault_is_the_strategys_own(
    install: Install, tmp_path: Path, change: dict[str, str], error: str
) -> None:
    install(**change)
    config = replace(MINE, contenders=MINE.contenders[::2], workloads=CONFIG.workloads[:1])
    result = run_study(config, work_dir=tmp_path, engine=ENGINE)
    assert [failure.cell.seed for failure in result.failures] == [0, 1]
    assert all(failure.error.startswith(error) for failure in result.failures), result.failures[0].error
    assert {cell.cell.contender.name for cell in result.cells} == {"random"}


@pytest.mark.parametrize("ending", [KeyboardInterrupt, MemoryError, WorkerToldToEndError])
def test_what_ends_the_process_is_no_fault_of_a_strategy(ending: type[BaseException]) -> None:
    with pytest.raises(ending), plugin_code(PluginGroup.STRATEGIES, "mine"):
        raise ending


def test_a_study_of_which_nothing_is_ranked(install: Install, tmp_path: Path) -> None:
    install(ask="if self.context.seed == 1: raise ValueError('one seed')")
    result = run_study(replace(MINE, contenders=MINE.contenders[2:]), work_dir=tmp_path, engine=ENGINE)
    summary = summarise(result)
    assert summary.contenders == ()
    assert len(result.cells) == 2


def test_what_failed_is_tried_again_on_resume(install: Install, tmp_path: Path) -> None:
    install(ask="raise ValueError('not yet')")
    first = run_study(MINE, work_dir=tmp_path, engine=ENGINE)
    assert len(first.failures) == 4
    install()
    again = run_study(MINE, work_dir=tmp_path, engine=ENGINE, is_resumed=True)
    assert again.is_complete
    assert not list((again.directory / "failures").iterdir())


def test_old_and_new_code_are_not_mixed(install: Install, undisturbed: list[object], tmp_path: Path) -> None:
    first = run_study(MINE, work_dir=tmp_path, engine=ENGINE)
    plan = json.loads((first.directory / "study.json").read_text())
    origin = plan["plugins"]["mine"][0]
    assert (origin["distribution"], origin["version"]) == ("mine-package", "0.1")
    assert plan["plugins"]["random"][0]["distribution"] == "phaze-opt"
    assert any("mine-package" in name for name in first.provenance)
    sorted((first.directory / "cells").glob("*.mine.*"))[0].unlink()
    install(ask="points = points[::-1]")
    with pytest.raises(InputError, match="--restart mine") as caught:
        run_study(MINE, work_dir=tmp_path, engine=ENGINE, is_resumed=True)
    assert caught.value.key == "mine"
    with pytest.raises(InputError, match="--restart mine"):
        run_study(MINE, work_dir=tmp_path, engine=ENGINE, restart=("random",))
    assert load_study(first.directory).cells == tuple(c for c in first.cells if c.cell.key != "default.bert.mine.0")
    again = run_study(MINE, work_dir=tmp_path, engine=ENGINE, restart=("mine",))
    assert again.is_complete
    assert [row for row in table(again) if ".mine." not in row[0]] == undisturbed
    assert table(again) == table(run_study(MINE, work_dir=tmp_path / "new", engine=ENGINE))
    assert table(again) != table(first)
    assert table(run_study(MINE, work_dir=tmp_path, engine=ENGINE, is_resumed=True)) == table(again)


def test_only_a_contender_of_the_study_is_restarted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rando") as caught:
        run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, restart=("rando",))
    assert caught.value.source == "--restart"
    assert not list(tmp_path.iterdir())


def test_the_code_of_other_peoples_estimators_is_part_of_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: set[tuple[PluginGroup, str]] = set()
    monkeypatch.setattr("phaze_opt.study.plan_file.plugin_origins", lambda each: wanted.update(each) or ())
    settings = tuple(Setting(name=name, estimator=name) for name in ("analytic", "calibrated", "mine"))
    code_origins(replace(CONFIG, settings=settings))
    assert [name for group, name in wanted if group is PluginGroup.ESTIMATORS] == ["mine"]


def test_no_search_is_restarted_on_what_another_estimator_priced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations outlive --restart, so a study under changed code of an estimator starts afresh."""
    info = tmp_path / "site" / "priced_package-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: priced-package\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[phaze_opt.estimators]\npriced = priced_module:Priced\n")
    module = tmp_path / "site" / "priced_module.py"
    code = "from phaze_opt.estimate.analytic import AnalyticEstimator as Own\nclass Priced(Own):\n    name = 'priced'\n"
    module.write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    config = replace(CONFIG, settings=(Setting(estimator="priced"),))
    run = {"work_dir": tmp_path / "work", "engine": ENGINE}
    first = run_study(config, **run)
    assert run_study(config, is_resumed=True, **run).is_complete
    module.write_text(f"{code}    # other code\n")
    before = {path: path.read_bytes() for path in first.directory.rglob("*.json*")}
    with pytest.raises(InputError, match="estimator priced of priced-package 0.1 has changed.*starts afresh"):
        run_study(config, restart=tuple(one.name for one in config.contenders), **run)
    assert before == {path: path.read_bytes() for path in first.directory.rglob("*.json*")}
    assert run_study(config, **run).is_complete
