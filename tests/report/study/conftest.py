"""A synthetic study: made-up searches of real points, so that pages have all parts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.search.result import Trial
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.study.config import (
    Budget,
    Cell,
    Condition,
    Contender,
    Generality,
    Judgement,
    Setting,
    StudyConfig,
    StudyWorkload,
)
from phaze_opt.study.result import CellResult, ChipTable, StudyResult
from phaze_opt.study.summary import summarise
from phaze_opt.testing.events import example_cluster, example_evaluation
from phaze_opt.testing.problems import example_point
from phaze_opt.units import GIBI, MEBI
from phaze_opt.workload.config import load_model

TARGETS = (0.05, 0.01, 0.001)


@pytest.fixture(scope="session")
def make_inputs() -> Callable[..., ReportInputs]:
    """Builds inputs of a report; see `build_inputs`."""
    return build_inputs


@pytest.fixture(scope="session")
def inputs() -> ReportInputs:
    """Two settings (one of several objectives), two models, three contenders, five seeds, prices."""
    return build_inputs()


def build_inputs(
    *,
    names: tuple[str, ...] = ("wham", "tpe", "random"),
    models: tuple[str, ...] = ("bert-large", "gpt2-xl"),
    goals: tuple[Goal, ...] = (Goal.THROUGHPUT_PER_TDP, Goal.PARETO),
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    budget: int = 24,
    num_missing: int = 0,
    is_feasible: bool = True,
    description: str = "Which strategy *wins*?",
) -> ReportInputs:
    """A study of made-up outcomes, the last ``num_missing`` of its searches unfinished."""
    config = StudyConfig(
        name="example",
        description=description,
        workloads=tuple(StudyWorkload(model, (model,)) for model in models),
        contenders=tuple(Contender(name, "random", {"option": index}) for index, name in enumerate(names)),
        settings=tuple(Setting(name=goal.value.replace("_", "-"), goal=goal) for goal in goals),
        seeds=seeds,
        budget=Budget(evaluations=budget),
        judgement=Judgement(targets=TARGETS, num_bootstrap=100),
        generality=Generality((CommonMean.ARITHMETIC,)),
        source="studies/example.toml",
    )
    conditions = tuple(
        Condition(setting, workload, scenario(workload.models[0]), space(), load_constants())
        for setting in config.settings
        for workload in config.workloads
    )
    planned = [
        Cell(condition, contender, seed)
        for condition in conditions
        for contender in config.contenders
        for seed in seeds
    ]
    kept = planned[: len(planned) - num_missing]
    cells = tuple(search(cell, index, budget, is_feasible=is_feasible) for index, cell in enumerate(kept))
    lean = DesignPoint(8, 2, 128, 128, 128, 128 * MEBI, 32 * GIBI, 8)
    references = {
        condition.key: {"phaze-tpu-v4": example_evaluation(lean), "expert on phaze-tpu-v4": example_evaluation(lean)}
        for condition in conditions
    }
    result = StudyResult(
        config=config,
        study_id="example-0123456789ab",
        directory=Path("example"),
        conditions=conditions,
        cells=cells,
        num_cells=len(planned),
        truths={},
        references=references,
        chip_tables=chip_tables(config) if len(models) > 1 else (),
        provenance={"package_version": "0.1.0", "python": "3.11"},
    )
    evaluations = {
        condition.key: {
            trial.point: example_evaluation(trial.point)
            for cell in cells
            if cell.cell.condition.key == condition.key
            for trial in cell.trials
        }
        for condition in conditions
    }
    return ReportInputs(result, summarise(result), evaluations)


def scenario(model: str) -> Scenario:
    return Scenario((load_model(model),), example_cluster(), 4096)


def space():
    return phaze_space(hbm_bytes=(32 * GIBI,), micro_batches=(1, 2))


def search(cell: Cell, index: int, budget: int, *, is_feasible: bool) -> CellResult:
    rng = np.random.default_rng(index)
    seen: set[DesignPoint] = set()
    trials = []
    for number in range(budget):
        point = example_point(rng)
        evaluation = example_evaluation(point)
        values = goal_values(cell.condition.goal, evaluation) if is_feasible else ()
        trials.append(Trial(number, point, values, evaluation.status, 0.25, point in seen, None))
        seen.add(point)
    return CellResult(cell, tuple(trials), 7 * index, index, 3, 5, 0.5, False, f"search-{index}")


def chip_tables(config: StudyConfig) -> tuple[ChipTable, ...]:
    """Per setting one chip per model and one in between; each model is best on its own."""
    models = tuple(workload.name for workload in config.workloads)
    rng = np.random.default_rng(7)
    chips = tuple(replace(example_point(rng), micro_batch=1) for _ in range(len(models) + 1))
    values = tuple(
        tuple(100.0 if chip == row else 0.0 if chip > len(models) else 95.0 - chip for chip in range(len(chips)))
        for row in range(len(models))
    )
    ones = tuple(tuple(1 for _ in chips) for _ in models)
    return tuple(
        ChipTable(setting.name, models, (1.0,) * len(models), chips, values, ones) for setting in config.settings
    )
