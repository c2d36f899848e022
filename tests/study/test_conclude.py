"""What a study adds to its searches: true optima, references, and the table of the generality question."""

from dataclasses import replace
from pathlib import Path

import pytest
from toy_study import CONFIG, ENGINE, build_toy

from phaze_opt.errors import InputError
from phaze_opt.objective.goals import Goal
from phaze_opt.study.config import Budget, Contender, Generality, Judgement, Setting, TruthForm
from phaze_opt.study.load import load_study
from phaze_opt.study.result import TruthKind
from phaze_opt.study.run import run_study

SPACE = """\
area_budget_mm2 = 279
min_area_fraction = 0.3
[axes]
num_tc = [1, 4, 16, 64]
num_vc = [4, 64, 256]
tc_width = [16, 32, 128]
tc_depth = [16, 32, 128]
glb_mb = [8, 32]
hbm_gb = [32]
micro_batch = [1, 4]
"""


def test_true_optima_and_the_chip_table_are_those_of_brute_force(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(SPACE)
    space = str(tmp_path / "space.toml")
    settings = (
        Setting(name="fast", published_form="phaze", space=space, hbm_gb=(), micro_batches=()),
        Setting(
            name="frugal",
            published_form="phaze",
            goal=Goal.THROUGHPUT_PER_TDP,
            space=space,
            hbm_gb=(),
            micro_batches=(),
        ),
        Setting(name="front", published_form="phaze", goal=Goal.PARETO, space=space, hbm_gb=(), micro_batches=()),
    )
    config = replace(
        CONFIG,
        settings=settings,
        contenders=(Contender("random", "random"),),
        budget=Budget(evaluations=20),
        judgement=Judgement(truth=TruthForm.ENUMERATE, num_bootstrap=100),
        generality=Generality(),
    )
    result = run_study(config, work_dir=tmp_path, engine=ENGINE)
    values = {}
    for condition in result.conditions:
        objective = build_toy(condition)
        found = [objective.evaluate(point) for point in condition.space.points()]
        feasible = [one for one in found if one.is_feasible]
        if condition.goal is Goal.THROUGHPUT:
            values[condition.key] = max(one.throughput_samples_per_s for one in feasible)
        elif condition.goal is Goal.THROUGHPUT_PER_TDP:
            values[condition.key] = max(one.throughput_per_tdp for one in feasible)
    assert {key: truth.value for key, truth in result.truths.items()} == values
    assert {truth.kind for truth in result.truths.values()} == {TruthKind.ENUMERATED}
    assert [table.setting for table in result.chip_tables] == ["fast", "frugal"]
    table = result.chip_tables[0]
    assert table.models == ("tiny", "bert")
    for row, condition in zip(table.values, result.conditions[:2], strict=True):
        objective = build_toy(condition)
        for chip, value in zip(table.chips, row, strict=True):
            assert value == max(
                objective.evaluate(replace(chip, micro_batch=size)).throughput_samples_per_s for size in (1, 4)
            )
    # Optima are kept for other studies of the working directory: nothing is enumerated again.
    assert len(list((tmp_path / "phaze-opt-studies" / "truths").iterdir())) == 4
    other = run_study(replace(config, name="other", generality=None), work_dir=tmp_path, engine=ENGINE)
    assert other.truths == result.truths
    assert other.chip_tables == ()


def test_references_come_with_every_condition(tmp_path: Path) -> None:
    asked = []

    def find(condition: object) -> object:
        asked.append(condition.key)
        point = condition.space.point(0)
        return {"the first point": build_toy(condition).evaluate(point)}

    settings = (Setting(), Setting(name="frugal", goal=Goal.THROUGHPUT_PER_TDP))
    config = replace(CONFIG, settings=settings, contenders=CONFIG.contenders[:1], budget=Budget(evaluations=4))
    result = run_study(config, work_dir=tmp_path, engine=replace(ENGINE, find_references=find))
    assert asked == ["default.tiny", "default.bert"]
    assert set(result.references) == {condition.key for condition in result.conditions}
    for condition in result.conditions:
        expected = build_toy(condition).evaluate(condition.space.point(0))
        assert result.references[condition.key] == {"the first point": expected}
    run_study(config, work_dir=tmp_path, engine=replace(ENGINE, find_references=find), is_resumed=True)
    assert len(asked) == 2
    path = result.directory / "references" / "default.tiny.json"
    path.write_text(path.read_text().replace('_samples_per_s": ', '_samples_per_s": 1', 1))
    with pytest.raises(InputError, match=path.name):
        load_study(result.directory)
