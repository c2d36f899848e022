"""A front, proved or searched, in words, a table, figures and JSON: its ends, what less speed saves, its knee."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from phaze_opt.certify.result import CertifyResult
from phaze_opt.certify.standing import members_of
from phaze_opt.jobs.machines_beside import ChipBeside, rate_of
from phaze_opt.objective.evaluation import THROUGHPUT
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.objective.least_within import FASTEST, KNEE, LEAST, WITHIN, FrontChoice, FrontMember, choices_of
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.result_fields import values_of
from phaze_opt.report.answer import joined, range_to_json
from phaze_opt.report.certificate import AXIS_WORDS, describe_certified, format_gap
from phaze_opt.report.chip import arch_of, arch_option, chip_fields, chip_note, describe_chip
from phaze_opt.report.die import SAME_SOFTWARE, rate_words
from phaze_opt.report.style import (
    BEST_COLOUR,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    RIM,
    SCALE,
    Frame,
    Mark,
    add_marks,
    apply_style,
)
from phaze_opt.report.table import Fields, TableContent, lines, number, table_of, words
from phaze_opt.report.text import counted, format_number, numbers_apart

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def front_sentence(result: CertifyResult) -> str:
    """One sentence: how many designs are on the front, and how surely all others are off it."""
    certificate, claim = result.certificate, result.certificate.claim
    what = describe_certified(certificate.scenario)
    if not claim.is_feasible:
        return f"Proved: none of the {counted(claim.num_points, 'point')} of this space is feasible for {what}."
    state = "Proved" if claim.is_proved else "Not proved"
    within = f" within {format_gap(claim.tolerance)}"
    count = len(result.front)
    designs = f"{count:,} designs are" if count != 1 else "one design is"
    return (
        f"{state}{within}: of all {counted(claim.num_points, 'point')} {designs} on the front of "
        f"{spans_words(members_of(result), certificate.axes)} for {what}; each other one is beaten by one of these "
        f"(gap {format_gap(claim.gap)})."
    )


def front_sentences(result: CertifyResult, machines: Sequence[FrontMachine]) -> tuple[str, ...]:
    """What is said of a front: what it trades and how surely, its ends and knee, and how it stands to machines."""
    front, axes = members_of(result), result.certificate.axes
    return (front_sentence(result), *trade_off_sentences(front, axes), *beside_sentences(front, axes, machines))


def spans_words(front: Sequence[FrontMember], axes: Sequence[FrontAxis]) -> str:
    """The goals of a front, each with the most and the least on it."""
    return joined([f"{AXIS_WORDS[axis]} ({_span(front, axis)})" for axis in axes])


def _span(front: Sequence[FrontMember], axis: FrontAxis) -> str:
    """From the most to the least, as what is fast takes most; one amount where all are alike."""
    is_rate = axis is FrontAxis.THROUGHPUT
    amounts = [each.throughput_samples_per_s if is_rate else each.amounts[axis] for each in front]
    most, least = format_number(max(amounts)), format_number(min(amounts))
    return f"{most if most == least else f'{most} down to {least}'} {'samples/s' if is_rate else UNITS[axis]}"


def front_ties_sentence(result: CertifyResult) -> str:
    """How many designs equal one on the front."""
    num_tied = sum(design.num_tied for design in result.front)
    if not num_tied:
        return "No other design equals one of them, as far as the proof goes."
    more = f"{num_tied:,} more designs equal" if num_tied > 1 else "one more design equals"
    return f"Up to {more} one of them, as far as the proof goes."


def front_to_json(result: CertifyResult) -> list[dict[str, Any]]:
    """Every design of a front, fastest first; empty where there is one goal."""
    return [
        {
            "index": design.index,
            "arch": design.point.inline(),
            "architecture": asdict(design.point),
            **values_of(design),
        }
        for design in result.front
    ]


AXIS_LABELS = {FrontAxis.AREA: "area, mm<sup>2</sup>", FrontAxis.TDP: "TDP, W", FrontAxis.COST: "cost, USD a device"}
"""Axes of figures."""


@dataclass(frozen=True, slots=True)
class FrontMachine:
    """A machine beside a front: what it attains, and what it takes of what is known: mm^2, W, USD a device."""

    name: str
    throughput_samples_per_s: float
    amounts: Mapping[FrontAxis, float]
    same_software_samples_per_s: float | None = None
    rate_words: str = ""


def machines_beside(machines: Iterable[ChipBeside]) -> tuple[FrontMachine, ...]:
    """The machines that can train; a device costs what its bill says."""
    found = []
    for each in machines:
        known = {
            FrontAxis.AREA: each.evaluation.known("area_mm2"),
            FrontAxis.TDP: each.evaluation.known("tdp_w"),
            FrontAxis.COST: None if each.bill is None else each.bill.device_usd,
        }
        amounts = {axis: amount for axis, amount in known.items() if amount is not None}
        same = None if each.same_software is None else rate_of(each.same_software)
        if each.evaluation.is_feasible:
            found.append(FrontMachine(each.name, rate_of(each.evaluation), amounts, same, rate_words(each)))
    return tuple(found)


def beside_sentences(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], machines: Sequence[FrontMachine]
) -> tuple[str, ...]:
    """How a front stands to machines: the speed at no more of what they take, and what is least at no less speed."""
    if FrontAxis.THROUGHPUT not in axes:
        return ()
    return tuple(_beside_sentence(front, [axis for axis in LEAST if axis in axes], each) for each in machines)


def machines_to_json(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], machines: Sequence[FrontMachine]
) -> list[dict[str, Any]]:
    """What `beside_sentences` say: null and empty where nothing takes as little, or is as fast."""
    found = []
    for machine in machines if front else ():
        stands = _stands(front, [axis for axis in LEAST if axis in axes], machine)
        found.append(
            {
                "name": machine.name,
                THROUGHPUT: machine.throughput_samples_per_s,
                SAME_SOFTWARE: machine.same_software_samples_per_s,
                **{KEYS[axis]: amount for axis, amount in machine.amounts.items()},
                "times_speed": stands.times_speed,
                "times_taken": {KEYS[axis]: ratio for axis, ratio in stands.times_taken.items()},
            }
        )
    return found


@dataclass(frozen=True, slots=True)
class _Stands:
    """How a front stands to a machine.

    Attributes:
        times_speed: its speed at no more of what the machine takes, over the machine's; None where nothing takes as
            little.
        times_taken: the least that it takes of each at no less speed, over the machine's; empty if nothing is as fast.
    """

    times_speed: float | None
    times_taken: Mapping[FrontAxis, float]


def _stands(front: Sequence[FrontMember], axes: Sequence[FrontAxis], machine: FrontMachine) -> _Stands:
    known, rate = [axis for axis in axes if axis in machine.amounts], machine.throughput_samples_per_s
    frugal = [each for each in front if all(each.amounts[axis] <= machine.amounts[axis] for axis in known)]
    fast = [each for each in front if each.throughput_samples_per_s >= rate]
    least = {axis: min(each.amounts[axis] for each in fast) / machine.amounts[axis] for axis in known if fast}
    return _Stands(max(each.throughput_samples_per_s for each in frugal) / rate if frugal else None, least)


def _beside_sentence(front: Sequence[FrontMember], axes: Sequence[FrontAxis], machine: FrontMachine) -> str:
    known, rate = [axis for axis in axes if axis in machine.amounts], machine.throughput_samples_per_s
    takes = ", ".join(f"{format_number(machine.amounts[axis])} {UNITS[axis]}" for axis in known)
    stands = _stands(front, axes, machine)
    spared, slower = "nothing on it takes as little", "nothing on it is as fast"
    if stands.times_speed is not None:
        each_of = "it" if len(known) == 1 else "each"
        spared = f"at no more of {each_of} the front has {stands.times_speed:.2f} times its speed"
    if stands.times_taken:
        least = [f"{ratio:.2f} times its {UNITS[axis]}" for axis, ratio in stands.times_taken.items()]
        slower = f"at no less speed it takes as little as {' or '.join(least)}"
    said = machine.rate_words or f"{format_number(rate)} samples/s"
    size = ", ".join(filter(None, (said, takes)))
    return f"Beside {machine.name} ({size}): {spared}; {slower}."


@dataclass(frozen=True, slots=True)
class Heights:
    """What stands upwards in the figures of a front: a rate of its designs and machines.

    Attributes:
        name: of the first figure; the others have their axis behind it.
        title, label: of the figures, and of their axis.
        highest: what the highest design is called.
        ticks: how the axis is written.
        words: a height in words.
        taken: behind the label of what is taken.
        tops: how far up each design, by number, and each machine, by name, reaches from there; none where they do not.
    """

    name: str
    title: str
    label: str
    highest: str
    ticks: str
    words: Callable[[float], str]
    taken: str = ""
    tops: Mapping[int | str, float] = field(default_factory=dict)

    def told(self, key: int | str, height: float) -> str:
        """From where to where, in words."""
        words, top = self.words(height), self.tops.get(key, height)
        return words if top == height else f"{words}, up to {self.words(top)}"


SPEED = Heights(
    "front", "The proved front: throughput", "throughput, samples/s", FASTEST, "~s",
    lambda rate: f"{format_number(rate)} samples/s",
)  # fmt: skip


def front_figures(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], machines: Sequence[FrontMachine], heights: Heights = SPEED
) -> dict[str, Figure]:
    """The front in throughput over each other goal, coloured by the goal after it; machines as diamonds."""
    taken = [axis for axis in (FrontAxis.AREA, FrontAxis.TDP, FrontAxis.COST) if axis in axes]
    return {
        heights.name if not place else f"{heights.name}_{axis.value}": _front_figure(
            front, axes, (axis, taken[(place + 1) % len(taken)]), machines, heights
        )
        for place, axis in enumerate(taken)
    }


def _front_figure(
    front: Sequence[FrontMember],
    axes: Sequence[FrontAxis],
    shown: tuple[FrontAxis, FrontAxis],
    machines: Sequence[FrontMachine],
    heights: Heights,
) -> Figure:
    """One of them, over the first of two goals and coloured by the second."""
    import plotly.graph_objects as go

    axis, colour = shown
    label = AXIS_LABELS[axis]
    figure = go.Figure()
    places = [(each.amounts[axis], each.throughput_samples_per_s) for each in front]
    tops = _add_reaches(figure, front, axis, machines, heights)
    figure.add_scatter(
        x=[x for x, _ in places], y=[y for _, y in places],
        mode="markers", name="on the front", text=[_described(each, heights) for each in front], hoverinfo="text",
        showlegend=False,
        marker={"color": [each.amounts[colour] for each in front], "colorscale": SCALE, "size": 9, "line": dict(RIM),
                "colorbar": {"title": {"text": AXIS_LABELS[colour], "side": "right"}, "thickness": 14}},
    )  # fmt: skip
    marks = [*_named_marks(front, axes, axis, heights), *_machine_marks(machines, axis, heights)]
    figure.update_xaxes(title=label + heights.taken)
    figure.update_yaxes(title=heights.label, tickformat=heights.ticks)
    apply_style(figure, f"{heights.title} over {label.partition(',')[0]}")
    frame = Frame.around([*places, *tops, *((mark.x, mark.y) for mark in marks)])
    add_marks(figure, marks, crowd=[*places, *tops], frame=frame)
    return figure


def _add_reaches(
    figure: Figure, front: Sequence[FrontMember], axis: FrontAxis, machines: Sequence[FrontMachine], heights: Heights
) -> list[tuple[float, float]]:
    """Lines from each design and machine up to where it reaches; their ends."""
    of_designs = [(each.number, each.amounts[axis], each.throughput_samples_per_s) for each in front]
    known = [each for each in machines if axis in each.amounts]
    of_machines = [(each.name, each.amounts[axis], each.throughput_samples_per_s) for each in known]
    ends: list[tuple[float, float]] = []
    for ink, rows in ((MUTED_COLOUR, of_designs), (REFERENCE_COLOUR, of_machines)):
        lines = [((x, x, None), (low, heights.tops[key], None)) for key, x, low in rows if key in heights.tops]
        if lines:
            figure.add_scatter(
                x=[x for across, _ in lines for x in across], y=[y for _, up in lines for y in up],
                mode="lines", line={"color": ink, "width": 1}, hoverinfo="skip", showlegend=False,
            )  # fmt: skip
        ends += [(across[0], up[1]) for across, up in lines]
    return ends


def _named_marks(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], axis: FrontAxis, heights: Heights
) -> Iterator[Mark]:
    """The highest design, the one that takes least, and the knee, as rings; of one with two names, both."""
    choices = choices_of(front, axes)
    own = (FASTEST, LEAST[axis].value, KNEE)
    called: dict[int, list[str]] = {}
    for each in choices:
        if each.within is None and each.name in own:
            name = heights.highest if each.name == FASTEST else each.name
            called.setdefault(each.member.number, []).append(name)
    members = {each.number: each for each in front}
    for place, names in called.items():
        member = members[place]
        yield Mark(
            ", ".join(names), member.amounts[axis], member.throughput_samples_per_s, "circle-open", 17, BEST_COLOUR,
            _described(member, heights),
        )  # fmt: skip


def _machine_marks(machines: Sequence[FrontMachine], axis: FrontAxis, heights: Heights) -> Iterator[Mark]:
    """Machines of which what the axis shows is known, as diamonds."""
    for each in machines:
        if axis in each.amounts:
            amount, rate = each.amounts[axis], each.throughput_samples_per_s
            said = f"{each.name}: {heights.told(each.name, rate)}, {format_number(amount)} {UNITS[axis]}"
            yield Mark(each.name, amount, rate, "diamond", 12, REFERENCE_COLOUR, said)


MAX_ROWS = 12
"""Designs of a front in the table: those with a name, then some between; JSON has all of it."""
UNITS = {FrontAxis.AREA: "mm2", FrontAxis.TDP: "W", FrontAxis.COST: "USD"}
KEYS = {FrontAxis.AREA: "area_mm2", FrontAxis.TDP: "tdp_w", FrontAxis.COST: "cost_usd"}


def trade_off_sentences(front: Sequence[FrontMember], axes: Sequence[FrontAxis]) -> tuple[str, ...]:
    """The ends of a front, what is least within 1 and 5 % of the fastest, and the knee; nothing of a front of one."""
    if len(front) < 2:
        return tuple(f"It is {_described(each)}." for each in front)
    choices = choices_of(front, axes)
    knee = next(each.member for each in choices if each.name == KNEE)
    return tuple(filter(None, (_ends_sentence(choices), _near_sentence(choices), f"Its knee is {_described(knee)}.")))


def _ends_sentence(choices: Sequence[FrontChoice]) -> str:
    """From the fastest to what takes least, or what takes least by each goal."""
    ends: dict[int, tuple[FrontMember, list[str]]] = {}
    for each in choices:
        if each.within is None and each.name != KNEE:
            ends.setdefault(each.member.number, (each.member, []))[1].append(each.name)
    parts = [f"the {joined(names)} is {_described(member)}" for member, names in ends.values()]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _near_sentence(choices: Sequence[FrontChoice]) -> str:
    """What the least near the fastest take."""
    units = {name.value: UNITS[axis] for axis, name in LEAST.items()}
    axis_of = {name.value: axis for axis, name in LEAST.items()}
    parts = []
    for within in WITHIN:
        found = [each for each in choices if each.within == within]
        least = [
            f"the {each.name} takes {format_number(each.member.amounts[axis_of[each.name]])} {units[each.name]}"
            for each in found
        ]
        if least:
            parts.append(f"within {100.0 * within:g} % of the {FASTEST} {joined(least)}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _described(member: FrontMember, heights: Heights = SPEED) -> str:
    takes = ", ".join(f"{format_number(amount)} {UNITS[axis]}" for axis, amount in member.amounts.items())
    return f"{describe_chip(member.point)} ({heights.told(member.number, member.throughput_samples_per_s)}, {takes})"


def shown_members(front: Sequence[FrontMember], axes: Sequence[FrontAxis]) -> tuple[FrontMember, ...]:
    """Those in the table, fastest first: the ones with a name, and others evenly taken."""
    ordered = sorted(front, key=lambda each: (-each.throughput_samples_per_s, each.number))
    named = {each.member.number for each in choices_of(front, axes)}
    room = max(MAX_ROWS - len(named), 0)
    others = [each.number for each in ordered if each.number not in named]
    kept = {others[(2 * place + 1) * len(others) // (2 * room)] for place in range(min(room, len(others)))}
    if len(others) <= room:
        kept = set(others)
    return tuple(each for each in ordered if each.number in named | kept)


def front_table(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], *, has_plans: bool, numbered: str = "no."
) -> TableContent:
    """The front, fastest first; of a long one the designs with a name and some between.

    Args:
        front: its designs.
        axes: its goals.
        has_plans: whether designs train under full plans, whose micro-batch is none of a design.
        numbered: what the designs' numbers are.
    """
    shown = shown_members(front, axes)
    called = _called(choices_of(front, axes))
    rates = numbers_apart([each.throughput_samples_per_s for each in shown])
    fields: Fields[tuple[FrontMember, str]] = (
        number(numbered, lambda item: f"{item[0].number:,}"),
        lines("design", lambda item: called.get(item[0].number, ("",))),
        number("samples/s", lambda item: item[1]),
        *(number(UNITS[axis], partial(_taken, axis)) for axis in UNITS if all(axis in each.amounts for each in shown)),
        *chip_fields(lambda item: item[0].point),
        *(() if has_plans else (number("mb", lambda item: f"{item[0].point.micro_batch}"),)),
    )
    note = chip_note([each.point for each in shown], has_micro_batch=not has_plans)
    if len(shown) < len(front):
        note = f"{len(shown)} of {len(front):,}; {note}"
    return table_of("The front", fields, zip(shown, rates, strict=True), note)


def _taken(axis: FrontAxis, item: tuple[FrontMember, str]) -> str:
    return format_number(item[0].amounts[axis])


def _called(choices: Sequence[FrontChoice]) -> dict[int, tuple[str, ...]]:
    """All names of a design, by its number."""
    found: dict[int, tuple[str, ...]] = {}
    for each in choices:
        found[each.member.number] = (*found.get(each.member.number, ()), each.words)
    return found


def again_lines(front: Sequence[FrontMember], axes: Sequence[FrontAxis], scenario: Scenario) -> tuple[str, ...]:
    """How to evaluate the fastest design and the knee, a line each."""
    asked = [each for each in choices_of(front, axes) if each.within is None]
    firsts = {each.member.number: each for each in asked if each.name in (FASTEST, KNEE)}
    return tuple(f"The {each.name} again: {arch_option(each.member.point, scenario)}" for each in firsts.values())


def arch_table(front: Sequence[FrontMember], axes: Sequence[FrontAxis], scenario: Scenario) -> TableContent:
    """Each design of the front's table as ``evaluate`` takes it."""
    fields: Fields[FrontMember] = (
        number("no.", lambda each: f"{each.number:,}"),
        words("--arch", lambda each: arch_option(each.point, scenario).removeprefix("--arch ")),
    )
    return table_of("Evaluate a design of the front", fields, shown_members(front, axes), "")


def arch_lines(front: Sequence[FrontMember], axes: Sequence[FrontAxis], scenario: Scenario) -> tuple[str, ...]:
    """The same for a terminal: whole lines, as cells of a table break where it is narrow and cannot be copied."""
    shown = shown_members(front, axes)
    return (
        "Evaluate a design of the front, by its number:",
        *(f"{each.number}: {arch_option(each.point, scenario)}" for each in shown),
    )


def choices_to_json(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], scenario: Scenario, *, ranges: Mapping[int, HeadlineRange]
) -> list[dict[str, Any]]:
    """The designs of a front that have a name, one object a design.

    Args:
        front: its designs.
        axes: its goals.
        scenario: what they train.
        ranges: of designs by number; null for the others.
    """
    choices = choices_of(front, axes)
    called, members = _called(choices), {each.member.number: each.member for each in choices}
    return [
        {
            "number": number,
            "names": list(called[number]),
            "arch": arch_of(member.point, scenario),
            "architecture": asdict(member.point),
            THROUGHPUT: member.throughput_samples_per_s,
            **{KEYS[axis]: amount for axis, amount in member.amounts.items()},
            "range": range_to_json(ranges.get(number)),
        }
        for number, member in members.items()
    ]
