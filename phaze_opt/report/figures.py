"""Pictures of a search, from its finished trials alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.reference_machines import is_expert
from phaze_opt.report.chip import AXES, describe_cores, describe_memories
from phaze_opt.report.design import CAUSES
from phaze_opt.report.picture import (
    BEST_COLOUR,
    COLOURS,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    BarPart,
    Curve,
    Layer,
    Marks,
    Picture,
    PlotAxis,
    Scale,
    Words,
    span_around,
    stacked_bars,
)
from phaze_opt.report.text import format_number, format_time
from phaze_opt.search.result import Trial

VALUE_LABELS = {
    "throughput": "throughput, samples/s",
    "throughput_per_tdp": "throughput per TDP, samples/s/W",
    "throughput_per_usd": "throughput per USD of the total cost of ownership, samples/USD",
    "throughput_per_joule": "throughput per joule, samples/J",
}
PARETO_GOAL = "pareto"
BEST = "best"
"""Label of the best design."""
CLOSER_SHARE = 0.3
"""Of the largest area: designs that lie closer than that have a figure of their own."""
FEWEST_CLOSER = 3
SHADES = ("#C9DDEA", "#9CC3DD", "#6AA6CC", "#2E86BC", "#0072B2")
"""Of trials, from slow to fast."""
MOST_LINES = 300
LOG_SPAN = 30.0
"""Largest value over the lower quartile from which an axis becomes logarithmic: a few poor trials do not make it so."""


AREA_LABEL = "area, mm\N{SUPERSCRIPT TWO}"


def history_picture(trials: Sequence[Trial[Evaluation]], *, goal: str) -> Picture:
    """Every trial and the best so far, by trial number; infeasible trials as ticks on the axis."""
    feasible = [record for record in trials if record.values]
    numbers = [record.number for record in feasible]
    values = [record.values[0] for record in feasible]
    axis = _value_axis(VALUE_LABELS.get(goal, VALUE_LABELS["throughput"]), values)
    layers: list[Layer] = [Marks(numbers, values, "trial", opacity=0.65, px=7, hovers=_hovers(feasible))]
    if feasible:
        best = list(accumulate(values, max))
        steps = [*numbers, trials[-1].number]
        layers.append(Curve(steps, [*best, best[-1]], "best so far", BEST_COLOUR, 2.5, is_step=True))
    infeasible = [record for record in trials if not record.values]
    if infeasible:
        level = min(values) / 1.6 if axis.is_log else 0.0
        reasons = [f"trial {each.number}: {each.evaluation.status.value.replace('_', ' ')}" for each in infeasible]
        at = [record.number for record in infeasible]
        layers.append(Marks(at, [level] * len(at), "infeasible", MUTED_COLOUR, "line-ns-open", 9, hovers=reasons))
    return Picture("Search history", tuple(layers), PlotAxis("trial"), axis)


def area_throughput_picture(trials: Sequence[Trial[Evaluation]], *, references: Mapping[str, Evaluation]) -> Picture:
    """Throughput over area, coloured by TDP, with the front of the two as steps; references are diamonds."""
    feasible = [record for record in trials if record.values and not record.is_repeat]
    designs = [record.evaluation for record in feasible]
    shown = {
        name: other for name, other in references.items() if other.is_feasible and other.known("area_mm2") is not None
    }
    points = [*designs, *shown.values()]
    steps = area_front(designs)
    layers: list[Layer] = [
        Curve(
            [design.area_mm2 for design in steps], [design.throughput_samples_per_s for design in steps],
            "", BEST_COLOUR, is_step=True,
        ),
        Marks(
            [design.area_mm2 for design in designs], [design.throughput_samples_per_s for design in designs],
            px=9, opacity=0.8, hovers=_hovers(feasible), scale=Scale([design.tdp_w for design in designs], "TDP, W"),
        ),
        _named(shown, "diamond", 11, REFERENCE_COLOUR),
    ]  # fmt: skip
    layers += [_best_mark(designs)] if designs else []
    rates = [each.throughput_samples_per_s for each in points]
    axis = _value_axis(VALUE_LABELS["throughput"], rates)
    low, high = min(rates), max(rates)
    span = (0.8 * low, 1.1 * high * (high / low) ** 0.12) if axis.is_log else (0.0, 1.12 * high)
    return Picture(
        "The front: throughput over area",
        tuple(layers),
        PlotAxis(AREA_LABEL, span=span_around([each.area_mm2 for each in points])),
        replace(axis, span=span),
    )


def closer_picture(picture: Picture, trials: Sequence[Trial[Evaluation]]) -> Picture | None:
    """The same over the designs alone, where machines leave them a corner; None where they do not."""
    designs = [record.evaluation for record in trials if record.values and not record.is_repeat]
    areas = [design.area_mm2 for design in designs]
    rates = [design.throughput_samples_per_s for design in designs]
    best = max(rates)
    if len(areas) < FEWEST_CLOSER or max(areas) - min(areas) > CLOSER_SHARE * max(areas):
        return None
    least = min(rate for rate in rates if rate >= best / 2)
    spans = ((min(areas), max(areas)), (least, best))
    across, up = ((low - _room(low, high), high + 2 * _room(low, high)) for low, high in spans)
    front, crowd, _, mark = picture.layers
    return Picture(
        "The same, closer: the designs alone",
        (front, crowd, mark),
        PlotAxis(picture.x.label, span=across),
        PlotAxis(picture.y.label, span=up),
    )


def _room(low: float, high: float) -> float:
    return 0.08 * (high - low) or 0.01 * high


def _best_mark(designs: Sequence[Evaluation]) -> Marks:
    best = min(designs, key=lambda design: (-design.throughput_samples_per_s, design.area_mm2, design.tdp_w))
    return _named({BEST: best}, "circle-open", 18, BEST_COLOUR)


def _named(shown: Mapping[str, Evaluation], symbol: str, px: float, colour: str) -> Marks:
    """Designs and machines by name."""
    return Marks(
        [each.area_mm2 for each in shown.values()], [each.throughput_samples_per_s for each in shown.values()], "",
        colour, symbol, px, labels=list(shown),
        hovers=[f"{name}\n{describe_design(each)}" for name, each in shown.items()],
    )  # fmt: skip


def area_front(designs: Sequence[Evaluation]) -> list[Evaluation]:
    """Designs that no other one equals in area and throughput or beats, the smallest first."""
    found: list[Evaluation] = []
    for design in sorted(designs, key=lambda each: (each.area_mm2, -each.throughput_samples_per_s)):
        if not found or design.throughput_samples_per_s > found[-1].throughput_samples_per_s:
            found.append(design)
    return found


def pareto_picture(trials: Sequence[Trial[Evaluation]], *, front: Sequence[Trial[Evaluation]]) -> Picture:
    """Throughput over TDP, coloured by area; the designs of the front are ringed."""
    feasible = [record for record in trials if record.values and not record.is_repeat]
    designs = [record.evaluation for record in feasible]
    rates = [design.throughput_samples_per_s for design in designs]
    on_front = [record.evaluation for record in front]
    layers = (
        Marks(
            [design.tdp_w for design in designs], rates, "trial", hovers=_hovers(feasible),
            scale=Scale([design.area_mm2 for design in designs], AREA_LABEL),
        ),
        Marks(
            [design.tdp_w for design in on_front], [design.throughput_samples_per_s for design in on_front],
            "Pareto front", BEST_COLOUR, "circle-open", 14,
        ),
    )  # fmt: skip
    title = "Pareto front: throughput up, TDP and area down"
    return Picture(title, layers, PlotAxis("TDP, W", is_from_zero=True), _value_axis(VALUE_LABELS["throughput"], rates))


def parallel_coordinates_picture(trials: Sequence[Trial[Evaluation]]) -> Picture:
    """A line for each feasible trial through its parameters (powers of two evenly spaced), coloured by speed.

    The best trial is drawn last, thick; of many the fastest `MOST_LINES`. The ends of an axis are written there.
    """
    feasible = sorted((record for record in trials if record.values), key=lambda record: record.values[0])[-MOST_LINES:]
    stated = [(label, [value(trial.point) for trial in feasible], True) for label, value in AXES]
    stated.append(("area, mm2", [record.evaluation.area_mm2 for record in feasible], False))
    rates = [record.evaluation.throughput_samples_per_s for record in feasible]
    stated.append(("samples/s", rates, False))
    axes = [(label, *_spread(values, by_rank=is_choice)) for label, values, is_choice in stated if all(values)]
    places = list(range(len(axes)))
    shades = _spread(rates, by_rank=False)[0]
    layers: list[Layer] = []
    for number, record in enumerate(feasible):
        is_best = number == len(feasible) - 1
        colour = BEST_COLOUR if is_best else SHADES[min(len(SHADES) - 1, int(shades[number] * len(SHADES)))]
        name = f"trial {record.number}\n{describe_design(record.evaluation)}"
        heights = [heights[number] for _, heights, _ in axes]
        layers.append(Curve(places, heights, "", colour, 3.0 if is_best else 1.0, hovers=[name]))
    for place, (_, _, ends) in enumerate(axes):
        layers += [Curve([place, place], [0.0, 1.0], "", MUTED_COLOUR, 0.8)]
        layers += [
            Words(place, end, text, lift_px=18 * (end - 0.5)) for end, text in zip((0.0, 1.0), ends, strict=True)
        ]
    ticks = tuple((float(place), label) for place, (label, _, _) in enumerate(axes))
    return Picture(
        "Parameters of every feasible trial: pale is slow, dark is fast, thick is the best",
        tuple(layers),
        PlotAxis(ticks=ticks, span=(-0.4, len(axes) - 0.6)),
        PlotAxis(is_bare=True, span=(-0.08, 1.08)),
    )


def _spread(values: Sequence[float], *, by_rank: bool) -> tuple[list[float], tuple[str, str]]:
    """Values between nought and one, powers of two evenly spaced, and the words of both ends."""
    heights = [math.log2(value) for value in values] if by_rank else list(values)
    low, high = min(heights), max(heights)
    ends = (format_number(min(values)), format_number(max(values)))
    return [(height - low) / (high - low) if high > low else 0.5 for height in heights], ends


OF_DESIGNS = 3
"""The first causes, which only designed chips have."""


def breakdown_picture(evaluations: Mapping[str, Evaluation], *, needs_schedules: bool = True) -> Picture:
    """Where an iteration's time goes, a bar per design; machines that exist have no schedules."""
    drawn = [(name, each) for name, each in evaluations.items() if each.schedules or not needs_schedules]
    shown = {name: design for name, design in drawn if design.is_feasible}
    parts = []
    for number, cause in enumerate(CAUSES):
        label, seconds = cause.label, tuple(float(getattr(each.breakdown, cause.name)) for each in shown.values())
        # Nothing has both the first three and matmuls, attention and vector work; other repeats are hatched.
        is_hatched = number >= len(COLOURS) + OF_DESIGNS
        hovers = tuple(f"{label}: {format_time(value)}" for value in seconds)
        parts.append(BarPart(label, seconds, hovers, COLOURS[number % len(COLOURS)], is_hatched))
    return stacked_bars("Where an iteration's time goes", "seconds an iteration", list(shown), parts)


def search_pictures(
    trials: Sequence[Trial[Evaluation]],
    *,
    goal: str,
    references: Mapping[str, Evaluation],
    front: Sequence[Trial[Evaluation]] = (),
    best: Evaluation | None = None,
) -> dict[str, Picture]:
    """The pictures of a search by file name; those that would be empty are left out."""
    if not trials:
        return {}
    # Hand placements are in a table: one on a small machine would take the scale of every figure for itself.
    machines = {name: other for name, other in references.items() if not is_expert(name)}
    pictures: dict[str, Picture] = {}
    is_any = any(record.values for record in trials)
    if is_any and goal == PARETO_GOAL:
        pictures["pareto"] = pareto_picture(trials, front=front)
    if is_any:
        pictures["area_throughput"] = area_throughput_picture(trials, references=machines)
        closer = closer_picture(pictures["area_throughput"], trials)
        pictures |= {} if closer is None else {"front": closer}
    if best is not None and best.schedules:
        pictures["breakdown"] = breakdown_picture({"best design": best, **machines}, needs_schedules=False)
    pictures["history"] = history_picture(trials, goal=goal)
    if is_any:
        pictures["parallel_coordinates"] = parallel_coordinates_picture(trials)
    return pictures


def describe_design(design: Evaluation) -> str:
    """Lines for what a pointer shows."""
    return (
        f"{describe_cores(design.accelerator)}\n{describe_memories(design.accelerator)}\n"
        f"micro-batch {design.micro_batch}\n{format_number(design.throughput_samples_per_s)} samples/s, "
        f"{format_number(design.area_mm2)} mm2, {format_number(design.tdp_w)} W"
    )


def _hovers(records: Sequence[Trial[Evaluation]]) -> list[str]:
    return [f"trial {record.number}\n{describe_design(record.evaluation)}" for record in records]


def _value_axis(label: str, values: Sequence[float]) -> PlotAxis:
    """A logarithmic axis where values span much, else one from zero."""
    is_log = bool(values) and min(values) > 0 and max(values) / sorted(values)[len(values) // 4] > LOG_SPAN
    return PlotAxis(label, is_log=is_log, is_from_zero=not is_log)
