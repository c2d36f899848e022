"""The report of a study: its document, sections in the order in which a reader asks, and all files made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from phaze_opt import __version__
from phaze_opt.objective.goals import Goal
from phaze_opt.report.chip import describe_chip, describe_point
from phaze_opt.report.document import (
    Alternative,
    Block,
    Choice,
    FigureBlock,
    Folded,
    Paragraph,
    ReportDocument,
    Section,
    TableBlock,
)
from phaze_opt.report.page import render_markdown, write_report, write_text
from phaze_opt.report.picture import (
    REFERENCE_COLOUR,
    Curve,
    Layer,
    Marks,
    Picture,
    PlotAxis,
    Scale,
    Words,
    contender_look,
)
from phaze_opt.report.study.cards import Drawings, cards_section
from phaze_opt.report.study.exports import render_exports, render_latex
from phaze_opt.report.study.findings import describe_findings
from phaze_opt.report.study.inputs import FoundDesign, ReportInputs, all_of, front_of
from phaze_opt.report.study.limits import describe_ranking_limits
from phaze_opt.report.study.plan_section import describe_budget, notices, plan_section
from phaze_opt.report.study.prices import price_section
from phaze_opt.report.study.regret_curves import curves_section, opening_panels
from phaze_opt.report.study.wording import format_mean, format_p, format_percent, format_target
from phaze_opt.report.table import Column, Field, Fields, TableContent, number, numbers, table_of, words
from phaze_opt.report.text import format_number, format_share, format_time
from phaze_opt.study.config import Condition
from phaze_opt.study.scores import ContenderScore, PairTest, Ranking


def build_document(inputs: ReportInputs, drawings: Mapping[str, Drawings] | None = None) -> ReportDocument:
    """The report of a study; what the study does not ask or cannot answer yet has no section, or says so.

    Args:
        inputs: the judged study.
        drawings: of `draw_winners`; none are shown without it.
    """
    config = inputs.result.config
    sections = (
        contenders_section(inputs),
        curves_section(inputs),
        ranks_section(inputs),
        price_section(inputs),
        pareto_section(inputs),
        cards_section(inputs, drawings or {}),
        plan_section(inputs),
    )
    opening = opening_panels(inputs)
    return ReportDocument(
        title=f"Study {config.name}",
        description=config.description,
        opening=() if opening is None else (opening,),
        findings=describe_findings(inputs.result, inputs.summary),
        notices=notices(inputs),
        sections=tuple(section for section in sections if section is not None),
        footer=provenance_rows(inputs),
    )


def provenance_rows(inputs: ReportInputs) -> tuple[tuple[str, str], ...]:
    """Where the figures come from, and the commands that make them again."""
    result = inputs.result
    config = result.config
    source = config.source or "FILE"
    return (
        ("study", result.study_id),
        ("made by", f"phaze-opt study run {source}"),
        ("reported by", f"phaze-opt report {config.name}, version {__version__}"),
        ("seeds", ", ".join(map(str, config.seeds))),
        ("budget of a search", describe_budget(config.budget)),
        *((name.replace("_", " "), value) for name, value in result.provenance.items()),
    )


PAGE_NAME = "report.html"
MARKDOWN_NAME = "report.md"
LATEX_NAME = "contenders.tex"


def write_study_report(
    inputs: ReportInputs, directory: Path, *, drawings: Mapping[str, Drawings] | None = None
) -> dict[str, Path]:
    """Write all files of the report, over those of an earlier one.

    Args:
        inputs: the judged study.
        directory: where to write; made if need be.
        drawings: of `draw_winners`; without it the page has no schedules and pipelines.

    Returns:
        Paths by file name, the page first.

    Raises:
        InputError: the directory cannot be written.
    """
    document = build_document(inputs, drawings)
    files = {MARKDOWN_NAME: render_markdown(document), **render_exports(inputs), LATEX_NAME: render_latex(inputs)}
    return {
        **write_report(directory / PAGE_NAME, document),
        **{name: write_text(directory / name, text) for name, text in files.items()},
    }


CONTENDERS_EXPORT = "contenders.csv"
NOT_REACHED = "-"


def contenders_section(inputs: ReportInputs) -> Section:
    """Tables over all conditions, then those of each condition to choose from."""
    scores = inputs.summary.contenders
    if not scores:
        return Section("contenders", "Contenders", (Paragraph("No search of this study is finished yet."),))
    conditions = inputs.result.conditions
    where = "all conditions" if len(conditions) > 1 else conditions[0].key
    blocks = [TableBlock(table, CONTENDERS_EXPORT) for table in score_tables(inputs, scores, where)]
    if len(conditions) > 1:
        blocks.append(TableBlock(matrix_table(inputs), CONTENDERS_EXPORT))
    each = tuple(_option(inputs, condition) for condition in conditions)
    choice = Choice("condition-tables", "Condition", each)
    fold = Folded("The same tables of each condition", (choice,)) if len(each) > 1 else None
    return Section("contenders", "Contenders", (*blocks, fold) if fold is not None else tuple(blocks))


def _option(inputs: ReportInputs, condition: Condition) -> Alternative:
    scores = inputs.scores_of(condition)
    if not scores:
        return Alternative(condition.key, (Paragraph(f"No search of {condition.key} is finished yet."),))
    tables = score_tables(inputs, scores, condition.key)
    return Alternative(condition.key, tuple(TableBlock(table, CONTENDERS_EXPORT) for table in tables))


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


FRONT_EXPORT = "pareto.csv"
MAX_ROWS = 40
MAX_POINTS = 4000
"""Designs off the front beyond which a figure shows only an even sample of them."""


def pareto_section(inputs: ReportInputs) -> Section | None:
    """The front of each condition with several objectives; None where there is none."""
    conditions = [condition for condition in inputs.result.conditions if condition.goal is Goal.PARETO]
    if not conditions:
        return None
    options = tuple(
        Alternative(condition.key, _blocks(inputs, condition, place)) for place, condition in enumerate(conditions)
    )
    return Section("pareto", "Pareto fronts", (Choice("pareto", "Condition", options),))


def _blocks(inputs: ReportInputs, condition: Condition, place: int) -> tuple[Block, ...]:
    front = front_of(inputs, condition)
    if not front:
        return (Paragraph(f"Nothing feasible was found in {condition.key}."),)
    return (
        FigureBlock(
            name=f"pareto-{place}",
            picture=pareto_picture(all_of(inputs, condition), front, inputs, condition.key),
            alternative=describe_front(front, condition.key),
            export=FRONT_EXPORT,
        ),
        TableBlock(front_table(inputs, front, condition.key), FRONT_EXPORT),
    )


def describe_front(front: Sequence[FoundDesign], where: str) -> str:
    """The ends of the front."""
    fastest, coolest = front[0], min(front, key=lambda item: item.values[1])
    return (
        f"The front of {where} has {len(front)} designs, from {_values(fastest)} to {_values(coolest)}. "
        "Colour is area; a design of the front is ringed and carries the marker of the contender that found it."
    )


def _values(item: FoundDesign) -> str:
    rate, tdp_w, area_mm2 = item.values
    return f"{format_number(rate)} samples/s at {format_number(tdp_w)} W and {format_number(area_mm2)} mm2"


def pareto_picture(
    found: Sequence[FoundDesign], front: Sequence[FoundDesign], inputs: ReportInputs, where: str
) -> Picture:
    """Throughput over TDP, coloured by area."""
    shown = found[:: 1 + len(found) // MAX_POINTS]
    areas = [item.values[2] for item in found]
    span = (min(areas), max(areas))
    label = "area, mm\N{SUPERSCRIPT TWO}"
    layers = [
        Marks(
            [item.values[1] for item in shown], [item.values[0] for item in shown], px=5, opacity=0.45,
            scale=Scale([item.values[2] for item in shown], label, span),
        )
    ]  # fmt: skip
    for name in (name for name in inputs.contenders if any(item.contender == name for item in front)):
        own = [item for item in front if item.contender == name]
        layers.append(
            Marks(
                [item.values[1] for item in own], [item.values[0] for item in own], name, px=12,
                symbol=contender_look(inputs.contenders.index(name)).marker, ringed=range(len(own)),
                hovers=[_hover(item) for item in own], scale=Scale([item.values[2] for item in own], "", span),
            )
        )  # fmt: skip
    axes = PlotAxis("TDP, W", is_from_zero=True), PlotAxis("throughput, samples/s", is_from_zero=True)
    return Picture(f"Throughput, TDP and area: {where}", tuple(layers), *axes, height_px=420)


def _hover(item: FoundDesign) -> str:
    source = f"{item.cell_key} trial {item.number}"
    return f"{source}\n{describe_chip(item.point)}\nmicro-batch {item.point.micro_batch}\n{_values(item)}"


def front_table(inputs: ReportInputs, front: Sequence[FoundDesign], where: str) -> TableContent:
    """The designs of the front with the trials that found them."""
    fields: Fields[FoundDesign] = (
        words("source", lambda item: inputs.describe_run(item.cell_key, item.number)),
        number("samples/s", lambda item: format_number(item.values[0])),
        number("TDP, W", lambda item: format_number(item.values[1])),
        number("area, mm2", lambda item: format_number(item.values[2])),
        words("design", lambda item: describe_point(item.point)),
    )
    shown = front[:: 1 + (len(front) - 1) // MAX_ROWS]
    note = (
        "" if len(shown) == len(front) else f"{len(shown)} of {len(front)} designs; all of them are in {FRONT_EXPORT}."
    )
    return table_of(f"Pareto front: {where}", fields, shown, note)


TESTS_EXPORT = "tests.csv"
ROW_PX = 34
CLIQUE_STEP = 0.06
"""Distance between the bars of groups, as a share of the ranks' span."""
MAX_OPEN_TESTS = 12


def ranks_section(inputs: ReportInputs) -> Section:
    """The diagram, what cannot be claimed from it, and every pair's test; of one condition the tests alone."""
    ranking, tests = inputs.summary.ranking, inputs.summary.tests
    num_conditions = len({score.condition for score in inputs.summary.by_condition})
    blocks: list[Block] = []
    if len(ranking.contenders) < 2:
        blocks.append(Paragraph("Ranks need at least two contenders with finished searches."))
    elif num_conditions > 1:
        blocks.append(_diagram(inputs))
    if num_conditions > 1 and len(ranking.contenders) > 2 and ranking.friedman_p < 1.0:
        p_value = format_p(ranking.friedman_p)
        equals = "" if p_value.startswith("<") else "= "
        blocks.append(Paragraph(f"Friedman's test that all contenders are alike: p {equals}{p_value}."))
    limits = describe_ranking_limits(ranking, inputs.result.config.judgement.confidence)
    if limits:
        blocks.append(Paragraph(limits))
    overall = [test for test in tests if not test.condition]
    if overall:
        table = TableBlock(tests_table(overall, "conditions as blocks"), TESTS_EXPORT)
        is_long = len(overall) > MAX_OPEN_TESTS
        blocks.append(Folded(f"All {len(overall)} pairs tested over conditions", (table,)) if is_long else table)
    options = _options(inputs, tests)
    if options:
        choice = Choice("tests", "Condition", options)
        is_open = num_conditions == 1
        blocks.append(choice if is_open else Folded("Tests within each condition, over seeds", (choice,)))
    return Section("ranks", "Ranks and tests", tuple(blocks))


def _diagram(inputs: ReportInputs) -> FigureBlock:
    return FigureBlock(
        name="critical-difference",
        alternative=describe_ranking(inputs.summary.ranking, inputs.result.config.judgement.confidence),
        picture=ranking_picture(inputs.summary.ranking, inputs),
        export=TESTS_EXPORT,
    )


def _options(inputs: ReportInputs, tests: Sequence[PairTest]) -> tuple[Alternative, ...]:
    options = []
    for condition in inputs.result.conditions:
        own = [test for test in tests if test.condition == condition.key]
        if own:
            options.append(Alternative(condition.key, (TableBlock(tests_table(own, condition.key), TESTS_EXPORT),)))
    return tuple(options)


def tests_table(tests: Sequence[PairTest], where: str) -> TableContent:
    """Every pair: who is better, by which test, how surely and how often."""
    fields: Fields[PairTest] = (
        words("better", lambda test: test.first),
        words("worse", lambda test: test.second),
        words("test", lambda test: test.test),
        number("p (Holm)", lambda test: format_p(test.p_value)),
        number("effect A", lambda test: f"{test.effect:.2f}"),
        words("claim", lambda test: "significant" if test.is_significant else "none"),
    )
    note = (
        "The better of a pair has the lower median regret. Effect A (Vargha and Delaney) is the chance that a search "
        "of the better one (over conditions: its median) ends with less regret than one of the other, ties counted "
        "half: 0.5 is no difference."
    )
    has_others = not all(test.is_significant for test in tests)
    title = f"Pairwise tests: {where}"
    return table_of(title, fields, tests, note, emphasis=lambda test: has_others and test.is_significant)


def describe_ranking(ranking: Ranking, confidence: float) -> str:
    """Ranks from the best, and the groups in words."""
    ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in zip(ranking.contenders, ranking.mean_ranks, strict=True))
    groups = [
        f"{ranking.contenders[first]} to {ranking.contenders[last]}" for first, last in ranking.cliques if last > first
    ]
    joined = "no two are alike" if not groups else f"not told apart at {100 * confidence:g} %: {'; '.join(groups)}"
    bars = "; a bar on the right joins the members of a group" if groups else ""
    return f"Mean rank over conditions, 1 is best: {ranks}. {joined[0].upper()}{joined[1:]}{bars}."


def ranking_picture(ranking: Ranking, inputs: ReportInputs) -> Picture:
    """A line per contender from the best down, its mean rank marked; bars on the right join what no test separates."""
    names = ranking.contenders
    worst = max(ranking.mean_ranks)
    span = max(1.0, worst - 1.0)
    layers: list[Layer] = []
    for row, (name, rank) in enumerate(zip(names, ranking.mean_ranks, strict=True)):
        look = contender_look(inputs.contenders.index(name))
        hover = f"{name}\nmean rank {rank:.2f}"
        layers += [
            Curve([1.0, rank], [row, row], "", look.colour, 2.0, look.dash),
            Marks([rank], [row], "", look.colour, look.marker, 11, hovers=[hover]),
            Words(rank, row, f"{rank:.2f}", lift_px=13),
        ]
    groups = [(first, last) for first, last in ranking.cliques if last > first]
    for place, (first, last) in enumerate(groups, start=1):
        at = worst + span * (CLIQUE_STEP * place + 0.06)
        layers.append(
            Curve([at, at], [first - 0.18, last + 0.18], "", REFERENCE_COLOUR, 5.0, hovers=["not told apart"])
        )
    right = worst + span * (CLIQUE_STEP * len(groups) + 0.12)
    ticks = tuple((float(rank), str(rank)) for rank in range(1, math.ceil(worst) + 1))
    y = PlotAxis(span=(-0.75, len(names) - 0.4), ticks=tuple(enumerate(names)), is_flipped=True)
    return Picture(
        "Mean ranks, and groups that no test tells apart",
        tuple(layers),
        PlotAxis("mean rank", span=(1.0 - 0.03 * span, right), ticks=ticks),
        y,
        height_px=80 + ROW_PX * len(names),
    )
