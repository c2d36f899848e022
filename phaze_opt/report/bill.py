"""The bill of a cluster in a table, a figure and a sentence, and which prices decide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from phaze_opt.hardware.economics.ownership import RunCost
from phaze_opt.objective.bill import DECIDES, Bill, PriceRow, token_span
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.record.result_fields import names_of, values_of
from phaze_opt.report.style import COLOURS, style_bars
from phaze_opt.report.table import Column, Fields, TableContent, number, numbers, table_of, words
from phaze_opt.report.text import counted, format_amount, format_number, format_ratio, format_share
from phaze_opt.units import GIGA

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PARTS = {
    "dies": "dies, by their yield",
    "package": "package, and what bonding loses",
    "memory": "HBM",
    "board": "board, power, cooling, host",
    "links": "links and switches",
    "design": "its share of the design",
}
"""Parts of a device's cost in words."""
MOST_ROWS = 12
TONNE_KG = 1000.0


def bill_table(bill: Bill) -> TableContent:
    """What a device costs by part, what the cluster costs over its life, and what is trained for it."""
    price, count = bill.terms.prices.value, bill.num_devices
    tco = bill.tco_usd
    rows = [
        (label, format_number(value), format_share(count * value / tco))
        for label, value in ((label, float(getattr(bill.device, name))) for name, label in PARTS.items())
    ]
    years, kwh_usd = price("ownership.years"), price("ownership.usd_per_kwh")
    capex, power = bill.capex_usd, bill.electricity_usd
    rows += [
        ("a device", format_number(bill.device_usd), format_share(count * bill.device_usd / tco)),
        (f"{counted(count, 'device')} (capex)", format_amount(capex), format_share(capex / tco)),
        (f"electricity of {years:g} years", format_amount(power), format_share(power / tco)),
        ("total cost of ownership", format_amount(tco), format_share(1.0)),
    ]
    columns = (Column(""), *numbers("USD", "share"))
    note = (
        f"{format_number(bill.throughput_per_usd)} samples per USD of it, "
        f"{format_number(bill.throughput_per_joule)} per J at TDP; "
        f"{counted(round(price('volume.devices')), 'device')} made of the design, {kwh_usd:g} USD/kWh, PUE "
        f"{price('ownership.pue'):g}; CO2e: {_mass(bill.embodied_kg)} to make, {_mass(bill.operational_kg)} to run at "
        f"TDP on grid {bill.terms.grid}; prices are assumed within ranges (docs/economics.md), --prices takes yours"
    )
    return TableContent("What it costs", columns, tuple(rows), note, emphasised=frozenset({len(rows) - 1}))


def bill_tables(bills: Mapping[str, Bill]) -> list[TableContent]:
    """The bill of the first of several, for a page; nothing of none."""
    return [bill_table(bill) for bill in list(bills.values())[:1]]


def dollars_figure(bills: Mapping[str, Bill]) -> Figure:
    """Where the dollars of a device's life go, a bar a design or machine: its parts, then its electricity."""
    import plotly.graph_objects as go

    figure = go.Figure()
    power = {name: bill.electricity_usd / bill.num_devices for name, bill in bills.items()}
    parts = {label: [float(getattr(bill.device, name)) for bill in bills.values()] for name, label in PARTS.items()}
    for place, (label, values) in enumerate({**parts, "electricity of its life": list(power.values())}.items()):
        if any(values):
            figure.add_bar(
                y=list(bills), x=values, name=label, orientation="h", marker={"color": COLOURS[place % len(COLOURS)]},
                hovertext=[f"{label}: {format_number(value)} USD" for value in values], hoverinfo="text",
            )  # fmt: skip
    return style_bars(figure, "Where the dollars go", count=len(bills), axis="USD a device, over its life")


def run_sentence(bill: Bill, found: HeadlineRange | None = None) -> str:
    """What it takes to train on the tokens asked for; empty if none were.

    Args:
        bill: of the cluster.
        found: the range of its throughput, which days then have too.
    """
    run = bill.run
    if run is None or bill.terms.tokens is None:
        return ""
    return (
        f"{days_words(bill.terms.tokens, run.days, found)}, {format_amount(run.usd)} USD ({_run_range(bill, run)}; "
        f"{format_number(GIGA * bill.usd_per_token)} USD for 1B of them), "
        f"{format_amount(run.kwh)} kWh and {_mass(run.kg)} of CO2e."
    )


def days_words(tokens: float, days: float, found: HeadlineRange | None = None) -> str:
    """How long training on so many tokens takes, with the range of the throughput where it is known."""
    span = ""
    if found is not None and found.parts:
        low, high = (format_number(days * found.value / end) for end in (found.high, found.low))
        span = f" ({low} to {high} over the range of throughput)"
    return f"To train on {format_amount(tokens)} tokens takes {format_number(days)} days{span} without interruptions"


def _run_range(bill: Bill, run: RunCost) -> str:
    """The least and the most dollars of a run with one price alone at an end of its range."""
    span = token_span(bill)
    low, high = (format_amount(run.usd * end / span.value) for end in (span.low, span.high))
    most = f", most by {span.high_price}" if span.high_price else ""
    return f"{low} to {high} over the range of each price{most}"


def beside_sentence(bills: Mapping[str, Bill]) -> str:
    """What the first trains for a dollar, over each other; empty if there is no other."""
    (name, first), *others = bills.items()
    ratios = [
        f"{format_ratio(first.throughput_per_usd / other.throughput_per_usd)} {key} "
        f"({format_number(other.device_usd)} USD)"
        for key, other in others
    ]
    if not ratios:
        return ""
    return (
        f"For a dollar of the total cost of ownership {name} ({format_number(first.device_usd)} USD a device) trains "
        f"{', '.join(ratios)}."
    )


def bills_to_json(bills: Mapping[str, Bill]) -> dict[str, Any]:
    """``cost`` of the first and ``cost_references`` of the others by name."""
    every = {name: bill_to_json(bill) for name, bill in bills.items()}
    first = next(iter(every), "")
    return {"cost": every.pop(first, None), "cost_references": every}


def prices_table(rows: Sequence[PriceRow], bill: Bill) -> TableContent:
    """What the range of each price does to samples per USD and per kg of CO2e, widest first; the rest is counted."""
    cells: Fields[PriceRow] = (
        words("price", lambda row: row.key),
        number("range", lambda row: f"{row.low:g} to {row.high:g}"),
        number("samples/USD", lambda row: _ends(row.usd_low, row.usd_high)),
        number("samples/kg", lambda row: _ends(row.kg_low, row.kg_high)),
    )
    decide = [row for row in rows if row.usd_span >= DECIDES or abs(row.kg_high - row.kg_low) >= DECIDES]
    shown = decide[:MOST_ROWS]
    memory = float(bill.device.memory) / bill.device_usd
    making = bill.embodied_kg / (bill.embodied_kg + bill.operational_kg)
    note = (
        f"change of both from the low to the high end of a price; {len(rows) - len(decide)} more prices move neither "
        f"by {format_share(DECIDES)}, {len(decide) - len(shown)} stand in --json alone; HBM is {format_share(memory)} "
        f"of a device; making it is {format_share(making)} of its CO2e, so samples/kg rank machines as samples/s per W "
        "do where that is small"
    )
    return table_of("Which prices decide", cells, shown, note)


def _ends(low: float, high: float) -> str:
    """Changes at both ends of a range."""
    return f"{100.0 * (low - 1.0):+.1f} to {100.0 * (high - 1.0):+.1f} %"


def _mass(kg: float) -> str:
    return f"{format_number(kg / TONNE_KG)} t" if kg >= TONNE_KG else f"{format_number(kg)} kg"


def bill_to_json(bill: Bill | None, *, unsaid: str = "") -> dict[str, Any]:
    """A bill as JSON; ``unsaid`` says why there is none, and figures are null then."""
    if bill is None:
        return {**dict.fromkeys((*names_of(Bill), *_BESIDE)), "unsaid": unsaid}
    run, span = bill.run, token_span(bill)
    return {
        **values_of(bill),
        "parts_usd": {each.name: float(getattr(bill.device, each.name)) for each in fields(bill.device)},
        "usd_per_token_range": [span.low, span.high],
        "grid": bill.terms.grid,
        "prices_digest": bill.terms.prices.digest,
        "training_run": None if run is None else {"tokens": bill.terms.tokens, **asdict(run)},
        "unsaid": "",
    }


_BESIDE = ("parts_usd", "usd_per_token_range", "grid", "prices_digest", "training_run")
"""Keys of a bill in JSON beside its figures."""
