"""What survives when the assumptions move: the optimum of every world, regrets, min-max regret, conclusions."""

from __future__ import annotations

import math

from phaze_opt.certify.robust.result import RobustDesign, RobustResult, WorldOptimum
from phaze_opt.certify.robust.worlds import End, World, describe_world
from phaze_opt.report.certificate import TIED, format_gap
from phaze_opt.report.content import Column, TableContent
from phaze_opt.report.text import format_mib, format_number
from phaze_opt.space.point import DesignPoint
from phaze_opt.units import bytes_to_gib, bytes_to_mib

FIRST_ROLE, MINMAX_ROLE = "nominal rank 1", "min-max regret"
DESIGN_COLUMNS = tuple(Column(name, is_number=True) for name in ("TC", "VC", "GLB", "HBM", "mb"))


def robust_sentences(result: RobustResult) -> tuple[str, ...]:
    """What the analysis comes to."""
    minimax, worlds = result.minimax, len(result.worlds)
    if minimax.point is None:
        return (f"No point is feasible in any of {worlds} worlds.",)
    if minimax.regret_upper <= TIED:
        best = f"{describe_design(minimax.point)} is the optimum in every one of {worlds} worlds"
        return (f"{best} within the ranges of the assumptions ({_kinds(result)}).", _surviving(result))
    nominal = next((design for design in result.designs if FIRST_ROLE in design.roles), None)
    sentences = [
        f"Over {worlds} worlds within the ranges of the assumptions ({_kinds(result)}), every design forgoes at "
        f"least {format_gap(minimax.regret_lower)} of the optimum in one of them; the design of least largest regret, "
        f"{describe_design(minimax.point)}, forgoes at most {format_gap(minimax.regret_upper)}, in "
        f"{_world(result, minimax.worst_world)}."
    ]
    if not minimax.is_proved:
        sentences.append("Between these two figures another design may do better.")
    if nominal is not None and nominal.index != minimax.index:
        sentences.append(
            f"The best design of the assumptions as they stand forgoes up to {format_gap(nominal.worst_regret)}, in "
            f"{_world(result, nominal.worst_world)}."
        )
    return (*sentences, _surviving(result))


def _surviving(result: RobustResult) -> str:
    kept = sum(conclusion.survives for conclusion in result.conclusions)
    return f"Of {len(result.conclusions)} conclusions {kept} hold in every world."


def conclusions_table(result: RobustResult) -> TableContent:
    """Which conclusions survive."""
    columns = (Column("conclusion"), Column("holds in", is_number=True), Column("furthest from it in"))
    rows = tuple(
        (
            conclusion.statement,
            f"{sum(conclusion.holds)} of {len(conclusion.holds)}",
            "" if conclusion.worst_world < 0 or conclusion.survives else result.worlds[conclusion.worst_world].name,
        )
        for conclusion in result.conclusions
    )
    surviving = frozenset(row for row, conclusion in enumerate(result.conclusions) if conclusion.survives)
    note = "worlds in which it holds, of those with a feasible design; in bold what holds in all"
    return TableContent("Which conclusions survive", columns, rows, note, surviving)


def regrets_table(result: RobustResult) -> TableContent:
    """Every design's largest regret, least first; of the nominal best designs only those with another role."""
    columns = (
        *DESIGN_COLUMNS,
        Column("why it is here"),
        Column("regret", is_number=True),
        Column("in"),
    )
    shown = [design for design in result.designs if not _is_one_of_many(design)]
    order = sorted(shown, key=lambda design: (design.point is None, design.worst_regret))
    rows = tuple(_regret_row(design, result) for design in order)
    note = "its largest regret: what it forgoes of a world's certified optimum; 100 % where it does not fit"
    left_out = len(result.designs) - len(shown)
    if left_out:
        note += f"; {left_out} more of the nominal best designs are in the file"
    first = frozenset(row for row, design in enumerate(order) if MINMAX_ROLE in design.roles)
    return TableContent("Regret over all worlds", columns, rows, note, first)


def worlds_table(result: RobustResult) -> TableContent:
    """The certified optimum of every world."""
    groups = [group.group.value for group in result.assumptions.groups]
    columns = (
        Column("world"),
        Column("ends"),
        *DESIGN_COLUMNS,
        Column("value", is_number=True),
        Column("gap", is_number=True),
    )
    rows = tuple(
        (world.name, _ends(world), *_optimum(optimum))
        for world, optimum in zip(result.worlds, result.optima, strict=True)
    )
    unit = "samples/s/W" if "tdp" in result.goal else "samples/s"
    notes = [f"{unit}; ends (+ high, - low) of {', '.join(groups)}; samples draw every constant by itself"]
    notes += [f"{entry.group.value} not varied: {entry.reason}" for entry in result.assumptions.left_out]
    return TableContent("The certified optimum of every world", columns, rows, "; ".join(notes))


def effects_table(result: RobustResult) -> TableContent:
    """What moves the optimum."""
    columns = (
        Column("assumptions"),
        Column("optimum, high / low", is_number=True),
        Column("from", is_number=True),
        Column("to", is_number=True),
        Column("same best design in", is_number=True),
    )
    rows = tuple(
        (
            effect.group.value,
            *(f"{math.exp(value):.3f}x" for value in (effect.mean_log_ratio, effect.least_log_ratio)),
            f"{math.exp(effect.largest_log_ratio):.3f}x",
            f"{round(effect.share_same_design * effect.num_pairs)} of {effect.num_pairs}",
        )
        for effect in result.effects
        if effect.num_pairs
    )
    note = "from one end of a range to the other, all else at a corner: geometric mean and range over these corners"
    return TableContent("What moves the optimum", columns, rows, note)


def robust_tables(result: RobustResult) -> list[TableContent]:
    """All tables, the conclusions first."""
    tables = [conclusions_table(result), regrets_table(result), effects_table(result), worlds_table(result)]
    return [table for table in tables if table.rows]


def describe_design(point: DesignPoint) -> str:
    """A design in one short line."""
    return (
        f"{point.num_tc}x{point.tc_width}x{point.tc_depth}, {point.num_vc}x{point.vc_width}, "
        f"{format_mib(point.glb_bytes)}, {bytes_to_gib(point.hbm_bytes):g} GB, mb {point.micro_batch}"
    )


def _is_one_of_many(design: RobustDesign) -> bool:
    """Whether a design is here for a nominal rank below the first alone: those are often ties."""
    return all(role.startswith("nominal rank") and role != FIRST_ROLE for role in design.roles)


def _regret_row(design: RobustDesign, result: RobustResult) -> tuple[str, ...]:
    more = len(design.roles) - 1
    role = design.roles[0] if design.point is not None else design.name
    return (
        *(("",) * len(DESIGN_COLUMNS) if design.point is None else _cells(design.point)),
        f"{role}, {more} more" if more > 0 else role,
        format_gap(design.worst_regret),
        result.worlds[design.worst_world].name,
    )


def _cells(point: DesignPoint) -> tuple[str, ...]:
    return (
        f"{point.num_tc}x{point.tc_width}x{point.tc_depth}",
        f"{point.num_vc}x{point.vc_width}",
        f"{bytes_to_mib(point.glb_bytes):g}",
        f"{bytes_to_gib(point.hbm_bytes):g}",
        str(point.micro_batch),
    )


def _ends(world: World) -> str:
    return "".join("+" if end is End.HIGH else "-" for end in world.ends)


def _optimum(optimum: WorldOptimum) -> tuple[str, ...]:
    if not optimum.is_feasible or optimum.point is None:
        return ("none fits", *[""] * (len(DESIGN_COLUMNS) - 1), "-", "-")
    return (*_cells(optimum.point), format_number(optimum.value), format_gap(optimum.gap))


def _world(result: RobustResult, position: int) -> str:
    return describe_world(result.worlds[position], result.assumptions)


def _kinds(result: RobustResult) -> str:
    kinds = [world.kind.value for world in result.worlds]
    return f"as they stand, {kinds.count('corner')} corners, {kinds.count('sample')} samples"
