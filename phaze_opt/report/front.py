"""A proved front in words and a table: what is on it, what else ties, and how far the proof goes."""

from dataclasses import asdict
from typing import Any

from phaze_opt.certify.result import CertifyResult, FrontDesign
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.report.certificate import axes_words, describe_certified, format_gap
from phaze_opt.report.chip import chip_fields, chip_note, describe_chip
from phaze_opt.report.table import Fields, TableContent, number, table_of
from phaze_opt.report.text import format_number

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
