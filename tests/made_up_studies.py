"""Synthetic studies: real conditions, made-up outcomes, so that what a judgement must be is known by hand."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.evaluation import EvaluationStatus
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import Scenario
from phaze_opt.search.result import Trial
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.study.config import Budget, Cell, Condition, Contender, Judgement, Setting, StudyConfig, StudyWorkload
from phaze_opt.study.result import CellResult, ChipTable, StudyResult, Truth, TruthKind
from phaze_opt.testing.events import example_cluster
from phaze_opt.units import GIBI
from phaze_opt.workload.config import load_model

Values = float | tuple[float, ...] | None
Outcomes = Mapping[str, Mapping[str, Sequence[Sequence[Values]]]]


def make_point(*numbers: int) -> DesignPoint:
    """A point that stands for these numbers."""
    first, second, third = (*numbers, 0, 0, 0)[:3]
    return DesignPoint(first + 1, second + 1, third + 1, 2, 2, 2, 2, 1)


def make_condition(
    workload: str, *, setting: str = "default", goal: Goal = Goal.THROUGHPUT, devices: int = 8, weight: float = 1.0
) -> Condition:
    scenario = Scenario((load_model("bert-large"),), example_cluster(devices), global_batch=64)
    space = phaze_space(hbm_bytes=(32 * GIBI,), micro_batches=(1, 2))
    made = Setting(name=setting, goal=goal, devices=devices)
    return Condition(made, StudyWorkload(workload, ("bert-large",), weight=weight), scenario, space, load_constants())


def make_cell(cell: Cell, values: Sequence[Values], *, points: Sequence[DesignPoint], probes: int = 0) -> CellResult:
    """A search of evaluations that take a second each."""
    seen: set[DesignPoint] = set()
    trials = []
    for number, (value, point) in enumerate(zip(values, points, strict=True)):
        row = () if value is None else value if isinstance(value, tuple) else (value,)
        status = EvaluationStatus.FEASIBLE if row else EvaluationStatus.OUT_OF_MEMORY
        is_repeat = point in seen
        trials.append(Trial(number, point, row, status, 0.0 if is_repeat else 1.0, is_repeat, None))
        seen.add(point)
    return CellResult(
        cell=cell,
        trials=tuple(trials),
        probes=probes,
        pruned=0,
        ilp_solves=0,
        placements=0,
        overhead_s=0.0,
        is_exhausted=False,
    )


def build_study(
    outcomes: Outcomes,
    *,
    truths: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    goal: Goal = Goal.THROUGHPUT,
    budget: Budget | None = None,
    deterministic: Collection[str] = (),
    probes: Mapping[str, int] | None = None,
    num_missing: int = 0,
    chip_tables: tuple[ChipTable, ...] = (),
    judgement: Judgement | None = None,
    directory: str = "study",
    devices: int = 8,
) -> StudyResult:
    """A study from the values of every evaluation: ``outcomes[workload][contender][seed]``.

    A deterministic contender evaluates the same points with every seed, others other points with each.
    """
    names = list(dict.fromkeys(name for contenders in outcomes.values() for name in contenders))
    conditions = {
        workload: make_condition(workload, goal=goal, devices=devices, weight=(weights or {}).get(workload, 1.0))
        for workload in outcomes
    }
    cells = []
    for row, (workload, contenders) in enumerate(outcomes.items()):
        for name, searches in contenders.items():
            for seed, values in enumerate(searches):
                stream = 0 if name in deterministic else seed + 1
                points = [make_point(row, 100 * names.index(name) + stream, index) for index in range(len(values))]
                cell = Cell(conditions[workload], Contender(name, "random"), seed)
                cells.append(make_cell(cell, values, points=points, probes=(probes or {}).get(name, 0)))
    num_seeds = max((len(s) for contenders in outcomes.values() for s in contenders.values()), default=1)
    config = StudyConfig(
        name="made-up",
        description="",
        workloads=tuple(condition.workload for condition in conditions.values()),
        contenders=tuple(Contender(name, "random") for name in names),
        settings=(make_condition("x", goal=goal, devices=devices).setting,),
        seeds=tuple(range(num_seeds)),
        budget=budget or Budget(evaluations=10),
        judgement=judgement or Judgement(num_bootstrap=1000),
    )
    return StudyResult(
        config=config,
        study_id=f"made-up-{directory}",
        directory=Path(directory),
        conditions=tuple(conditions.values()),
        cells=tuple(cells),
        num_cells=len(cells) + num_missing,
        truths={
            conditions[workload].key: Truth(TruthKind.ENUMERATED, value, make_point(0))
            for workload, value in (truths or {}).items()
        },
        chip_tables=chip_tables,
    )
