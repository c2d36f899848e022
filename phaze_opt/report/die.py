"""Dies side by side: areas and powers by component, edge and limits, and how much faster one is than others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.presets import TPU_V4
from phaze_opt.hardware.silicon.die_report import ComponentFigure, DieReport, die_to_json
from phaze_opt.jobs.machines_beside import ChipBeside, rate_of
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation, architecture_to_json
from phaze_opt.report.style import COLOURS, style_bars
from phaze_opt.report.table import Column, TableContent, numbers
from phaze_opt.report.text import format_mib, format_number, format_ratio, format_share
from phaze_opt.units import GIGA

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Dies = Mapping[str, DieReport]
"""Dies by what they are called; the first is the one spoken of."""
COMPONENTS = {
    "arrays": "arrays",
    "lanes": "lanes",
    "local": "memory beside cores",
    "buffer": "buffer",
    "network": "network of the buffer",
    "hbm": "HBM interfaces",
    "dram": "DRAM interfaces",
    "links": "links",
    "host": "host and control",
    "spare": "spare",
    "memory": "HBM and its interfaces",
    "static": "leakage",
    "board": "board",
    "die_to_die": "interfaces between chiplets",
}
"""Components of areas and powers in words."""
HATCHED = "/"
ASKED_BY = "certify --equal-to"
EACH_AS_IT_IS = "each chip as it is, not at equal area or watts"


def area_table(dies: Dies) -> TableContent:
    """Areas by component, and their shares of the first die."""
    note = "mm2, and the share of the die; modelled, of the whole die"
    return _parts_table("Area of the die", dies, lambda die: die.areas, "whole die", note)


def power_table(dies: Dies) -> TableContent:
    """Powers at full rate by component, and their shares of the first die's."""
    note = "W with every unit busy every cycle, memory and links at their full rate, and the share of it"
    return _parts_table("Power at full rate", dies, lambda die: die.powers, "whole device", note)


def _parts_table(
    title: str, dies: Dies, parts_of: Callable[[DieReport], Sequence[ComponentFigure]], whole: str, note: str
) -> TableContent:  # fmt: skip
    """A row a component that any of the dies has: a figure for each die, and the share of the first."""
    first, *others = dies
    columns = (Column(""), *numbers(first, "share", *others))
    values = [{part.name: part.value for part in parts_of(die)} for die in dies.values()]
    totals = [sum(each.values()) for each in values]
    every = {name: [each.get(name, 0.0) for each in values] for name in dict.fromkeys(chain(*values))}
    rows = [(COMPONENTS[name], *_cells(row, totals)) for name, row in every.items() if any(row)]
    rows.append((whole, *_cells(totals, totals)))
    return TableContent(title, columns, tuple(rows), note, emphasised=frozenset({len(rows) - 1}))


def _cells(values: Sequence[float], totals: Sequence[float]) -> tuple[str, ...]:
    first, *others = map(format_number, values)
    return (first, format_share(values[0] / totals[0]), *others)


def limits_table(dies: Dies) -> TableContent:
    """Edge, reticle, interposer, banks, power density and voltage of each die, beside what each limit allows."""
    columns = (Column(""), *numbers(*dies))
    every = dies.values()
    rows = (
        ("stacks of HBM, of places on the edge", *(f"{die.num_stacks} of {die.stack_places}" for die in every)),
        ("sides, mm", *(f"{die.length_mm:.1f} x {die.width_mm:.1f}" for die in every)),
        ("edge of links, mm", *(f"{die.link_edge_mm:.1f} of {die.limits.link_edge_mm:.1f}" for die in every)),
        ("die of the reticle, mm2", *(_of(die.area_mm2 / die.num_chiplets, die.limits.reticle_mm2) for die in every)),
        ("die and stacks of the interposer, mm2", *(_of(die.package_mm2, die.limits.interposer_mm2) for die in every)),
        ("buffer for a byte a cycle, bytes", *(f"{die.bytes_per_byte_per_cycle:,.0f}" for die in every)),
        ("and by the bank rule, at least", *(f"{die.limits.bytes_per_byte_per_cycle:,.0f}" for die in every)),
        ("W/mm2", *(f"{die.w_per_mm2:.2f} of {die.limits.w_per_mm2:g}" for die in every)),
        ("voltage, V", *(f"{die.voltage_v:.3f}" for die in every)),
    )
    broken = [f"{name} could not be built: {'; '.join(die.broken)}" for name, die in dies.items() if die.broken]
    first = next(iter(every))
    note = f"process {first.process.name.upper()}, {first.stack.generation.value.upper()}; of: what there is room for"
    return TableContent("Edge, package and limits", columns, rows, "; ".join([note, *broken]))


def _of(value: float, limit: float) -> str:
    return f"{value:,.0f} of {limit:,.0f}"


def die_figures(dies: Dies) -> dict[str, Figure]:
    """Areas and powers by component as bars, one a die; what the tables say, to be seen at once."""
    return {
        "die_areas": _bars(dies, lambda die: die.areas, "Area of the die by component", "mm<sup>2</sup>", "mm2"),
        "die_powers": _bars(dies, lambda die: die.powers, "Power at full rate by component", "W", "W"),
    }


def component_marker(name: str) -> dict[str, Any]:
    """A component has one colour in all figures; beyond the palette, hatched."""
    place = list(COMPONENTS).index(name)
    return {"color": COLOURS[place % len(COLOURS)], "pattern": {"shape": HATCHED * (place >= len(COLOURS))}}


def _bars(
    dies: Dies, parts_of: Callable[[DieReport], Sequence[ComponentFigure]], title: str, axis: str, unit: str
) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    values = {name: {part.name: part.value for part in parts_of(die)} for name, die in dies.items()}
    for component in dict.fromkeys(chain(*values.values())):
        widths = [each.get(component, 0.0) for each in values.values()]
        if not any(widths):
            continue
        words = COMPONENTS[component]
        figure.add_bar(
            y=list(dies), x=widths, name=words, orientation="h", marker=component_marker(component), hoverinfo="text",
            hovertext=[f"{words}: {format_number(width)} {unit}" for width in widths],
        )  # fmt: skip
    return style_bars(figure, title, count=len(dies), axis=axis)


def rate_words(chip: ChipBeside) -> str:
    """What a machine trains in a second, by its own software and by the design's where that differs."""
    own, same = rate_of(chip.evaluation), chip.same_software
    text = f"{format_number(own)} samples/s"
    if same is None or rate_of(same) == own:
        return text
    return f"{text}, or {format_number(rate_of(same))} under {chip.software}"


def plain_sentences(beside: Sequence[ChipBeside]) -> tuple[str, ...]:
    """How much faster a die is than each machine, and what each of the two is built of."""
    if not beside or beside[0].die is None:
        return ()
    first = beside[0]
    ratios = [
        f"{_ratio(first.evaluation, other.evaluation)} {other.name} ({_built(other.evaluation)})"
        for other in beside[1:]
        if rate_of(other.evaluation) > 0.0
    ]
    if not ratios or not rate_of(first.evaluation) > 0.0:
        return ()
    text = f"At {_built(first.evaluation)} it is {', '.join(ratios)}: {EACH_AS_IT_IS}."
    return (text, f"`{ASKED_BY} {TPU_V4}` proves the optimum at its area, its watts, its HBM rate and buffer.")


def _ratio(first: Evaluation, other: Evaluation) -> str:
    return format_ratio(rate_of(first) / rate_of(other))


def _built(evaluation: Evaluation) -> str:
    chip = evaluation.accelerator
    parts = f"{hbm_words(chip)} GB/s of HBM, {format_mib(chip.glb_bytes)} of buffer"
    return f"{size_words(evaluation)}, {parts}"


def size_words(evaluation: Evaluation) -> str:
    """Area and power: of a design as modelled, of a machine that exists what is published."""
    known = ((evaluation.known(name), unit) for name, unit in (("area_mm2", "mm2"), ("tdp_w", "W")))
    return ", ".join(
        f"no {unit} published" if value is None else f"{format_number(value)} {unit}" for value, unit in known
    )


def hbm_words(chip: Accelerator) -> str:
    """GB/s of its HBM."""
    return f"{chip.hbm_bandwidth_bytes_per_s / GIGA:,.0f}"


def beside_to_json(beside: Sequence[ChipBeside]) -> dict[str, Any]:
    """``die`` of the first, null by the 22 nm tables, and ``references``, of machines."""
    if not beside:
        return {"die": None, "references": []}
    first = beside[0]
    return {
        "die": None if first.die is None else die_to_json(first.die),
        "references": [_machine_to_json(each, first.evaluation) for each in beside[1:]],
    }


def _machine_to_json(machine: ChipBeside, best: Evaluation) -> dict[str, Any]:
    own, found = rate_of(machine.evaluation), machine.evaluation
    return {
        "name": machine.name,
        "architecture": architecture_to_json(found.accelerator),
        THROUGHPUT: own,
        SAME_SOFTWARE: None if machine.same_software is None else rate_of(machine.same_software),
        "area_mm2": found.known("area_mm2"),
        "tdp_w": found.known("tdp_w"),
        "ratio": rate_of(best) / own if own > 0.0 else None,
        "die": None if machine.die is None else die_to_json(machine.die),
    }


SAME_SOFTWARE = f"same_software_{THROUGHPUT}"
"""Key of what a machine trains in a second under the software of the answer that it stands beside."""
