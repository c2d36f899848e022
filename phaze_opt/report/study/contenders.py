"""Contenders in tables: how good, how soon, at what cost; over all conditions and in each."""

from collections.abc import Callable, Sequence

from phaze_opt.report.document import Alternative, Choice, Folded, Paragraph, Section, TableBlock
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.wording import format_mean, format_percent, format_target
from phaze_opt.report.table import Column, Field, Fields, TableContent, number, numbers, table_of, words
from phaze_opt.report.text import format_share, format_time
from phaze_opt.study.config import Condition
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
    volume: Fields[ContenderScore] = (number("hypervolume", lambda score: format_share(score.mean_hypervolume)),)
    fields: Fields[ContenderScore] = (
        words("contender", lambda score: score.contender),
        number("rank", lambda score: f"{score.mean_rank:.2f}".rstrip("0").rstrip(".")),
        number("median regret", lambda score: format_percent(score.median_regret)),
        number("mean regret", lambda score: format_percent(score.mean_regret)),
        number(f"{100 * confidence:g} % interval", _interval),
        number("area under curve", lambda score: format_percent(score.mean_area_under_curve)),
        *(volume if inputs.is_multi_objective else ()),
        number("searches", lambda score: str(score.num_cells)),
    )
    note = (
        "Regret is what the best design found still lacks, relative to the reference value; the interval is of its "
        "mean, by bootstrap; the area under the curve is the mean regret over the whole budget."
    )
    if inputs.is_multi_objective:
        note += " With several objectives, regret is of the hypervolume."
    return table_of(f"Quality: {where}", fields, scores, note, emphasis=_leads(scores))


def _interval(score: ContenderScore) -> str:
    return f"{format_percent(score.low_regret)} to {format_percent(score.high_regret)}"


def speed_table(inputs: ReportInputs, scores: Sequence[ContenderScore], where: str) -> TableContent:
    """Evaluations and time to each target, and the share of searches that reached it."""
    fields: list[Field[ContenderScore]] = [words("contender", lambda score: score.contender)]
    for target in inputs.result.config.judgement.targets:
        fields += _speed_fields(target)
    note = (
        "Share of searches whose regret fell to the target; median evaluations and charged time until then, where at "
        f"least half of the searches reached it ({NOT_REACHED} where fewer did)."
    )
    return table_of(f"Speed: {where}", fields, scores, note, emphasis=_leads(scores))


def _speed_fields(target: float) -> Fields[ContenderScore]:
    name = format_target(target)
    return (
        number(f"reached {name}", lambda score: f"{100 * score.share_reached.get(target, 0.0):.0f} %"),
        number(f"evaluations to {name}", lambda score: _needed(score.median_evaluations_to.get(target), format_mean)),
        number(f"time to {name}", lambda score: _needed(score.median_seconds_to.get(target), format_time)),
    )


def _needed(figure: float | None, text: Callable[[float], str]) -> str:
    return NOT_REACHED if figure is None else text(figure)


def cost_table(scores: Sequence[ContenderScore], where: str) -> TableContent:
    """What a search took on average."""
    fields: Fields[ContenderScore] = (
        words("contender", lambda score: score.contender),
        number("distinct evaluations", lambda score: format_mean(score.mean_distinct_evaluations)),
        number("probes", lambda score: format_mean(score.mean_probes)),
        number("pruned", lambda score: format_mean(score.mean_pruned)),
        number("charged time", lambda score: format_time(score.mean_charged_s)),
    )
    note = (
        "Means of a search. A probe is one architecture looked at through bounds and estimates without evaluating it; "
        "charged time is what the search would have taken alone on one core."
    )
    return table_of(f"Cost: {where}", fields, scores, note, emphasis=_leads(scores))


def matrix_table(inputs: ReportInputs) -> TableContent:
    """Median regret of every contender in every condition, with what regret is against there."""
    conditions = inputs.result.conditions
    by_pair = {(score.contender, score.condition): score for score in inputs.summary.by_condition}
    names = [score.contender for score in inputs.summary.contenders]
    columns = (Column("condition"), Column("against"), *numbers(*names))
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


def _leads(scores: Sequence[ContenderScore]) -> Callable[[ContenderScore], bool]:
    """Whether one has the least mean rank, unless all share it."""
    ranks = {score.mean_rank for score in scores}
    return lambda score: len(ranks) > 1 and score.mean_rank == min(ranks)
