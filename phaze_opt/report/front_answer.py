"""What is said first of a front, proved or searched: its ends, what little less speed saves, its knee; its table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from phaze_opt.certify.result import CertifyResult
from phaze_opt.objective.front_choices import FASTEST, KNEE, LEAST, FrontChoice, FrontMember, choices_of
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.objective.least_within import WITHIN
from phaze_opt.report.answer import joined
from phaze_opt.report.chip import chip_fields, chip_note, describe_chip
from phaze_opt.report.headline import range_to_json
from phaze_opt.report.table import Fields, TableContent, lines, number, table_of, words
from phaze_opt.report.text import format_number, numbers_apart

MAX_ROWS = 12
"""Designs of a front in the table: those with a name, then some between; JSON has all of it."""
UNITS = {FrontAxis.AREA: "mm2", FrontAxis.TDP: "W", FrontAxis.COST: "USD"}
KEYS = {FrontAxis.AREA: "area_mm2", FrontAxis.TDP: "tdp_w", FrontAxis.COST: "cost_usd"}


def members_of(result: CertifyResult) -> tuple[FrontMember, ...]:
    """The designs on a proved front, numbered from 1."""
    found = []
    for place, design in enumerate(result.front, start=1):
        amounts = {FrontAxis.AREA: design.area_mm2, FrontAxis.TDP: design.tdp_w}
        if design.cost_usd is not None:
            amounts[FrontAxis.COST] = design.cost_usd
        found.append(FrontMember(place, design.point, design.throughput_samples_per_s, amounts))
    return tuple(found)


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


def _described(member: FrontMember) -> str:
    takes = ", ".join(f"{format_number(amount)} {UNITS[axis]}" for axis, amount in member.amounts.items())
    return f"{describe_chip(member.point)} ({format_number(member.throughput_samples_per_s)} samples/s, {takes})"


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


def front_table(front: Sequence[FrontMember], axes: Sequence[FrontAxis], *, numbered: str = "no.") -> TableContent:
    """The front, fastest first; of a long one the designs with a name and some between.

    Args:
        front: its designs.
        axes: its goals.
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
        number("mb", lambda item: f"{item[0].point.micro_batch}"),
    )
    note = chip_note([each.point for each in shown], has_micro_batch=True)
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


def again_lines(front: Sequence[FrontMember], axes: Sequence[FrontAxis], *, has_plans: bool) -> tuple[str, ...]:
    """How to evaluate the fastest design and the knee, a line each."""
    asked = [each for each in choices_of(front, axes) if each.within is None]
    firsts = {each.member.number: each for each in asked if each.name in (FASTEST, KNEE)}
    return tuple(f"The {each.name} again: --arch {arch_of(each.member, has_plans)}" for each in firsts.values())


def arch_table(front: Sequence[FrontMember], axes: Sequence[FrontAxis], *, has_plans: bool) -> TableContent:
    """Each design of the front's table as ``evaluate`` takes it."""
    fields: Fields[FrontMember] = (
        number("no.", lambda each: f"{each.number:,}"),
        words("--arch", lambda each: arch_of(each, has_plans)),
    )
    return table_of("Evaluate a design of the front", fields, shown_members(front, axes), "")


def arch_of(member: FrontMember, has_plans: bool) -> str:
    """A design as ``evaluate --arch`` takes it; beside Phaze's placements with its micro-batch, else a plan's."""
    return member.point.inline() + ("" if has_plans else f" --micro-batch {member.point.micro_batch}")


def choices_to_json(
    front: Sequence[FrontMember], axes: Sequence[FrontAxis], *, has_plans: bool, ranges: Mapping[int, HeadlineRange]
) -> list[dict[str, Any]]:
    """The designs of a front that have a name, one object a design.

    Args:
        front: its designs.
        axes: its goals.
        has_plans: whether designs train under full plans.
        ranges: of designs by number; null for the others.
    """
    choices = choices_of(front, axes)
    called, members = _called(choices), {each.member.number: each.member for each in choices}
    return [
        {
            "number": number,
            "names": list(called[number]),
            "arch": arch_of(member, has_plans),
            "architecture": asdict(member.point),
            "throughput_samples_per_s": member.throughput_samples_per_s,
            **{KEYS[axis]: amount for axis, amount in member.amounts.items()},
            "range": range_to_json(ranges.get(number)),
        }
        for number, member in members.items()
    ]
