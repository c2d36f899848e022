"""Ranks over conditions with the groups that no test tells apart, and the tests behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from phaze_opt.report.document import Alternative, Block, Choice, FigureBlock, Folded, Paragraph, Section, TableBlock
from phaze_opt.report.picture import REFERENCE_COLOUR, Curve, Layer, Marks, Picture, PlotAxis, Words, contender_look
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.limits import describe_ranking_limits
from phaze_opt.report.study.wording import format_p
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.study.scores import PairTest, Ranking

EXPORT = "tests.csv"
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
        table = TableBlock(tests_table(overall, "conditions as blocks"), EXPORT)
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
        export=EXPORT,
    )


def _options(inputs: ReportInputs, tests: Sequence[PairTest]) -> tuple[Alternative, ...]:
    options = []
    for condition in inputs.result.conditions:
        own = [test for test in tests if test.condition == condition.key]
        if own:
            options.append(Alternative(condition.key, (TableBlock(tests_table(own, condition.key), EXPORT),)))
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
