"""A synthetic study: made-up searches of real points with a judgement computed here, so that pages have all parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.search.trial import Trial
from phaze_opt.space.search_space import phaze_space
from phaze_opt.study.config import Budget, Contender, Generality, Judgement, Setting, StudyConfig, Workload
from phaze_opt.study.plan import Cell, Condition
from phaze_opt.study.result import CellResult, ChipTable, StudyResult, Truth, TruthKind
from phaze_opt.study.scores import (
    CellScore,
    CommonDesign,
    ContenderScore,
    PairTest,
    PriceOfGenerality,
    Ranking,
    StudySummary,
)
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
        workloads=tuple(Workload(model, (model,)) for model in models),
        contenders=tuple(Contender(name, "random", {"option": index}) for index, name in enumerate(names)),
        settings=tuple(Setting(name=goal.value.replace("_", "-"), goal=goal) for goal in goals),
        seeds=seeds,
        budget=Budget(evaluations=budget),
        judgement=Judgement(targets=TARGETS),
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
        condition.key: {"tpu-v4": example_evaluation(lean), "expert on tpu-v4": example_evaluation(lean)}
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
    return ReportInputs(result, judge(result), evaluations)


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


def judge(result: StudyResult) -> StudySummary:
    """A plain judgement: enough for every part of a report to have figures, by no means the package's own."""
    tops = {
        condition.key: max(
            (t.values[0], t.point) for c in result.cells if c.cell.condition.key == condition.key for t in c.trials
            if t.values
        )
        for condition in result.conditions
        if any(t.values for c in result.cells if c.cell.condition.key == condition.key for t in c.trials)
    }  # fmt: skip
    cells = tuple(score_cell(cell, tops) for cell in result.cells)
    names = [c.name for c in result.config.contenders if any(score.contender == c.name for score in cells)]
    overall = [replace(sum_up(name, "", cells), mean_rank=1.25 + 0.75 * place) for place, name in enumerate(names)]
    by_condition = [
        sum_up(name, condition.key, [c for c in cells if c.key.startswith(f"{condition.key}.")])
        for condition in result.conditions
        for name in names
        if any(c.contender == name and c.key.startswith(f"{condition.key}.") for c in cells)
    ]
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    tests = [
        PairTest(key, a, b, "Wilcoxon" if not key else "Mann-Whitney", 0.0004 if not key else 0.2, 0.75, not key)
        for key in ("", *(condition.key for condition in result.conditions))
        for a, b in pairs
    ]
    ranking = Ranking(
        tuple(score.contender for score in overall),
        tuple(score.mean_rank for score in overall),
        0.01,
        ((0, 1),) if len(overall) > 2 else (),
        "" if len(result.config.seeds) > 1 else "One seed is too few for a test.",
    )
    prices = tuple(price(table) for table in result.chip_tables)
    truths = {
        c.key: Truth(TruthKind.BEST_KNOWN if place else TruthKind.ENUMERATED, *tops[c.key])
        for place, c in enumerate(result.conditions)
        if c.key in tops and c.goal is not Goal.PARETO
    }
    findings = ("wham wins.", "Nothing else can be claimed.") if cells else ()
    return StudySummary(
        truths, cells, tuple(overall), tuple(by_condition), ranking, tuple(tests), prices, findings
    )  # fmt: skip


def score_cell(cell: CellResult, tops: dict[str, tuple[float, DesignPoint]]) -> CellScore:
    condition = cell.cell.condition
    top = tops.get(condition.key, (1.0,))[0]
    best = list(accumulate((trial.values[0] if trial.values else 0.0 for trial in cell.trials), max))
    curve = np.array([1.0 - value / top for value in best])
    reached = {target: int(np.argmax(curve <= target)) + 1 for target in TARGETS if curve[-1] <= target}
    return CellScore(
        key=cell.cell.key,
        setting=condition.setting.name,
        workload=condition.workload.name,
        contender=cell.cell.contender.name,
        seed=cell.cell.seed,
        curve=curve,
        regret=float(curve[-1]),
        area_under_curve=float(curve.mean()),
        evaluations_to=reached,
        seconds_to={target: 0.25 * count for target, count in reached.items()},
        hypervolume=0.5 if condition.goal is Goal.PARETO else 0.0,
        evaluations=cell.evaluations,
        distinct_evaluations=cell.distinct_evaluations,
        probes=cell.probes,
        pruned=cell.pruned,
        ilp_solves=cell.ilp_solves,
        placements=cell.placements,
        charged_s=cell.charged_s,
        overhead_s=cell.overhead_s,
    )


def sum_up(name: str, condition: str, cells) -> ContenderScore:
    own = [cell for cell in cells if cell.contender == name]
    regrets = [cell.regret for cell in own]
    share = {target: sum(target in cell.evaluations_to for cell in own) / len(own) for target in TARGETS}
    at_half = [target for target in TARGETS if share[target] >= 0.5]
    return ContenderScore(
        contender=name,
        condition=condition,
        num_cells=len(own),
        median_regret=float(np.median(regrets)),
        mean_regret=float(np.mean(regrets)),
        low_regret=float(np.min(regrets)),
        high_regret=float(np.max(regrets)),
        share_reached=share,
        median_evaluations_to={target: 12.5 for target in at_half},
        median_seconds_to={target: 3.25 for target in at_half},
        mean_area_under_curve=float(np.mean([cell.area_under_curve for cell in own])),
        mean_hypervolume=0.5,
        mean_distinct_evaluations=float(np.mean([cell.distinct_evaluations for cell in own])),
        mean_probes=float(np.mean([cell.probes for cell in own])),
        mean_pruned=float(np.mean([cell.pruned for cell in own])),
        mean_charged_s=float(np.mean([cell.charged_s for cell in own])),
        mean_rank=1.0,
    )


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


def price(table: ChipTable) -> PriceOfGenerality:
    own = tuple(range(len(table.models)))
    matrix = tuple(tuple(row[chip] / row[own[place]] for chip in own) for place, row in enumerate(table.values))
    one = CommonDesign("arithmetic", (0,), (0,) * len(own), tuple(row[0] for row in matrix), 0.031, 0.062, 97.0)
    sets = tuple(
        one
        if count == 1
        else CommonDesign(
            "arithmetic", own[:count], tuple(min(p, count - 1) for p in own), (1.0,) * len(own), 0.0, 0.0, 1.0
        )
        for count in range(1, len(own) + 1)
    )
    return PriceOfGenerality(table.setting, table.models, own, matrix, (one,), sets)
