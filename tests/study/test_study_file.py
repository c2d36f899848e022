"""Study files: the plan they mean, and every fault as one sentence with file, line and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from phaze_opt.errors import InputError, PluginError
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.study.config import Budget, Contender, Generality, Judgement, Setting, StudyConfig, Workload
from phaze_opt.study.files.resolve import resolve_study
from phaze_opt.study.files.study_file import read_study

STUDIES = Path(__file__).parents[2] / "studies"

FULL = """\
[study]
name = "full"
description = "All of it."
objective = "throughput_per_tdp"
workloads = ["tiny"]
strategies = ["random"]
seeds = [3, 5]
budget = { evaluations = 9 }
batch = 2
starting_points = 2

[cluster]
devices = 16
network = "net.toml"
global_batch = 64

[training]
sequence_length = 64
optimizer = "sgd"
tensor_parallel = [1, 2]
sequence_parallel = false
schedule_gap = 0

[space]
hbm_gb = [32]
micro_batch = [1, 2]

[budgets]
max_tdp_w = 400

[constants]
"vector_cycles.softmax_forward" = 4

[[setting]]
name = "base"

[[setting]]
name = "flat"
network = "phaze"
objective = "throughput"
max_area_mm2 = 200
constants = { glb_limit = "none", "vector_cycles.softmax_forward" = 5.0 }

[[workload]]
name = "both"
models = ["tiny", "mine/config.json"]
common = "worst"
weight = 2

[[workload]]
name = "alone"
models = ["mine/config.json"]

[[strategy]]
name = "quick-tpe"
strategy = "tpe"
pruner = "critical-path"
[strategy.options]
startup_trials = 3

[statistics]
confidence = 0.9
bootstrap = 100
targets = [0.1]
truth = "enumerate"

[generality]
means = ["geometric"]
"""
NETWORK = """\
name = "net"
[[dimensions]]
topology = "switch"
size = 8
bandwidth_gb_per_s = 100
latency_us = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from phaze_opt.workload.zoo import read_zoo_text

    (tmp_path / "net.toml").write_text(NETWORK)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(read_zoo_text("tiny"))
    return tmp_path


def _write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_a_file_means_its_plan(folder: Path) -> None:
    path = _write(folder, FULL)
    base = Setting(
        name="base",
        goal=Goal.THROUGHPUT_PER_TDP,
        devices=16,
        network=str(folder / "net.toml"),
        global_batch=64,
        sequence_length=64,
        optimizer="sgd",
        tensor_parallel=(1, 2),
        is_sequence_parallel=False,
        schedule_gap=0.0,
        max_tdp_w=400.0,
        micro_batches=(1, 2),
        hbm_gb=(32,),
        constants={"vector_cycles.softmax_forward": 4.0},
    )
    flat = {"glb_limit": "none", "vector_cycles.softmax_forward": 5.0}
    other = replace(base, name="flat", network="phaze", goal=Goal.THROUGHPUT, max_area_mm2=200.0, constants=flat)
    config = read_study(path)
    assert config == StudyConfig(
        name="full",
        description="All of it.",
        workloads=(
            Workload("tiny", ("tiny",)),
            Workload("both", ("tiny", str(folder / "mine" / "config.json")), CommonMean.WORST, 2.0),
            Workload("alone", (str(folder / "mine" / "config.json"),)),
        ),
        contenders=(
            Contender("random", "random"),
            Contender("quick-tpe", "tpe", {"startup_trials": 3}, "critical-path"),
        ),
        settings=(base, other),
        seeds=(3, 5),
        budget=Budget(evaluations=9),
        batch=2,
        num_starts=2,
        judgement=Judgement(0.9, 100, (0.1,), "enumerate"),
        generality=Generality((CommonMean.GEOMETRIC,)),
        source=str(path),
    )


def test_conditions_are_what_their_settings_say(folder: Path) -> None:
    config = read_study(_write(folder, FULL))
    conditions = {condition.key: condition for condition in resolve_study(config)}
    assert list(conditions) == ["base.tiny", "base.both", "base.alone", "flat.tiny", "flat.both", "flat.alone"]
    base, flat = conditions["base.tiny"], conditions["flat.tiny"]
    assert base.constants.value("vector_cycles.softmax_forward") == 4.0
    assert flat.constants.value("vector_cycles.softmax_forward") == 5.0
    assert flat.constants.option("glb_limit") == "none"
    assert base.scenario.cluster.network.name == "net"
    assert flat.scenario.cluster.network.name == "phaze"
    assert base.scenario.schedule_nodes == 0
    assert flat.scenario.max_area_mm2 == 200.0
    assert flat.space.size < base.space.size
    assert all(model.name for model in conditions["base.both"].scenario.models)
    digests = {condition.evaluations_digest for condition in conditions.values()}
    assert len(digests) == 6


def test_settings_that_differ_in_the_goal_share_evaluations(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random"]\n[cluster]\ndevices = 4\n'
    text += '[[setting]]\nname = "x"\n[[setting]]\nname = "y"\nobjective = "pareto"\n'
    first, second = resolve_study(read_study(_write(folder, text)))
    assert first.evaluations_digest == second.evaluations_digest
    assert first.problem_digest != second.problem_digest


def test_seconds_are_a_budget_too(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random"]\nbudget = { seconds = 2 }\n'
    assert read_study(_write(folder, text)).budget.seconds == 2.0


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_study_of_the_package_loads(path: Path) -> None:
    config = read_study(path)
    assert config.description
    assert config.name == path.stem


@pytest.mark.parametrize(
    ("old", "new", "key", "match"),
    [
        ("batch = 2", "bacth = 2", "study.bacth", "did you mean batch"),
        ("[study]", "[studdy]", "studdy", "did you mean study"),
        ("devices = 16", 'devices = "many"', "cluster.devices", "'many' must be an integer"),
        ("devices = 16", "devices = 0", "cluster.devices", "at least 1"),
        ("seeds = [3, 5]", "seeds = 0", "study.seeds", "number of seeds from 1"),
        ("seeds = [3, 5]", "seeds = []", "study.seeds", "empty"),
        ("seeds = [3, 5]", "seeds = [3, 3]", "study.seeds", "seed twice"),
        ("seeds = [3, 5]", "seeds = [3, -5]", "study.seeds[1]", "at least 0"),
        ('["random"]', '["randon"]', "study.strategies[0]", "did you mean random"),
        ('["random"]', '[\n  "random",\n  "randon",\n]', "study.strategies[1]", "did you mean random"),
        ('["random"]', '["random", "random"]', "study.strategies[1]", "there twice"),
        ('"critical-path"', '"critical-paht"', "strategy[0].pruner", "did you mean critical-path"),
        ("startup_trials = 3", "startup_trails = 3", "strategy[0].options.startup_trails", "did you mean"),
        ("startup_trials = 3", 'startup_trials = "3"', "strategy[0].options.startup_trials", "of type int"),
        ("startup_trials = 3", "startup_trials = [3]", "strategy[0].options.startup_trials", "must be text"),
        ('["tiny"]', '["tinny"]', "study.workloads[0]", "did you mean tiny"),
        ('"mine/config.json"]', '"mine/none.json"]', "workload[0].models", "no model and no file"),
        ('"mine/config.json"]', '"net.toml"]', "workload[0].models", "net.toml"),
        ("weight = 2", "weight = 0", "workload[0].weight", "greater than 0"),
        ('common = "worst"', 'common = "wrost"', "workload[0].common", "did you mean worst"),
        ('models = ["tiny", "mine/config.json"]\n', "", "workload[0].models", "is missing"),
        ('"net.toml"', '"nett.toml"', "cluster.network", "no such file"),
        ('network = "phaze"', 'network = "fase"', "setting[1].network", "no network is named 'fase'"),
        ('name = "flat"\n', 'name = "base"  # again\n', "setting[1].name", "there twice"),
        ('name = "flat"', 'name = "a.b"', "setting[1].name", "letters, digits and dashes"),
        ('objective = "throughput"\n', 'objective = "thruput"\n', "setting[1].objective", "did you mean throughput"),
        ("max_area_mm2 = 200", "max_area_mm2 = 0.01", "setting[1].max_area_mm2", "no architecture"),
        (
            '"vector_cycles.softmax_forward" = 4',
            '"vector_cycles.sotfmax_forward" = 4',
            "constants.vector_cycles.sotfmax_forward",
            "did you mean vector_cycles.softmax_forward",
        ),
        ('glb_limit = "none"', 'glb_limit = "nonee"', "setting[1].constants.glb_limit", "cannot be 'nonee'"),
        ("hbm_gb = [32]", "hbm_gb = []", "space.hbm_gb", "at least one value"),
        ("hbm_gb = [32]", 'file = "none.toml"', "space.file", "no such file"),
        ("tensor_parallel = [1, 2]", "tensor_parallel = [7]", "training.tensor_parallel", "none of"),
        ("sequence_length = 64", "sequence_length = 100000", "training.sequence_length", "positions"),
        ('optimizer = "sgd"', 'optimizer = "sgdd"', "training.optimizer", "did you mean sgd"),
        ("max_tdp_w = 400", "max_tdp_w = -1", "budgets.max_tdp_w", "greater than 0"),
        ("evaluations = 9", "evaluations = 0", "study.budget.evaluations", "at least 1"),
        ("evaluations = 9", "evaluations = 9, seconds = 1", "study.budget", "one of them"),
        ("starting_points = 2", "starting_points = 10", "study.starting_points", "0 to the 9 trials"),
        ("confidence = 0.9", "confidence = 1.5", "statistics.confidence", "less than 1"),
        ('truth = "enumerate"', 'truth = "enumrate"', "statistics.truth", "did you mean enumerate"),
        ('["geometric"]', '["geometrik"]', "generality.means[0]", "did you mean geometric"),
        ("[cluster]", "[cluster", None, "not valid TOML"),
        ("devices = 16", "devices = 999999", "cluster.devices", "from 1 to 262144"),
        ("hbm_gb = [32]", "hbm_gb = [32, 32]", "space.hbm_gb", "names 32 twice"),
        ("micro_batch = [1, 2]", "micro_batch = [2, 1, 2]", "space.micro_batch", "names 2 twice"),
        ("tensor_parallel = [1, 2]", "tensor_parallel = [2, 2]", "training.tensor_parallel", "names 2 twice"),
        ("targets = [0.1]", "targets = [0.1, 0.1]", "statistics.targets", "twice"),
        ('["geometric"]', '["geometric", "geometric"]', "generality.means", "twice"),
        ("bootstrap = 100", "bootstrap = 1", "statistics.bootstrap", "at least 100"),
        ('pruner = "critical-path"', "pruner_options = { a = 1 }", "strategy[0].pruner_options", "without a pruner"),
        ('name = "flat"\n', 'name = "BASE"\n', "setting[1].name", "differs from 'base' in case only"),
        ('name = "alone"\n', 'name = "TINY"\n', "workload[1].name", "differs from 'tiny' in case only"),
    ],
)
def test_a_fault_is_one_sentence_with_its_place(  # noqa: PLR0917
    folder: Path, old: str, new: str, key: str | None, match: str
) -> None:
    assert old in FULL
    faulty = FULL.replace(old, new, 1)
    path = _write(folder, faulty)
    # Of a change over several lines the faulty one is the last but one; of a line left out it is the table's header.
    place = "[[workload]]" if not new else new.strip().splitlines()[-2 if new.count("\n") > 1 else -1]
    line = faulty[: faulty.index(place)].count("\n") + 1
    with pytest.raises((InputError, PluginError)) as caught:
        read_study(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: " + (f"key '{key}': " if key else ""))
    assert match in message
    assert "\n" not in message
    assert not (folder / "phaze-opt-studies").exists()


@pytest.mark.parametrize(
    ("question", "match"),
    [
        (
            '[statistics]\ntruth = "enumerate"\n',
            r":7: key 'statistics\.truth': 'enumerate' finds the best value of one",
        ),
        ("[generality]\n", r":6: key 'generality': asks for the price in one objective"),
    ],
)
def test_a_question_that_no_setting_can_answer_is_a_fault(folder: Path, question: str, match: str) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random"]\nobjective = "pareto"\n'
    with pytest.raises(InputError, match=match):
        read_study(_write(folder, text + question))
    mixed = '[[setting]]\nname = "x"\n[[setting]]\nname = "y"\nobjective = "throughput"\n[cluster]\ndevices = 4\n'
    if "truth" in question:
        assert read_study(_write(folder, text + question + mixed)).judgement.truth == "enumerate"


def test_the_price_of_generality_needs_two_models(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random"]\n[generality]\n'
    with pytest.raises(InputError, match=r":5: key 'generality': .*the study has 1 workload of one model; give at"):
        read_study(_write(folder, text))


def test_a_goal_that_a_strategy_cannot_do_is_a_fault(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random", "cma-es"]\nobjective = "pareto"\n'
    with pytest.raises(InputError, match=r"study\.toml:4: key 'study\.strategies\[1\]': .*several"):
        read_study(_write(folder, text))
