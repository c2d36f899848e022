"""The command line: short names of the field, names in any case, all that is missing at once, examples, completion."""

import shlex

import pytest
from child_process import run_python
from command_runs import printed, refused, run_json
from kits.planted import plant_modules
from typer.main import get_command

import phaze_opt as po
from phaze_opt.cli.help import EXAMPLES
from phaze_opt.cli.main import COMMANDS, app
from phaze_opt.cli.options import completer
from phaze_opt.errors import InputError
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.jobs.search import SearchOptions
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario_options import ScenarioOptions, declarations
from phaze_opt.plugins import PluginGroup, load_plugin, plugin_name
from phaze_opt.record.suggestions import known_as, parse_word

JOB = "--model tiny --arch phaze-tpu-v4 --devices 8 --no-range --top 3"
LONG = "--global-batch 16 --tensor-parallel 1,2 --pipeline 1 --data 4,8 --context-parallel 1 --micro-batch 1,2"
SHORT = "--gbs 16 --tp 1,2 --pp 1 --dp 4,8 --cp 1 --mbs 1,2"


def test_short_names_are_the_long_ones(capsys):
    long, short = (
        run_json(f"evaluate {JOB} --{seq} 64 {more}".split(), capsys)
        for seq, more in (("sequence-length", LONG), ("seq", SHORT))
    )
    assert long["plans"] == short["plans"]
    assert len(long["plans"]) == 3


def test_short_names_are_keywords_of_python():
    given = {"model": "tiny", "arch": "TPU-v4", "devices": 8}
    long = po.plans(**given, global_batch=16, tensor_parallel=1, pipeline=1, micro_batch=2)
    short = po.plans(**given, gbs=16, tp=1, pp=1, mbs=2)
    assert list(long.rows()) == list(short.rows())
    with pytest.raises(InputError, match="tp"):
        po.plans(**given, gbs=16, tp=1, tensor_parallel=2)


def test_names_are_known_in_any_case():
    assert load_any_model("BERT-Large").name == "bert-large"
    assert load_network("Two-Level", num_devices=8).name == "two-level"
    assert load_architecture("TPU-V4").name == load_architecture("tpu-v4-published").name == "tpu-v4"
    assert load_architecture("H100") == load_architecture("h100")
    assert plugin_name(PluginGroup.STRATEGIES, "TPE") == "tpe"
    assert type(load_plugin(PluginGroup.STRATEGIES, "Random")) is type(load_plugin(PluginGroup.STRATEGIES, "random"))
    assert parse_word(Goal, "Pareto", source="--objective") is Goal.PARETO


def test_a_name_of_two_is_nobodys():
    assert known_as("AB", ["ab", "Ab"]) == "AB"
    assert known_as("ab", ["ab", "Ab"]) == "ab"
    assert known_as("c", ["ab"]) == "c"


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("search", "--model, --devices and --global-batch are missing"),
        ("search --models tiny --trials 3", "--devices and --global-batch are missing"),
        ("certify --devices 8", "--model and --global-batch are missing"),
        ("evaluate --model tiny --gbs 8", "--arch and --devices are missing"),
        ("study compare", "FIRST and SECOND are missing"),
        ("study run", "FILE is missing"),
    ],
)
def test_all_that_is_missing_is_named_with_an_example(line, missing, capsys):
    command = " ".join(word for word in line.split("--")[0].split())
    refused(line.split(), capsys, missing, f"phaze-opt {EXAMPLES[command]}")


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_is_a_command_line_of_its_command(path, capsys):
    """What it names is read up to the work: unknown options and missing ones would be refused."""
    arguments = shlex.split(EXAMPLES[path])
    group = get_command(app)
    context = group.make_context("phaze-opt", list(arguments))
    name, command, rest = group.resolve_command(context, arguments)
    inner = command.make_context(name, rest, parent=context)
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(inner, [*inner._protected_args, *inner.args])
        inner = command.make_context(name, rest, parent=inner)
    assert " ".join(path.split()) == " ".join(arguments[: len(path.split())])


def test_every_command_has_an_example():
    assert {path.split()[0] for path in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize("path", ["search", "study run", "study"])
def test_help_ends_with_an_example(path, capsys):
    text = " ".join(printed([*path.split(), "--help"], capsys).split())
    assert "Example: phaze-opt" in text
    assert text.endswith(EXAMPLES.get(path, EXAMPLES["study run"]))


@pytest.mark.parametrize(
    ("options", "name", "begun", "some"),
    [
        (ScenarioOptions, "network", "dgx-h", ["dgx-h100"]),
        (ScenarioOptions, "software", "Max", ["maxtext"]),
        (ScenarioOptions, "attention", "", ["fused", "unfused"]),
        (ScenarioOptions, "estimator", "cal", ["calibrated"]),
        (SearchOptions, "strategy", "tp", ["tpe"]),
        (SearchOptions, "objective", "par", ["pareto"]),
    ],
)
def test_values_are_completed(options, name, begun, some):
    found = completer(declarations(options)[name])(begun)
    assert set(some) <= set(found)
    assert all(each.casefold().startswith(begun.casefold()) for each in found)


def test_the_last_of_several_is_completed():
    from phaze_opt.jobs.options import ModelOptions

    assert completer(declarations(ModelOptions)["models"])("bert-large,gpt2-x") == ["bert-large,gpt2-xl"]


def test_the_package_runs_as_a_module_of_no_folder_that_one_stands_in(tmp_path):
    planted = plant_modules(tmp_path)
    done = run_python("-m", "phaze_opt", "--version", check=True, cwd=tmp_path)
    assert done.stdout == f"phaze-opt {po.__version__}\n"
    assert not planted.has_run
