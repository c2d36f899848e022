"""Study files: the plan they mean, and every fault as one sentence with file, line and key."""

from dataclasses import replace
from pathlib import Path

import pytest
from kits.planted import plant
from sample_files import fill_study_folder, good_text

from phaze_opt.errors import InputError, PluginError
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.study.config import (
    Budget,
    Contender,
    Generality,
    Judgement,
    PublishedClaim,
    Setting,
    StudyConfig,
    StudyWorkload,
    TruthForm,
)
from phaze_opt.study.directory import study_id
from phaze_opt.study.files.resolve import resolve_study
from phaze_opt.study.files.study_file import read_study

STUDIES = Path(__file__).parents[2] / "studies"

FULL = good_text("study")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill_study_folder(tmp_path)


def _write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


OWN = """
from phaze_opt.search.samplers.optuna_sampler import RandomStrategy


class Mine(RandomStrategy):
    pass
"""


def test_a_study_runs_code_that_its_user_names_too(folder: Path) -> None:
    planted = plant(folder)
    text = FULL.replace('"random"', '"random", "planted.py:Mine"')
    path = _write(folder, text)
    with pytest.raises(PluginError, match=r"study\.toml:\d+: key 'study\.strategies\[1\]': ") as refusal:
        read_study(path)
    assert f"add --plugin-file {planted.file}" in str(refusal.value)
    assert not planted.has_run
    planted.file.write_text(OWN)
    elsewhere = folder / "elsewhere" / "planted.py"
    elsewhere.parent.mkdir()
    planted.file.rename(elsewhere)
    contender = read_study(path, [str(elsewhere)]).contenders[1]
    assert (contender.name, contender.strategy, contender.strategy.file) == ("Mine", "planted.py:Mine", elsewhere)
    with pytest.raises(InputError, match="other.py' is named by no strategy"):
        read_study(path, [str(elsewhere), "other.py"])
    with pytest.raises(PluginError, match="imports a module, and no file runs code"):
        read_study(_write(folder, FULL.replace('"random"', '"random", "optuna:planted.Mine"')))


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
        silicon="phaze",
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
            StudyWorkload("tiny", ("tiny",)),
            StudyWorkload("both", ("tiny", str(folder / "mine" / "config.json")), CommonMean.WORST, 2.0),
            StudyWorkload("alone", (str(folder / "mine" / "config.json"),)),
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
        judgement=Judgement(0.9, 100, (0.1,), TruthForm.ENUMERATE),
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
        certified = question.replace("enumerate", "certify")
        for asked in (certified, certified + mixed):
            assert read_study(_write(folder, text + asked)).judgement.truth is TruthForm.CERTIFY


def test_optima_of_fused_settings_may_be_certified(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random"]\n[cluster]\ndevices = 4\n'
    text += '[[setting]]\nname = "x"\nlayer_fusion = "exact"\n[statistics]\ntruth = "certify"\n'
    config = read_study(_write(folder, text))
    assert config.judgement.truth is TruthForm.CERTIFY
    assert [each.scenario.layer_fusion for each in resolve_study(config)] == ["exact"]


CLAIM = '[[claim]]\nwords = "x is faster"\nclaimed = 1.5\nsetting = "x"\nover = "y"\nwhy = "by luck"\n'


def test_claims_are_of_settings_of_one_objective(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random"]\n[cluster]\ndevices = 4\n'
    text += '[[setting]]\nname = "x"\n[[setting]]\nname = "y"\n'
    read = read_study(_write(folder, text + CLAIM))
    assert read.claims == (PublishedClaim("x is faster", 1.5, "x", "y", "by luck"),)
    assert study_id(read, resolve_study(read)) == study_id(replace(read, claims=()), resolve_study(read))
    with pytest.raises(InputError, match=r":15: key 'claim\[0\]\.over': no setting is named 'z'; give one of x, y"):
        read_study(_write(folder, text + CLAIM.replace('"y"', '"z"')))
    with pytest.raises(InputError, match=r"the setting 'y' has several objectives; a claim is of one"):
        read_study(_write(folder, text + 'objective = "pareto"\n' + CLAIM))


def test_the_price_of_generality_needs_two_models(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random"]\n[generality]\n'
    with pytest.raises(InputError, match=r":5: key 'generality': .*the study has 1 workload of one model; give at"):
        read_study(_write(folder, text))


def test_a_goal_that_a_strategy_cannot_do_is_a_fault(folder: Path) -> None:
    text = '[study]\nname = "a"\nworkloads = ["tiny"]\nstrategies = ["random", "cma-es"]\nobjective = "pareto"\n'
    with pytest.raises(InputError, match=r"study\.toml:4: key 'study\.strategies\[1\]': .*several"):
        read_study(_write(folder, text))


@pytest.mark.parametrize(
    ("lines", "key", "match"),
    [
        ('stage_blocks = "4x2"', "stage_blocks", "have 8, not the"),
        ('stage_blocks = "2,0"\nstage_recompute = "full"', "stage_recompute", "not the 2 of 'stage_blocks'"),
        ('stage_recompute = "full"', "stage_recompute", "give 'stage_blocks' too"),
        ("state_shards = [4]\nzero = [0]", "state_shards", "give 'zero' 1, 2 or 3 too"),
        ("state_shards = [3]\nzero = [1]", "state_shards", "must be 0 .* or divide data degree"),
        ('software = "maxtxt"', "software", "did you mean maxtext"),
        ('pipeline = [2]\nplans = "phaze"', "pipeline", "which 'plans' phaze rules out"),
    ],
)
def test_faults_of_plans_name_line_and_key_and_no_flag(folder: Path, lines: str, key: str, match: str) -> None:
    head = '[study]\nname = "one"\nstrategies = ["random"]\nworkloads = ["tiny"]\nbudget = { evaluations = 2 }\n'
    path = _write(folder, f'{head}[[setting]]\nname = "a"\ndevices = 16\nglobal_batch = 64\n{lines}\n')
    with pytest.raises(InputError, match=match) as caught:
        read_study(path)
    line = next(number for number, text in enumerate(path.read_text().splitlines(), start=1) if text.startswith(key))
    assert (caught.value.key, caught.value.line) == (f"setting[0].{key}", line)
    assert "--" not in str(caught.value)
