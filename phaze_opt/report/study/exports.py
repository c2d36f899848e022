"""A judged study as CSV: every figure in full, one concept per file, units in names of columns; and as LaTeX."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.record.result_fields import names_of
from phaze_opt.report.study.inputs import ReportInputs, best_of, front_of
from phaze_opt.report.study.prices import chip_table, matrix_columns
from phaze_opt.report.study.regret_curves import EFFORTS
from phaze_opt.report.study.wording import format_mean, format_percent, format_target
from phaze_opt.report.text import format_time
from phaze_opt.study.result import ChipTable
from phaze_opt.study.scores import ContenderScore, PairTest

POINT_FIELDS = tuple(field.name for field in fields(DesignPoint))
CELL_FIELDS = ("key", "setting", "workload", "contender", "seed")
COUNTS = ("evaluations", "distinct_evaluations", "probes", "pruned", "ilp_solves", "placements")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
Row = Sequence[object]


def render_exports(inputs: ReportInputs) -> dict[str, str]:
    """Content of each CSV file by its name; files of questions that the study does not ask are left out."""
    tables = {
        "contenders.csv": _contenders(inputs),
        "cells.csv": _cells(inputs),
        "curves.csv": _curves(inputs),
        "tests.csv": _tests(inputs.summary.tests),
        "truths.csv": _truths(inputs),
        "winners.csv": _winners(inputs),
    }
    if inputs.summary.prices:
        tables |= {"price_matrix.csv": _matrix(inputs), "portfolios.csv": _portfolios(inputs)}
    if any(condition.goal is Goal.PARETO for condition in inputs.result.conditions):
        tables["pareto.csv"] = _front(inputs)
    return {name: _render(rows) for name, rows in tables.items()}


def _render(rows: Iterable[Row]) -> str:
    """CSV text; a name that a spreadsheet would take for a formula is quoted by an apostrophe."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow([_safe(cell) for cell in row])
    return stream.getvalue()


def _safe(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(FORMULA_STARTS):
        return f"'{cell}"
    return repr(float(cell)) if isinstance(cell, float) else cell


def _contenders(inputs: ReportInputs) -> Iterator[Row]:
    targets = inputs.result.config.judgement.targets
    reached = ("share_reached", "median_evaluations_to", "median_seconds_to")
    plain = [field.name for field in fields(ContenderScore) if field.name not in reached]
    yield [*plain, *(f"{name}_{target:g}" for target in targets for name in reached)]
    for score in (*inputs.summary.contenders, *inputs.summary.by_condition):
        own: list[object] = [getattr(score, name) for name in plain]
        for target in targets:
            own += [getattr(score, name).get(target, 0.0 if name == "share_reached" else "") for name in reached]
        yield own


def _cells(inputs: ReportInputs) -> Iterator[Row]:
    targets = inputs.result.config.judgement.targets
    measures = ("regret", "area_under_curve", "hypervolume")
    reached = [name for target in targets for name in (f"evaluations_to_{target:g}", f"seconds_to_{target:g}")]
    yield [*CELL_FIELDS, *measures, *COUNTS, "charged_s", "overhead_s", *reached, "run_id"]
    for score in inputs.summary.cells:
        own = [getattr(score, name) for name in (*CELL_FIELDS, *measures, *COUNTS, "charged_s", "overhead_s")]
        for target in targets:
            own += [score.evaluations_to.get(target, ""), score.seconds_to.get(target, "")]
        yield [*own, inputs.run_ids.get(score.key, "")]


def _curves(inputs: ReportInputs) -> Iterator[Row]:
    """Each search's curve by the evaluations at which its regret changes, and its last one, and what it had spent."""
    yield [*CELL_FIELDS, "evaluations", "regret", "charged_s", "looked_at"]
    cells = {cell.cell.key: cell for cell in inputs.result.cells}
    for score in inputs.summary.cells:
        if not len(score.curve):
            continue
        spent = [spending(score, cells[score.key]) for _, _, spending in EFFORTS.values()]
        moved = 1 + np.flatnonzero(np.diff(score.curve))
        for step in np.unique([0, *moved, len(score.curve) - 1]):
            _, charged_s, looked_at = (float(amounts[step]) for amounts in spent)
            own = (int(step) + 1, float(score.curve[step]), charged_s, int(looked_at))
            yield [*(getattr(score, name) for name in CELL_FIELDS), *own]


def _tests(tests: Sequence[PairTest]) -> Iterator[Row]:
    names = [field.name for field in fields(PairTest)]
    yield names
    for test in tests:
        yield [getattr(test, name) for name in names]


def _truths(inputs: ReportInputs) -> Iterator[Row]:
    yield ["condition", "goal", "kind", "value", "gap", *POINT_FIELDS]
    for condition in inputs.result.conditions:
        truth = inputs.summary.truths.get(condition.key)
        if truth is not None:
            known = (truth.kind.value, truth.value, truth.gap)
            yield [condition.key, condition.goal.value, *known, *_point(truth.point)]


def _winners(inputs: ReportInputs) -> Iterator[Row]:
    measured = names_of(Evaluation)
    yield ["condition", "goal", "value", "cell", "trial", "run_id", "also_found_by", *POINT_FIELDS, *measured]
    for condition in inputs.result.conditions:
        best = best_of(inputs, condition)
        if best is None:
            continue
        evaluation = inputs.evaluations.get(condition.key, {}).get(best.point)
        known = {} if evaluation is None else evaluation.figures
        figures = [known.get(name, "") for name in measured]
        run_id = inputs.run_ids.get(best.cell_key, "")
        source = [best.cell_key, best.number, run_id, " ".join(best.also_found_by)]
        yield [condition.key, condition.goal.value, best.values[0], *source, *_point(best.point), *figures]


def _matrix(inputs: ReportInputs) -> Iterator[Row]:
    yield ["setting", "model", "design", "loss"]
    for price in inputs.summary.prices:
        for name, losses in matrix_columns(price):
            for model, loss in zip(price.models, losses, strict=True):
                yield [price.setting, model, name, loss]


def _portfolios(inputs: ReportInputs) -> Iterator[Row]:
    """One row per model and set of chips: which chip of the set the model uses, and what it keeps of its own best.

    A set is told once, also where more chips would be allowed and do not help; the micro-batch is the model's own.
    """
    yield ["setting", "num_chips", "mean", "price", "worst_price", "score", "model", "share", *POINT_FIELDS]
    for price in inputs.summary.prices:
        table = chip_table(inputs, price.setting)
        for item in dict.fromkeys(price.portfolios):
            head = [price.setting, len(item.chips), item.mean, item.price, item.worst_price, item.score]
            for model, place, share in zip(price.models, item.assignment, item.shares, strict=True):
                chip = [""] * len(POINT_FIELDS) if table is None else _chip(table, model, item.chips[place])
                yield [*head, model, share, *chip]


def _chip(table: ChipTable, model: str, chip: int) -> list[object]:
    """A chip with the micro-batch that a model does best with on it."""
    micro_batch = table.micro_batches[table.models.index(model)][chip]
    return _point(replace(table.chips[chip], micro_batch=max(1, micro_batch)))


def _front(inputs: ReportInputs) -> Iterator[Row]:
    yield ["condition", THROUGHPUT, "tdp_w", "area_mm2", "cell", "trial", "run_id", *POINT_FIELDS]
    for condition in inputs.result.conditions:
        if condition.goal is Goal.PARETO:
            for item in front_of(inputs, condition):
                source = [item.cell_key, item.number, inputs.run_ids.get(item.cell_key, "")]
                yield [condition.key, *item.values, *source, *_point(item.point)]


def _point(point: DesignPoint) -> list[object]:
    values: Mapping[str, object] = asdict(point)
    return list(values.values())


LATEX_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "<": "$<$",
    ">": "$>$",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def render_latex(inputs: ReportInputs) -> str:
    """The contenders as a table of LaTeX (package booktabs), best first; the figures are those of the page."""
    targets = inputs.result.config.judgement.targets
    target = targets[-1] if targets else None
    soon = [] if target is None else [f"Evals to {format_target(target)}"]
    heads = ["Strategy", "Rank", "Median regret", "Mean regret", "Interval", *soon, "Evals", "Probes", "Time"]
    rows = []
    for score in inputs.summary.contenders:
        needed = None if target is None else score.median_evaluations_to.get(target)
        rows.append(
            [
                score.contender,
                f"{score.mean_rank:.2f}",
                format_percent(score.median_regret),
                format_percent(score.mean_regret),
                f"{format_percent(score.low_regret)} to {format_percent(score.high_regret)}",
                *([] if target is None else ["--" if needed is None else format_mean(needed)]),
                format_mean(score.mean_distinct_evaluations),
                format_mean(score.mean_probes),
                format_time(score.mean_charged_s),
            ]
        )
    lines = [
        r"% Needs \usepackage{booktabs} in the preamble.",
        f"% Study {inputs.result.study_id}: regret over all its conditions; rank is the mean over them, interval that",
        "% of mean regret by bootstrap over seeds. Evaluations are distinct ones, those to a regret the median, --",
        "% where fewer than half of the searches reach it. Probes look at designs, unevaluated. Time: one search.",
        f"\\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
        "\\toprule",
        _latex_row(heads),
        "\\midrule",
        *map(_latex_row, rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join([*lines, ""])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join("".join(LATEX_SPECIAL.get(each, each) for each in cell) for cell in cells) + r" \\"
