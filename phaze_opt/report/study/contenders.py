"""Contenders in tables: how good, how soon, at what cost; over all conditions and in each."""

from __future__ import annotations

from collections.abc import Sequence

from phaze_opt.report.document import Alternative, Choice, Folded, Paragraph, Section, TableBlock
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.wording import format_mean, format_percent, format_target
from phaze_opt.report.table import Column, TableContent
from phaze_opt.report.text import format_share, format_time
from phaze_opt.study.plan import Condition
from phaze_opt.study.scores import ContenderScore

EXPORT = "contenders.csv"
NOT_REACHED = "-"


def contenders_section(inputs: ReportInputs) -> Section:
    """Tables over all conditions, then those of each condition to choose from."""
    scores = inputs.summary.contenders
    if not scores:
        return Section("contenders", "Contenders", (Paragraph("No search of this study is finished yet."),))
    conditions = inputs.result.conditions
    where = "all conditions" if len(conditions) > 1 else conditions[0].key
    blocks = [TableBlock(table, EXPORT) for table in score_tables(inputs, scores, where)]
    if len(conditions) > 1:
        blocks.append(TableBlock(matrix_table(inputs), EXPORT))
    each = tuple(_option(inputs, condition) for condition in conditions)
    choice = Choice("condition-tables", "Condition", each)
    fold = Folded("The same tables of each condition", (choice,)) if len(each) > 1 else None
    return Section("contenders", "Contenders", (*blocks, fold) if fold is not None else tuple(blocks))


def _option(inputs: ReportInputs, condition: Condition) -> Alternative:
    scores = inputs.scores_of(condition)
    if not scores:
        return Alternative(condition.key, (Paragraph(f"No search of {condition.key} is finished yet."),))
    tables = score_tables(inputs, scores, condition.key)
    return Alternative(condition.key, tuple(TableBlock(table, EXPORT) for table in tables))


def score_tables(inputs: ReportInputs, scores: Sequence[ContenderScore], where: str) -> tuple[TableContent, ...]:
    """Quality, speed and cost of some contenders, best first; with several objectives speed is of the hypervolume."""
    return (quality_table(inputs, scores, where), speed_table(inputs, scores, where), cost_table(scores, where))


def quality_table(inputs: ReportInputs, scores: Sequence[ContenderScore], where: str) -> TableContent:
    """Rank, final regret with its interval, area under the curve; hypervolume where there are several objectives."""
    confidence = inputs.result.config.judgement.confidence
    headings = ["rank", "median regret", "mean regret", f"{100 * confidence:g} % interval", "area under curve"]
    if inputs.is_multi_objective:
        headings.append("hypervolume")
    headings.append("searches")
    columns = (Column("contender"), *(Column(heading, is_number=True) for heading in headings))
    rows = tuple(_quality_row(inputs, score) for score in scores)
    note = (
        "Regret is what the best design found still lacks, relative to the reference value; the interval is of its "
        "mean, by bootstrap; the area under the curve is the mean regret over the whole budget."
    )
    if inputs.is_multi_objective:
        note += " With several objectives, regret is of the hypervolume."
    return TableContent(f"Quality: {where}", columns, rows, note, _leaders(scores))


def _quality_row(inputs: ReportInputs, score: ContenderScore) -> tuple[str, ...]:
    volume = (format_share(score.mean_hypervolume),) if inputs.is_multi_objective else ()
    return (
        score.contender,
        f"{score.mean_rank:.2f}".rstrip("0").rstrip("."),
        format_percent(score.median_regret),
        format_percent(score.mean_regret),
        f"{format_percent(score.low_regret)} to {format_percent(score.high_regret)}",
        format_percent(score.mean_area_under_curve),
        *volume,
        str(score.num_cells),
    )


def speed_table(inputs: ReportInputs, scores: Sequence[ContenderScore], where: str) -> TableContent:
    """Evaluations and time to each target, and the share of searches that reached it."""
    targets = inputs.result.config.judgement.targets
    columns = [Column("contender")]
    for target in targets:
        name = format_target(target)
        columns += [
            Column(f"reached {name}", is_number=True),
            Column(f"evaluations to {name}", is_number=True),
            Column(f"time to {name}", is_number=True),
        ]
    rows = tuple(_speed_row(score, targets) for score in scores)
    note = (
        "Share of searches whose regret fell to the target; median evaluations and charged time until then, where at "
        f"least half of the searches reached it ({NOT_REACHED} where fewer did)."
    )
    return TableContent(f"Speed: {where}", tuple(columns), rows, note, _leaders(scores))


def _speed_row(score: ContenderScore, targets: Sequence[float]) -> tuple[str, ...]:
    cells = [score.contender]
    for target in targets:
        evaluations, seconds = score.median_evaluations_to.get(target), score.median_seconds_to.get(target)
        cells.append(f"{100 * score.share_reached.get(target, 0.0):.0f} %")
        cells.append(NOT_REACHED if evaluations is None else format_mean(evaluations))
        cells.append(NOT_REACHED if seconds is None else format_time(seconds))
    return tuple(cells)


def cost_table(scores: Sequence[ContenderScore], where: str) -> TableContent:
    """What a search took on average."""
    headings = ("distinct evaluations", "probes", "pruned", "charged time")
    columns = (Column("contender"), *(Column(heading, is_number=True) for heading in headings))
    rows = tuple(
        (
            score.contender,
            format_mean(score.mean_distinct_evaluations),
            format_mean(score.mean_probes),
            format_mean(score.mean_pruned),
            format_time(score.mean_charged_s),
        )
        for score in scores
    )
    note = (
        "Means of a search. A probe is one architecture looked at through bounds and estimates without evaluating it; "
        "charged time is what the search would have taken alone on one core."
    )
    return TableContent(f"Cost: {where}", columns, rows, note, _leaders(scores))


def matrix_table(inputs: ReportInputs) -> TableContent:
    """Median regret of every contender in every condition, with what regret is against there."""
    conditions = inputs.result.conditions
    by_pair = {(score.contender, score.condition): score for score in inputs.summary.by_condition}
    names = [score.contender for score in inputs.summary.contenders]
    columns = (Column("condition"), Column("against"), *(Column(name, is_number=True) for name in names))
    rows = []
    for condition in conditions:
        scores = [by_pair.get((name, condition.key)) for name in names]
        least = min((score.median_regret for score in scores if score is not None), default=None)
        texts = [
            "missing"
            if score is None
            else f"{format_percent(score.median_regret)}{' *' if score.median_regret == least else ''}"
            for score in scores
        ]
        truth = inputs.summary.truths.get(condition.key)
        rows.append((condition.key, "hypervolume" if truth is None else truth.kind.value, *texts))
    note = "Median over seeds of the final regret; * marks the least of a condition (several where they tie)."
    return TableContent("Median regret by condition", columns, tuple(rows), note)


def _leaders(scores: Sequence[ContenderScore]) -> frozenset[int]:
    """Rows of the least mean rank, unless all share it."""
    least = min(score.mean_rank for score in scores)
    rows = frozenset(index for index, score in enumerate(scores) if score.mean_rank == least)
    return rows if len(rows) < len(scores) else frozenset()
