"""An analysis of robustness in words and tables: which conclusions survive, and what each design forgoes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from phaze_opt.certify.certificate import DesignOverWorlds, FrontOverWorlds
from phaze_opt.certify.check.worlds import FrontReport
from phaze_opt.certify.robust.result import (
    Conclusion,
    ConclusionKind,
    GroupEffect,
    NamedWorld,
    OverWorlds,
    RobustDesign,
    RobustResult,
    WorldOptimum,
    worlds_of_front,
    worlds_of_result,
)
from phaze_opt.certify.robust.worlds import UncertainConstant
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.objective.least_within import FrontMember
from phaze_opt.report.answer import joined
from phaze_opt.report.certificate import axes_words, format_gap
from phaze_opt.report.chip import chip_fields, chip_note, describe_chip, short_point
from phaze_opt.report.front import KEYS, FrontMachine, Heights, front_pictures
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import (
    GOAL_UNITS,
    counted,
    format_number,
    format_percentage,
    format_ratio,
    format_time,
    shown_value,
)

if TYPE_CHECKING:
    from phaze_opt.report.picture import Picture

MAX_DESIGNS = 8
"""Designs in the table; the file holds all."""
MOST_NAMED = 3
"""Worlds that a sentence names."""


def robust_contents(result: RobustResult) -> list[TableContent]:
    """All tables, for a page: those of `robust_summary`, then worlds and assumptions."""
    return [*robust_summary(result), worlds_table(result), assumptions_table(result)]


def robust_summary(result: RobustResult) -> list[TableContent]:
    """What a terminal has room for: conclusions, designs, and what each assumption is worth."""
    contents = [conclusions_table(result), designs_table(result)] if result.conclusions else []
    return [*contents, effects_table(result)] if result.effects else contents


ONLY_ONCE = (
    "No other code checked what is said over the worlds: a check covers the optimum as the assumptions stand. Fronts "
    "over worlds (--objective throughput,tdp) are checked."
)


def minimax_sentences(result: RobustResult) -> tuple[str, ...]:
    """What the nominal best design may forgo, what the most robust one of its equals, and what the best compromise."""
    minimax = result.minimax
    if minimax.point is None:
        return (f"None of the {minimax.num_points:,} points is feasible in any of the {len(result.worlds)} worlds.",)
    if minimax.regret <= result.tolerance:
        best = f"{short_point(minimax.point)} is within {_percent(result.tolerance)} of the optimum"
        return (f"{best} in every one of the {len(result.worlds)} worlds: no assumption matters for the choice.",)
    nominal = _nominal_best(result)
    sentences = [] if nominal is None else [*_nominal_sentences(result, nominal)]
    proof = "proved" if minimax.is_proved else "not proved within the tolerance"
    sentences.append(
        f"The min-max-regret design, {short_point(minimax.point)}, forgoes at most {_percent(minimax.regret)} in "
        f"any of the {len(result.worlds)} worlds ({_where(result, minimax.worst_world)}); of all "
        f"{minimax.num_points:,} points none forgoes less than {_percent(minimax.regret_lower)} everywhere ({proof})."
    )
    return tuple(sentences)


def _nominal_sentences(result: RobustResult, nominal: RobustDesign) -> Iterator[str]:
    """What the nominal best design forgoes, and where it is none."""
    missing = [row for row, regret in enumerate(nominal.regrets) if regret == 1.0]
    regrets = {row: regret for row, regret in enumerate(nominal.regrets) if regret < 1.0}
    worst = max(regrets, key=regrets.__getitem__)
    if missing:
        where = "; ".join(_where(result, row) for row in missing)
        yield (
            f"In {len(missing)} of the {len(result.worlds)} worlds the nominal best design cannot be built or breaks a "
            f"budget ({where}); in the others it forgoes up to {_percent(regrets[worst])} of the optimum "
            f"({_where(result, worst)})."
        )
        return
    tied = result.nominal_minimax
    yield (
        f"If the assumptions are wrong, the nominal best design forgoes up to {_percent(nominal.worst_regret)} "
        f"of the optimum ({_where(result, nominal.worst_world)}); of the designs within "
        f"{_percent(result.tolerance)} of it the most robust one forgoes up to {_percent(tied.regret)}."
    )


def conclusions_table(result: RobustResult) -> TableContent:
    """Which conclusions of the nominal world hold in how many worlds, and the worst case of each."""
    fields: Fields[Conclusion] = (
        words("conclusion", lambda conclusion: conclusion.statement),
        number("holds in", _held),
        words("over the worlds", _spread),
        words("worst in", lambda found: result.worlds[found.worst_world].name if found.worst_world >= 0 else "-"),
    )
    worst = [found.worst_world for found in result.conclusions if found.worst_world >= 0]
    survivors = sum(conclusion.survives for conclusion in result.conclusions)
    note = (
        f"{survivors} of {len(result.conclusions)} conclusions survive every world; a best design is one within "
        f"{_percent(result.tolerance)} of the world's optimum; ?: worlds left in doubt, counted as not holding"
        f"{_corners_note(worlds_of_result(result), worst)}"
    )
    return table_of(
        "Which conclusions survive", fields, result.conclusions, note, emphasis=lambda conclusion: conclusion.survives
    )


def designs_table(result: RobustResult) -> TableContent:
    """Good designs and references by the most that they forgo."""
    fields: Fields[RobustDesign] = (
        words("design", lambda design: design.name if design.point is None else _role(design)),
        words("cores, GLB, HBM", lambda d: "reference" if d.point is None else short_point(d.point)),
        number("worst", _worst),
        number("mean", lambda design: _percent(math.fsum(design.regrets) / len(design.regrets))),
        number("nominal", lambda design: _regret(design.regrets[0])),
        words("worst in", lambda design: result.worlds[design.worst_world].name),
    )
    ranked = sorted(result.designs, key=lambda design: design.worst_regret)
    in_space = [design for design in ranked if design.point is not None]
    nominal = _nominal_best(result)
    shown = [*in_space[:MAX_DESIGNS], *(d for d in in_space[MAX_DESIGNS:] if d is nominal)]
    shown += [design for design in ranked if design.point is None]
    note = (
        "regret: share of the world's optimum that the design forgoes; worst, mean over worlds, in the nominal one; "
        "infeasible counts as 100 %, in so many worlds"
        f"{_corners_note(worlds_of_result(result), _rows_named(result, shown))}"
    )
    left = len(result.designs) - len(shown)
    if left:
        note += f"; {left} more in the file"
    return table_of(
        "Regret of good designs", fields, shown, note, emphasis=lambda design: design.index == result.minimax.index
    )


def effects_table(result: RobustResult) -> TableContent:
    """What each group of assumptions does to the optimum by itself."""
    fields: Fields[GroupEffect] = (
        words("assumption", lambda effect: effect.group.value),
        number("optimum, low to high", lambda effect: f"{math.exp(effect.mean_log_ratio):.3f}x"),
        number("least", lambda effect: f"{math.exp(effect.least_log_ratio):.3f}x"),
        number("largest", lambda effect: f"{math.exp(effect.largest_log_ratio):.3f}x"),
        number("one design best at both", lambda e: f"{round(e.share_shared * e.num_pairs)}/{e.num_pairs}"),
    )
    effects = sorted(result.effects, key=lambda effect: -abs(effect.mean_log_ratio))
    note = (
        "factor on the optimum when that group alone goes from low to high: geometric mean and range over the corners; "
        f"best: within {_percent(result.tolerance)}"
    )
    return table_of("What each assumption is worth", fields, effects, note)


def assumptions_table(result: RobustResult) -> TableContent:
    """What was varied, and what was not."""
    fields: Fields[tuple[str, UncertainConstant]] = (
        words("assumption", lambda item: item[0]),
        words("constant", lambda item: item[1].key.partition(".")[2] + (" (opposed)" if item[1].is_opposed else "")),
        words("low", lambda item: f"{item[1].low:g}"),
        words("nominal", lambda item: f"{item[1].nominal:g}"),
        words("high", lambda item: f"{item[1].high:g}"),
        words("unit", lambda item: item[1].unit),
    )
    items = [
        (group.group.value if position == 0 else "", constant)
        for group in result.assumptions.groups
        for position, constant in enumerate(group.constants)
    ]
    sampled = result.assumptions.sampled
    items += [("die areas, in samples" if not place else "", each) for place, each in enumerate(sampled)]
    notes = [
        "a group's constants stand at one end together in corners, apart in samples; opposed: high where it is low"
    ]
    notes += [f"left out: {entry.group.value} ({entry.reason})" for entry in result.assumptions.left_out]
    others = result.assumptions.alternatives
    if others:
        notes.append(f"choices made otherwise, one at a time: {', '.join(each.name for each in others)}")
    notes += [f"not varied: {each.name} ({each.reason})" for each in result.assumptions.not_varied]
    return table_of("Assumptions and their ranges", fields, items, "; ".join(notes))


def worlds_table(result: RobustResult) -> TableContent:
    """The certified optimum of every world."""
    goal, base, named = Goal(result.goal), result.optima[0].value, worlds_of_result(result)
    fields: Fields[tuple[int, WorldOptimum]] = (
        words("world", lambda item: named[item[0]].label),
        words("which is", lambda item: named[item[0]].words),
        number(
            GOAL_UNITS[goal],
            lambda item: "infeasible" if item[1].point is None else format_number(shown_value(goal, item[1].value)),
        ),
        number("/ nominal", lambda item: format_ratio(item[1].value / base) if item[1].point and base > 0.0 else "-"),
        number("gap", lambda item: "-" if item[1].point is None else format_gap(item[1].gap)),
        words("best design", lambda item: "-" if item[1].point is None else short_point(item[1].point)),
        number("nominal best", lambda item: "-" if item[1].point is None else _nominal_regret(result, item[0])),
    )
    note = (
        "nominal best: what it forgoes there; each certified; "
        f"worlds in which every point is worth the same are proved once ({result.num_distinct_worlds})"
    )
    return table_of(f"The optimum of {len(result.optima)} worlds", fields, enumerate(result.optima), note)


def _worst(design: RobustDesign) -> str:
    """The largest regret; of a design that some worlds do not have their number."""
    count = design.num_infeasible
    return f"infeasible in {count}" if count else _percent(design.worst_regret)


def _regret(regret: float) -> str:
    """A regret; of a design that a world does not have there is none."""
    return "infeasible" if regret == 1.0 else _percent(regret)


def _corners_note(worlds: Sequence[NamedWorld], rows: Iterable[int]) -> str:
    """What the corners are that a table names, each once, as the end of its note."""
    named = [worlds[row] for row in sorted(set(rows))]
    return "".join(f"; {each.label}: {each.words}" for each in named if each.words != each.label)


def _held(conclusion: Conclusion) -> str:
    has_proof = conclusion.kind in (ConclusionKind.NOMINAL_BEST, ConclusionKind.SHAPE)
    num_open = sum(not is_proved for is_proved in conclusion.is_proved) if has_proof else 0
    return f"{sum(conclusion.holds)}/{len(conclusion.holds)}" + (f" {num_open}?" if num_open else "")


def _spread(conclusion: Conclusion) -> str:
    """What was found over the worlds: a range of figures, or what else there is and how often."""
    numbers = [float(value) for value in conclusion.found if not isinstance(value, str)]
    if conclusion.kind is ConclusionKind.NOMINAL_BEST:
        return f"forgoes up to {_percent(max(numbers))}"
    if conclusion.kind is ConclusionKind.SHAPE:
        return f"keeping it forgoes up to {_percent(max(numbers))}"
    if conclusion.kind is ConclusionKind.REFERENCE:
        return f"{format_ratio(min(numbers))} to {format_ratio(max(numbers))}"
    words = [str(value) for value in conclusion.found]
    counts = sorted({word: words.count(word) for word in words}.items(), key=lambda entry: -entry[1])
    return ", ".join(f"{word} ({count})" for word, count in counts)


def _role(design: RobustDesign) -> str:
    """The first reason for a design, and how many others."""
    others = len(design.roles) - 1
    return f"{design.roles[0]} (+{others})" if others > 0 else design.roles[0]


def _rows_named(result: RobustResult, designs: Sequence[RobustDesign]) -> Iterator[int]:
    """Worlds that a table of designs names: where they are worst, and where they are the best."""
    rows = {f"best in {world.name}": row for row, world in enumerate(result.worlds)}
    for each in designs:
        yield each.worst_world
        if each.roles and each.roles[0] in rows:
            yield rows[each.roles[0]]


def _nominal_best(result: RobustResult) -> RobustDesign | None:
    """The nominal world's best design; None if nothing is feasible there."""
    optimum = result.optima[0]
    designs: Sequence[RobustDesign] = [d for d in result.designs if d.index == optimum.index and optimum.is_feasible]
    return designs[0] if designs else None


def _nominal_regret(result: RobustResult, row: int) -> str:
    """What the nominal best design forgoes in a world."""
    nominal = _nominal_best(result)
    return "-" if nominal is None else _regret(nominal.regrets[row])


def _where(result: RobustResult, row: int) -> str:
    """A world, as part of a sentence."""
    return worlds_of_result(result)[row].place


def _percent(share: float) -> str:
    """Two digits, or three from ten per cent; rounding reads as zero, and a reference may be better than the space."""
    if abs(share) < 5e-6:
        return "0 %"
    return format_percentage(share)


def over_worlds_sentences(over: OverWorlds) -> tuple[str, ...]:
    """How many designs are on a front over worlds, how safe the safest is, and what is left of the nominal front."""
    front, nominal = over.front, over.nominal
    state = "Proved" if front.is_proved else "Not proved"
    named = worlds_of_front(front)
    if not front.designs:
        return (
            f"No design works in each of {_counted_worlds(front)}: in some each cannot be built, breaks a budget or "
            "fits no memory.",
            *_where_unbuilt(over, named),
        )
    count = len(front.designs)
    designs = f"{count:,} designs are" if count != 1 else "one design is"
    kept = len({each.point for each in front.designs} & set(nominal))
    found = (
        f"{state} within {format_gap(front.tolerance)}, over {_counted_worlds(front)}: {designs} on the front of "
        f"{axes_words(front.axes)} whichever of these the assumptions turn out to be ({kept:,} of {count:,} "
        f"{'is' if kept == 1 else 'are'} among the {len(nominal):,} as they stand; gap {format_gap(front.gap)})."
    )
    safest = max(front.designs, key=lambda each: each.share)
    return (
        found,
        f"The safest of them, {describe_chip(safest.point)}, attains at least {_percent(safest.share)} of the best "
        f"design of each, which is known within {format_gap(front.tolerance)} "
        f"(least {named[safest.worst_world].place}).",
        *_fate_of_nominal(over, named),
    )


def _counted_worlds(front: FrontOverWorlds) -> str:
    """The worlds that a front is over: where nothing is feasible no design is blamed, nor counts what it takes."""
    left_out = sum(world.value == 0.0 for world in front.worlds)
    others = f" (not counting {left_out:,} more, where nothing is feasible)" if left_out else ""
    return f"{len(front.worlds) - left_out:,} worlds{others}"


def _where_unbuilt(over: OverWorlds, named: Sequence[NamedWorld]) -> tuple[str, ...]:
    """Where most designs of the nominal front cannot be built."""
    ranked = sorted((at for at in over.counted if over.unbuilt[at]), key=lambda at: -len(over.unbuilt[at]))
    if not ranked:
        return ()
    first, *others = ranked[:MOST_NAMED]
    worst = joined(
        [f"{len(over.unbuilt[first]):,} cannot be built within the budgets {named[first].place}"]
        + [f"{len(over.unbuilt[at]):,} {named[at].place}" for at in others]
    )
    left = len(ranked) - MOST_NAMED
    more = f", and some in {counted(left, 'world')} more" if left > 0 else ""
    return (f"Of the {len(over.nominal):,} on the front as the assumptions stand {worst}{more}.",)


def _fate_of_nominal(over: OverWorlds, named: Sequence[NamedWorld]) -> tuple[str, ...]:
    """In how many worlds the design that is fastest as the assumptions stand cannot be built, and how many others."""
    lost = [point for point in over.nominal if over.names_without(point)]
    if not lost:
        return ()
    all_worlds = f"of the {len(over.counted):,} worlds"
    several = f"of the {len(over.nominal):,} on the front as the assumptions stand {len(lost):,} cannot"
    fastest = over.nominal[0]
    names = [named[at].words for at in over.counted if fastest in over.unbuilt[at]]
    if not names:
        return (f"{several[0].upper()}{several[1:]} be built within the budgets in some {all_worlds}.",)
    left = len(names) - MOST_NAMED
    which = "; ".join([*names[:MOST_NAMED], *([f"{left:,} more"] if left > 0 else [])])
    return (
        f"The fastest as the assumptions stand, {describe_chip(fastest)}, cannot be built within the budgets in "
        f"{len(names):,} {all_worlds} ({which}); {several} in some.",
    )


def over_worlds_table(front: FrontOverWorlds) -> TableContent:
    """Designs on a front over worlds, the safest first; of a long one the ends and some between."""
    ranked, named = sorted(front.designs, key=lambda each: (-each.share, each.row)), worlds_of_front(front)
    places = np.unique(np.linspace(0, len(ranked) - 1, MAX_DESIGNS).round().astype(int))
    shown = [ranked[place] for place in places]
    fields: Fields[DesignOverWorlds] = (
        number("least", lambda each: _percent(each.share)),
        number("samples/s", lambda each: format_number(each.throughput_samples_per_s)),
        number("mm2", lambda each: format_number(each.area_mm2)),
        number("W", lambda each: format_number(each.tdp_w)),
    )
    if FrontAxis.COST in front.axes:
        fields = (*fields, number("USD", lambda each: format_number(each.cost_usd or 0.0)))
    fields = (
        *fields,
        *chip_fields(lambda each: each.point),
        *(() if front.scenario.plans is not None else (number("mb", lambda each: f"{each.point.micro_batch}"),)),
        words("least at", lambda each: named[each.worst_world].label),
    )
    note = (
        "least: share of the best design of a world, over all that count; samples/s: as the assumptions stand; "
        f"{'mm2, W and USD' if FrontAxis.COST in front.axes else 'mm2 and W'}: the most in any of these; "
        + chip_note([each.point for each in shown], has_micro_batch=front.scenario.plans is None)
        + _corners_note(named, [each.worst_world for each in shown])
    )
    if len(shown) < len(ranked):
        note = f"{len(shown)} of {len(ranked):,}; {note}"
    return table_of("The front over worlds", fields, shown, note)


def over_worlds_to_json(over: OverWorlds) -> dict[str, Any]:
    """A front over worlds as JSON, with machines in these, and where designs of the nominal front cannot be built."""
    without = [(point.inline(), over.names_without(point)) for point in over.nominal]
    return {
        **front_over_worlds_to_json(over.front),
        "baselines": [
            {
                "name": each.name,
                "share": min(each.shares[at] for at in over.counted),
                "share_lower": _share_lower(over.front, each.shares),
                "shares": list(each.shares),
                **each.takes,
            }
            for each in over.machines
        ],
        "unbuilt": [{"arch": arch, "worlds": list(names)} for arch, names in without if names],
    }


def _share_lower(front: FrontOverWorlds, shares: Sequence[float]) -> float | None:
    """The least share of what each world's optimum is at most; None where nothing is feasible."""
    pairs = zip(front.worlds, shares, strict=False)
    return min((share * world.value / world.value_upper for world, share in pairs if world.value > 0.0), default=None)


def front_over_worlds_to_json(front: FrontOverWorlds) -> dict[str, Any]:
    """The statement of a front over worlds: its designs, and the optimum of each world."""
    return {
        "tolerance": front.tolerance,
        "gap": front.gap,
        "is_proved": front.is_proved,
        "num_points": front.num_points,
        "num_solved": front.num_solved,
        "designs": [
            {
                **{name: value for name, value in asdict(design).items() if name != "point"},
                "arch": design.point.inline(),
                "share_lower": _share_lower(front, design.shares),
                "worst_world": front.worlds[design.worst_world].name,
            }
            for design in front.designs
        ],
        "worlds": [asdict(world) for world in front.worlds],
    }


def over_worlds_pictures(over: OverWorlds) -> dict[str, Picture]:
    """The front over worlds: the least share over the most of each goal, and up to where each design attains most."""
    front = over.front
    designs = sorted(front.designs, key=lambda each: (-each.share, each.row))
    members = [
        FrontMember(number, each.point, each.share, _amounts({name: getattr(each, name) for name in KEYS.values()}))
        for number, each in enumerate(designs, start=1)
    ]
    machines = [
        FrontMachine(each.name, min(each.shares[at] for at in over.counted), _amounts(each.takes))
        for each in over.machines
    ]
    tops: dict[int | str, float] = {number: max(each.shares) for number, each in enumerate(designs, start=1)}
    tops |= {each.name: max(each.shares) for each in over.machines}
    heights = Heights(
        "front_over_worlds", "The front over worlds: share of a world's best, least to most,",
        "share of a world's best", "safest", True, _percent, ", at most", tops,
    )  # fmt: skip
    return front_pictures(members, front.axes, machines, heights) if members else {}


def _amounts(takes: Mapping[str, float | None]) -> dict[FrontAxis, float]:
    """What is taken by goal, of what is known."""
    known = {axis: takes.get(key) for axis, key in KEYS.items()}
    return {axis: amount for axis, amount in known.items() if amount is not None}


def front_check_sentence(report: FrontReport) -> str:
    """What a front over worlds that holds states, and what of it was worked out again."""
    front, names = report.front, ", ".join(report.models)
    state = "proved" if front.is_proved else "not proved"
    verb = "is" if len(front.designs) == 1 else "are"
    return (
        f"Valid: for {names} {len(front.designs):,} of {front.num_points:,} points {verb} on the front of "
        f"{axes_words(front.axes)} over {_counted_worlds(front)} (gap {format_gap(front.gap)}, {state} within "
        f"{format_gap(front.tolerance)}); {report.num_certificates} certificates of worlds worked out again in "
        f"{format_time(report.wall_s)}."
    )
