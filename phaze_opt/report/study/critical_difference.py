"""Ranks over conditions with the groups that no test tells apart, and the tests behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from phaze_opt.report.document import Alternative, Block, Choice, FigureBlock, Folded, Paragraph, Section, TableBlock
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.limits import describe_ranking_limits
from phaze_opt.report.study.wording import format_p
from phaze_opt.report.style import MUTED_COLOUR, REFERENCE_COLOUR, contender_look, finish_figure, plot_text
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.study.scores import PairTest, Ranking

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
        title="Mean ranks, and groups that no test tells apart",
        alternative=describe_ranking(inputs.summary.ranking, inputs.result.config.judgement.confidence),
        figure=ranking_figure(inputs.summary.ranking, inputs),
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


def ranking_figure(ranking: Ranking, inputs: ReportInputs) -> Figure:
    """A line per contender from the best down, its mean rank marked; bars on the right join what no test separates."""
    import plotly.graph_objects as go

    figure = go.Figure()
    rows = len(ranking.contenders)
    worst = max(ranking.mean_ranks)
    span = max(1.0, worst - 1.0)
    order = inputs.contenders
    for row, (name, rank) in enumerate(zip(ranking.contenders, ranking.mean_ranks, strict=True)):
        look = contender_look(order.index(name))
        figure.add_scatter(
            x=[1.0, rank], y=[row, row], mode="lines", line={"color": look.colour, "width": 2, "dash": look.dash},
            hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        figure.add_scatter(
            x=[rank], y=[row], mode="markers+text", name=plot_text(name), showlegend=False, cliponaxis=False,
            text=[f"{rank:.2f}"], textposition="top center", hoverinfo="text",
            hovertext=[f"{plot_text(name)}<br>mean rank {rank:.2f}"],
            marker={"symbol": look.marker, "size": 11, "color": look.colour},
        )  # fmt: skip
    groups = [(first, last) for first, last in ranking.cliques if last > first]
    for place, (first, last) in enumerate(groups, start=1):
        at = worst + span * (CLIQUE_STEP * place + 0.06)
        figure.add_scatter(
            x=[at, at], y=[first - 0.18, last + 0.18], mode="lines", showlegend=False,
            line={"color": REFERENCE_COLOUR, "width": 5}, hoverinfo="skip", name="not told apart",
        )  # fmt: skip
    right = worst + span * (CLIQUE_STEP * len(groups) + 0.12)
    figure.update_xaxes(
        title="mean rank", range=[1.0 - 0.03 * span, right], dtick=1, showline=True, linecolor=MUTED_COLOUR
    )
    names = [plot_text(name) for name in ranking.contenders]
    figure.update_yaxes(tickvals=list(range(rows)), ticktext=names, range=[rows - 0.4, -0.75], showgrid=False, ticks="")
    return finish_figure(figure, height=100 + ROW_PX * rows)
