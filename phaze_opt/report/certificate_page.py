"""The page of a certificate: what is proved, how the gap closed, the best designs and where their time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt import __version__
from phaze_opt.certify.result import CertifyProgress, CertifyResult, RankedDesign
from phaze_opt.certify.robust.result import RobustResult
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.report.certificate import (
    UNITS,
    Ties,
    best_table,
    claim_sentence,
    effort_sentence,
    flatness_table,
    history_table,
    ties_sentence,
)
from phaze_opt.report.figures import breakdown_figure
from phaze_opt.report.page import render_page, write_text
from phaze_opt.report.robust import minimax_sentences, robust_contents
from phaze_opt.report.runner_up import RunnerUp
from phaze_opt.report.style import BEST_COLOUR, COLOURS, apply_style
from phaze_opt.report.tables import evaluation_contents

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def write_certificate_report(
    result: CertifyResult, path: Path, *, ties: Ties, runner_up: RunnerUp | None, robust: RobustResult | None = None
) -> Path:
    """Write the page of a finished proof.

    Raises:
        InputError: the file cannot be written.
    """
    certificate = result.certificate
    names = ", ".join(model.name for model in certificate.scenario.models)
    what = "the certified optimum" if certificate.claim.is_proved else "the best design and a bound on all"
    tables = []
    figures = {}
    lead = claim_sentence(result)
    if result.best:
        of_design = evaluation_contents(result.best[0].evaluation, references={})
        # Without references beside it, the performance is in the other tables.
        of_design = [content for content in of_design if content.title != "Performance"]
        tables = [best_table(result), flatness_table(result), *of_design]
        lead = " ".join([lead, ties_sentence(ties), *(runner_up.sentences if runner_up is not None else ())])
        figures["breakdown"] = breakdown_figure(_compared(result.best, runner_up))
    if len(result.history) > 1:
        figures = {"gap": gap_figure(result.history, goal=certificate.goal), **figures}
        tables.append(history_table(result))
    if robust is not None:
        lead = " ".join([lead, *minimax_sentences(robust)])
        tables += robust_contents(robust)
    page = render_page(
        f"{names} on {certificate.scenario.cluster.num_devices:,} accelerators: {what}",
        figures=figures,
        tables=tables,
        lead=lead,
        footer=f"phaze-opt {__version__}; {effort_sentence(result)} Its certificate: {result.directory}",
    )
    return write_text(path, page)


def _compared(best: Sequence[RankedDesign], runner_up: RunnerUp | None) -> dict[str, Evaluation]:
    """The best design and the runner-up by the model on which it loses most."""
    first = best[0].evaluation
    if runner_up is None:
        return {"best": first}
    second = runner_up.design.evaluation
    if not first.members:
        return {"best": first, "runner-up": second}
    pairs = zip(first.members, second.members, strict=True)
    winner, loser = next(pair for pair in pairs if pair[1].model == runner_up.model)
    return {f"best, {winner.model}": winner, f"runner-up, {loser.model}": loser}


def gap_figure(history: Sequence[CertifyProgress], *, goal: Goal) -> Figure:
    """Incumbent and bound over time; what lies between them is in doubt."""
    import plotly.graph_objects as go

    times_s = [progress.wall_s for progress in history]
    values = [progress.value if progress.value > 0.0 else None for progress in history]
    finite = [0.0 < progress.value_upper < float("inf") for progress in history]
    bounds = [progress.value_upper if is_known else None for progress, is_known in zip(history, finite, strict=True)]
    figure = go.Figure()
    style = {"mode": "lines+markers", "x": times_s}
    figure.add_scatter(y=values, name="incumbent", line={"color": BEST_COLOUR, "width": 2.5, "shape": "hv"}, **style)
    figure.add_scatter(
        y=bounds, name="bound on every point", line={"color": COLOURS[0], "width": 2.5, "shape": "hv"},
        fill="tonexty", fillcolor="rgba(0, 114, 178, 0.12)", **style,
    )  # fmt: skip
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(title=UNITS[goal], tickformat=",.6~g")
    return apply_style(figure, "How the gap closed")
