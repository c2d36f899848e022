"""Reading a study back: the only way from its directory to tables, figures and runs."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, evaluation_from_json
from phaze_opt.objective.goals import Goal
from phaze_opt.record.journal import read_value
from phaze_opt.record.plain_data import read_plain
from phaze_opt.study.config import Condition
from phaze_opt.study.directory import StudyDirectory, read_cell, read_failure
from phaze_opt.study.files.resolve import plan_cells
from phaze_opt.study.plan_file import StudyPlan, load_plan
from phaze_opt.study.result import ChipTable, StudyResult, Truth
from phaze_opt.study.stores.store import LocalStore
from phaze_opt.study.truth import contradiction, known_truth


def load_study(path: Path) -> StudyResult:
    """A study as it stands in its directory, finished or not.

    Raises:
        InputError: the directory holds no study, or a file of it is broken.
    """
    directory = StudyDirectory(path)
    plan = load_plan(directory)
    cells = plan_cells(plan.config, plan.conditions)
    found = {cell.key: read_cell(directory.cell(cell), cell) for cell in cells}
    failed = (read_failure(directory.failure(cell), cell) for cell in cells if found[cell.key] is None)
    return StudyResult(
        config=plan.config,
        study_id=directory.study_id,
        directory=path,
        conditions=plan.conditions,
        cells=tuple(result for result in found.values() if result is not None),
        num_cells=len(cells),
        truths=_load_truths(directory, plan),
        references=_load_references(directory, plan),
        chip_tables=_load_chip_tables(directory, plan),
        provenance=plan.provenance,
        failures=tuple(failure for failure in failed if failure is not None),
    )


def open_evaluations(result: StudyResult, condition: Condition) -> Callable[[DesignPoint], Evaluation]:
    """Access to the evaluations of a condition, by point.

    Returns:
        A function that reads one evaluation; it raises `InputError` for a point that the study did not evaluate.
    """
    directory = StudyDirectory(result.directory)
    digest = load_plan(directory).evaluations_digests[condition.key]
    store = LocalStore(directory.evaluations)

    def read(point: DesignPoint) -> Evaluation:
        known = store.known(digest, point)
        if known is None:
            message = f"{point} was not evaluated for {condition.key}, or its line was damaged; `study run --resume`"
            raise InputError(message, source=str(directory.evaluations))
        return known.evaluation

    return read


def find_fault(directory: StudyDirectory, evaluations_digest: str, goal: Goal, truth: Truth) -> str:
    """What the study's own evaluation of a truth's point says against it; empty if nothing, or if there is none."""
    known = LocalStore(directory.evaluations).known(evaluations_digest, truth.point)
    return "" if known is None else contradiction(truth, goal, known.evaluation)


def _load_truths(directory: StudyDirectory, plan: StudyPlan) -> dict[str, Truth]:
    """What is known of every condition; certificates made after the study was run count too."""
    goals = {condition.key: condition.goal for condition in plan.conditions}
    found = {
        key: known_truth(
            digest,
            cache_dir=directory.truths,
            certificates=directory.certificates,
            find_fault=partial(find_fault, directory, plan.evaluations_digests[key], goals[key]),
        )
        for key, digest in plan.problem_digests.items()
    }
    return {key: record.truth for key, record in found.items() if record is not None and record.truth is not None}


def _load_references(directory: StudyDirectory, plan: StudyPlan) -> dict[str, Mapping[str, Evaluation]]:
    found: dict[str, Mapping[str, Evaluation]] = {}
    for condition in plan.conditions:
        path = directory.references(condition.key)
        rows = read_value(path, kind="what a study writes of its reference machines")
        if rows is not None:
            try:
                found[condition.key] = {name: evaluation_from_json(data) for name, data in rows.items()}
            except (ValueError, AttributeError) as error:
                message = "is not what a study writes of its reference machines; remove it and --resume"
                raise InputError(message, source=str(path)) from error
    return found


def _load_chip_tables(directory: StudyDirectory, plan: StudyPlan) -> tuple[ChipTable, ...]:
    if plan.config.generality is None:
        return ()
    found = (read_plain(ChipTable, directory.chips(setting.name)) for setting in plan.config.settings)
    return tuple(table for table in found if table is not None)


def best_evaluation(result: StudyResult, condition: Condition) -> Evaluation | None:
    """The best feasible evaluation of all searches of a condition by the first objective; None if there is none.

    Of equals the one of least area, then of least TDP, then the first in the study's order.
    """
    mine = (cell for cell in result.cells if cell.cell.condition.key == condition.key)
    trials = [trial for cell in mine for trial in cell.trials if trial.values and not trial.is_repeat]
    if not trials:
        return None
    highest = max(trial.values[0] for trial in trials)
    points = dict.fromkeys(trial.point for trial in trials if trial.values[0] == highest)
    read = open_evaluations(result, condition)
    try:
        return min((read(point) for point in points), key=lambda found: (found.area_mm2, found.tdp_w))
    except InputError:  # evaluations of other machines are kept there
        return None
