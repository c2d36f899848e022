"""A proved front in words, a table and figures: what is on it, what else ties, and how far the proof goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from phaze_opt.certify.result import CertifyResult, FrontDesign
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.report.certificate import axes_words, describe_certified, format_gap
from phaze_opt.report.chip import chip_fields, chip_note, describe_chip
from phaze_opt.report.style import MUTED_COLOUR, REFERENCE_COLOUR, SCALE, apply_style
from phaze_opt.report.table import Fields, TableContent, number, table_of
from phaze_opt.report.text import format_number

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_ROWS = 12
"""Designs of a front in the table; a longer one is thinned, and JSON has all of it."""


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


def front_ends_sentence(result: CertifyResult) -> str:
    """The fastest design of a front, and what the smallest one takes that is half as fast; empty without throughput."""
    if not result.front or FrontAxis.THROUGHPUT not in result.certificate.axes:
        return ""
    fastest = max(result.front, key=lambda design: design.throughput_samples_per_s)
    half = min(
        (each for each in result.front if each.throughput_samples_per_s >= 0.5 * fastest.throughput_samples_per_s),
        key=lambda design: (design.area_mm2, design.tdp_w),
    )
    text = f"The fastest is {_figures(fastest)}"
    if half is fastest:
        return f"{text}; none is half as fast and smaller."
    return f"{text}; the smallest of at least half its throughput is {_figures(half)}."


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


def front_table(result: CertifyResult) -> TableContent:
    """The front, fastest first; every so manieth design of a long one, its ends among them."""
    count = len(result.front)
    places = list(range(count))
    if count > MAX_ROWS:
        places = sorted({round(place * (count - 1) / (MAX_ROWS - 1)) for place in range(MAX_ROWS)})
    shown = [(place + 1, result.front[place]) for place in places]
    has_cost = FrontAxis.COST in result.certificate.axes
    fields: Fields[tuple[int, FrontDesign]] = (
        number("no.", lambda row: f"{row[0]:,}"),
        *chip_fields(lambda row: row[1].point),
        number("mb", lambda row: f"{row[1].point.micro_batch}"),
        number("samples/s", lambda row: format_number(row[1].throughput_samples_per_s)),
        number("W", lambda row: format_number(row[1].tdp_w)),
        number("mm2", lambda row: format_number(row[1].area_mm2)),
        *([number("USD", lambda row: _dollars(row[1]))] if has_cost else []),
    )
    note = chip_note([design.point for design in result.front], has_micro_batch=True)
    if len(shown) < count:
        note = f"{len(shown)} of {count:,}, evenly taken; {note}"
    return table_of("The front", fields, shown, note)


def _dollars(design: FrontDesign) -> str:
    return "-" if design.cost_usd is None else format_number(design.cost_usd)


def front_to_json(result: CertifyResult) -> list[dict[str, Any]]:
    """Every design of a front, fastest first; empty where there is one goal."""
    return [
        {
            "index": design.index,
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
