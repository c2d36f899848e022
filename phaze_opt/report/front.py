"""A proved front in words, figures and JSON: what is on it, what else ties, and how far the proof goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from phaze_opt.certify.result import CertifyResult, FrontDesign
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.report.certificate import axes_words, describe_certified, format_gap
from phaze_opt.report.chip import describe_chip
from phaze_opt.report.style import MUTED_COLOUR, REFERENCE_COLOUR, SCALE, apply_style
from phaze_opt.report.text import format_number

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def front_sentence(result: CertifyResult) -> str:
    """One sentence: how many designs are on the front, and how surely all others are off it."""
    certificate, claim = result.certificate, result.certificate.claim
    what = describe_certified(certificate.scenario)
    if not claim.is_feasible:
        return f"Proved: none of the {claim.num_points:,} points of this space is feasible for {what}."
    state = "Proved" if claim.is_proved else "Not proved"
    within = f" within {format_gap(claim.tolerance)}"
    count = len(result.front)
    designs = f"{count:,} designs are" if count != 1 else "one design is"
    return (
        f"{state}{within}: of all {claim.num_points:,} points {designs} on the front of {axes_words(certificate.axes)} "
        f"for {what}; each other one is beaten by one of these (gap {format_gap(claim.gap)})."
    )


def _figures(design: FrontDesign) -> str:
    cost = "" if design.cost_usd is None else f", {format_number(design.cost_usd)} USD"
    return (
        f"{describe_chip(design.point)}: {format_number(design.throughput_samples_per_s)} samples/s at "
        f"{format_number(design.area_mm2)} mm2, {format_number(design.tdp_w)} W{cost}"
    )


def front_ties_sentence(result: CertifyResult) -> str:
    """How many designs equal one on the front."""
    num_tied = sum(design.num_tied for design in result.front)
    if not num_tied:
        return "No other design equals one of them, as far as the proof goes."
    return f"Up to {num_tied:,} more designs equal one of them, as far as the proof goes."


def front_to_json(result: CertifyResult) -> list[dict[str, Any]]:
    """Every design of a front, fastest first; empty where there is one goal."""
    return [
        {
            "index": design.index,
            "arch": design.point.inline(),
            "architecture": asdict(design.point),
            "throughput_samples_per_s": design.throughput_samples_per_s,
            "upper_bound_samples_per_s": design.upper_samples_per_s,
            "tdp_w": design.tdp_w,
            "area_mm2": design.area_mm2,
            "cost_usd": design.cost_usd,
            "num_tied": design.num_tied,
        }
        for design in result.front
    ]


AMOUNTS = {
    FrontAxis.AREA: ("area_mm2", "area, mm<sup>2</sup>"),
    FrontAxis.TDP: ("tdp_w", "TDP, W"),
    FrontAxis.COST: ("cost_usd", "cost, USD a device"),
}
"""Attributes of what a design takes, and axes of figures."""


def front_figures(
    front: Sequence[FrontDesign], axes: Sequence[FrontAxis], machines: Mapping[str, Evaluation]
) -> dict[str, Figure]:
    """The front in throughput over each other goal, coloured by the goal after it; machines as diamonds."""
    taken = [axis for axis in (FrontAxis.AREA, FrontAxis.TDP, FrontAxis.COST) if axis in axes]
    return {
        "front" if not place else f"front_{axis.value}": _front_figure(
            front, axis, taken[(place + 1) % len(taken)], machines
        )
        for place, axis in enumerate(taken)
    }


def _front_figure(
    front: Sequence[FrontDesign], axis: FrontAxis, colour: FrontAxis, machines: Mapping[str, Evaluation]
) -> Figure:
    import plotly.graph_objects as go

    name, label = AMOUNTS[axis]
    colour_name, colour_label = AMOUNTS[colour]
    figure = go.Figure()
    figure.add_scatter(
        x=[getattr(design, name) for design in front], y=[design.throughput_samples_per_s for design in front],
        mode="markers", name="on the front", text=[_figures(design) for design in front], hoverinfo="text",
        showlegend=False,
        marker={"color": [getattr(design, colour_name) for design in front], "colorscale": SCALE, "size": 9,
                "line": {"width": 0.5, "color": MUTED_COLOUR},
                "colorbar": {"title": colour_label, "thickness": 14}},
    )  # fmt: skip
    shown = {key: each for key, each in machines.items() if each.is_feasible and hasattr(each, name)}
    for key, each in shown.items():
        at = getattr(each, name)
        figure.add_scatter(
            x=[at], y=[each.throughput_samples_per_s], mode="markers", name=key, showlegend=False, hoverinfo="text",
            hovertext=[f"{key}: {format_number(each.throughput_samples_per_s)} samples/s"],
            marker={"symbol": "diamond", "size": 12, "color": REFERENCE_COLOUR},
        )  # fmt: skip
        figure.add_annotation(
            x=at, y=each.throughput_samples_per_s, text=key, showarrow=False, yshift=18,
            font={"color": REFERENCE_COLOUR},
        )  # fmt: skip
    figure.update_xaxes(title=label, rangemode="tozero")
    figure.update_yaxes(title="throughput, samples/s", rangemode="tozero", tickformat="~s")
    return apply_style(figure, f"The proved front: throughput over {label.partition(',')[0]}")
