"""Nothing that is read runs code: a plug-in's file runs as its user names it, and as nobody else does."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from pathlib import Path

import pytest
from kits.planted import Planted, plant
from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from toy_runs import toy_context

import phaze_opt
from phaze_opt.errors import InputError, PluginError
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.plugins import GivenPlugin, PluginGroup, given_plugin, load_plugin, named_again
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.search.run import load_strategy

ROOT = Path(phaze_opt.__file__).parent
NAMERS = {
    "given_plugin": {"jobs/search.py", "jobs/options.py", "search/run.py"},
    "named_again": {"study/files/study_file.py"},
    "GivenPlugin": {"plugins.py"},
}
"""Where text becomes a name that its user gives: what is read must not pass there."""
RUNNERS = {
    "exec": set(),
    "eval": set(),
    "__import__": set(),
    "exec_module": {"plugins.py"},
    "run_module": set(),
    "run_path": set(),
    "import_module": {
        "__init__.py",  # its own rooms
        "callable_room.py",
        "cli/main.py",  # its own commands
        "extract/torch_module.py",  # the factory that --torch names
        "extract/versions.py",  # packages that extract is for
    },
    "resolve_name": {"cli/options.py", "objective/scenario_options.py", "search/samplers/optuna_sampler.py"},
    "loads": {"certify/tasks.py", "record/workers.py"},  # pickles between processes of one command
}
"""Calls that run code by name, and where they stand."""
STARTERS = {
    "Popen": {"track/deliver.py", "track/server.py"},
    "get_context": {"record/workers.py"},
    "LocalCluster": {"search/evaluators.py"},
    **dict.fromkeys(("popen", "check_output", "check_call", "execv", "fork", "ProcessPoolExecutor"), set()),
}
"""Calls that start processes: each with the environment of `record.worker_process`."""


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return plant(tmp_path)


@pytest.mark.parametrize("group", list(PluginGroup))
def test_text_runs_no_file(group: PluginGroup, planted: Planted) -> None:
    with pytest.raises(PluginError, match=f"{group.kind} .* is code in a file, and no file runs code by being read"):
        load_plugin(group, planted.name)
    assert not planted.has_run
    assert load_plugin(group, given_plugin(group, planted.name)).name == "mine"  # type: ignore[attr-defined]
    assert planted.has_run


def test_text_imports_no_module(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(planted.file.parent)
    with pytest.raises(PluginError, match=r"imports a module, and no file runs code .* add --plugin-file"):
        load_strategy("optuna:planted.Mine").start(toy_context())
    assert not planted.has_run


def test_no_reader_makes_a_name_that_runs_a_file(planted: Planted) -> None:
    """Whatever a dataclass says: what pydantic makes of a file is text."""
    with pytest.raises(PydanticSchemaGenerationError):
        TypeAdapter(make_dataclass("Forgetful", [("strategy", GivenPlugin)]))

    @dataclass(frozen=True)
    class Record:
        strategy: str

    given = Record(given_plugin(PluginGroup.STRATEGIES, planted.name))
    for value in (to_plain(Record, given), {"strategy": given.strategy}):
        assert type(from_plain(Record, value).strategy) is str


def test_code_is_named_run_and_started_in_few_places() -> None:
    expected = NAMERS | RUNNERS | STARTERS
    found: dict[str, set[str]] = {name: set() for name in expected}
    wanted = re.compile(rf"\b({'|'.join(found)})\(")
    for path in ROOT.rglob("*.py"):
        home = path.relative_to(ROOT).as_posix()
        text = path.read_text()
        if wanted.search(text) and not home.startswith("testing/"):
            for name in found.keys() & set(called(text)):
                found[name].add(home)
    assert found == expected


def called(text: str) -> Iterator[str]:
    """Names of the functions that a module calls; ``json.loads`` is none that runs code."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in ("json", "tomllib"):
            yield node.func.attr


@pytest.mark.parametrize("key", ["estimator", "layer_fusion"])
def test_a_scenario_names_code_of_packages_alone(key: str, planted: Planted) -> None:
    scenario = make_scenario("tiny", devices=4, global_batch=8)
    record = to_plain(type(scenario), scenario)
    with pytest.raises(InputError, match="is code in a file") as fault:
        from_plain(type(scenario), record | {key: planted.name})
    assert fault.value.key == key
    assert not planted.has_run


def test_a_file_is_named_again_by_its_name(tmp_path: Path) -> None:
    here, there = tmp_path / "mine.py", tmp_path / "there" / "mine.py"
    assert type(named_again("studies/mine.py:Mine", [tmp_path / "other.py"])) is str
    found = named_again("studies/mine.py:Mine", [here, tmp_path / "other.py"])
    assert isinstance(found, GivenPlugin)
    assert (found, found.file) == ("mine.py:Mine", here)
    with pytest.raises(InputError, match="have one name"):
        named_again("mine.py:Mine", [here, there])
