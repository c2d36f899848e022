"""What there is to choose from: models, chips, strategies, pruners, spaces, training software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.options import JsonOption, with_options
from phaze_opt.cli.output import out, print_json, print_tables
from phaze_opt.jobs.catalogue import describe_space, machine_rows, model_rows, pruner_rows, strategy_rows
from phaze_opt.jobs.options import SiliconOptions
from phaze_opt.objective.scenario_options import EXAMPLE, SpaceOptions

if TYPE_CHECKING:
    from phaze_opt.report.table import TableContent


MAX_SHOWN_VALUES = 16


def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="These alone; all are listed unless given.", show_default=False),
    ] = None,
    *,
    json: JsonOption = False,
) -> None:
    """List the models of the zoo, with their exact parameter counts and sources."""
    rows = model_rows(names or ())
    by_size = sorted(rows, key=lambda row: row["parameters"])
    least, most = by_size[0]["name"], by_size[-1]["name"]
    said = (
        f"{len(rows)} models go by a name, from {least} to {most}; --model also takes a Hugging Face config.json or "
        "what `phaze-opt extract` recorded."
    )
    if names:
        said = " ".join(f"{row['name']} has {row['parameters']:,} parameters." for row in rows)
    _show("Models", rows, ("name", "parameters", "layers", "hidden"), said=said, is_json=json)
    if not json:
        for row in rows:
            out().print(f"{row['name']}: {row['source']}", style="dim")


def strategies(*, json: JsonOption = False) -> None:
    """List the search strategies, built in and from other packages."""
    from phaze_opt.jobs.search import SearchOptions

    rows = strategy_rows()
    said = (
        f"{len(rows)} strategies for `search --strategy` and studies ({SearchOptions().strategy} unless given); a file "
        "of your own is named file.py:Class, a sampler of Optuna optuna:NAME."
    )
    _show("Strategies", rows, ("name", "package", "summary"), said=said, is_json=json)


def pruners(*, json: JsonOption = False) -> None:
    """List the pruners, built in and from other packages."""
    rows = pruner_rows()
    if not json:
        rows = [{**row, "safe": "yes" if row["is_safe"] else "no"} for row in rows]
    said = f"{len(rows)} pruners for `search --pruner`; a safe one never drops the best design."
    _show("Pruners", rows, ("name", "safe", "package", "summary"), said=said, is_json=json)


def _show(title: str, rows: list[dict[str, Any]], keys: tuple[str, ...], *, said: str, is_json: bool) -> None:
    """Rows as one line of JSON, or a sentence and some of their columns as a table."""
    if is_json:
        print_json(rows)
    else:
        out().print(said)
        _print_table(title, [{key: row[key] for key in keys} for row in rows])


@with_options
def space(*, space: SpaceOptions, silicon: SiliconOptions, json: JsonOption = False) -> None:
    """Describe a search space: candidates, kept architectures, points and the range of every axis.

    The micro-batch is a part of each plan, and an axis of the space in the published form alone.
    """
    found = describe_space(space, silicon)
    if json:
        print_json(found)
        return
    each = f", {found['points']:,} points with their micro-batches" if found["points"] != found["feasible"] else ""
    out().print(
        f"{found['feasible']:,} of {found['candidates']:,} candidates of the space {found['name']} may be "
        f"built{each}; `certify` proves the best of them, `search` looks for it."
    )
    _print_table("Axes", [{"axis": axis, "values": _values(span)} for axis, span in found["ranges"].items()])


def software(*, json: JsonOption = False) -> None:
    """List the training software that `evaluate --software` knows: what it fuses, overlaps, and was measured on."""
    from phaze_opt.cost.stacks import list_stacks, load_stack, measured_rows
    from phaze_opt.hardware.fitted import load_fitted, read_own_file
    from phaze_opt.report.software import abilities, choices_table, features_table, measured_table, options_table

    names = list_stacks()
    stacks = [load_stack(name, load_fitted()) for name in names]
    if json:
        more = {name: {"options": abilities(name), "measured": _measured_to_json(name)} for name in names}
        print_json([asdict(stack) | more[stack.name] for stack in stacks])
        return
    tables = (choices_table(stacks), options_table(names), measured_table(names, read_own_file().sets))
    measured = sum(measured_rows(name) is not None for name in names)
    out().print(
        f"{len(names)} training stacks for `evaluate --software`, {measured} of them measured; a machine has the one "
        "measured on it unless another is named."
    )
    print_tables(*tables, features_table(names))


def _measured_to_json(name: str) -> dict[str, Any] | None:
    """Rows, recomputation and parallel features of a software; None of one that was not measured."""
    from phaze_opt.cost.stacks import measured_rows

    measured = measured_rows(name)
    if measured is None:
        return None
    return {
        "rows": [asdict(each) for each in measured.rows],
        "recompute": sorted(each.value for each in measured.recompute),
        "largest_degrees": dict(measured.reach),
        "run_together": sorted(sorted(shape) for shape in measured.shapes),
    }


def _values(span: Mapping[str, Any]) -> str:
    """The values of an axis: all of them, or their ends if they are many."""
    values = span["values"]
    if span["num_values"] <= MAX_SHOWN_VALUES:
        return ", ".join(str(value) for value in values)
    return f"{span['low']} to {span['high']}, {span['num_values']} values"


def _print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows of equal keys as a table."""
    from phaze_opt.report.table import Column, TableContent

    columns = [Column(key.replace("_", " "), all(isinstance(row[key], int | float) for row in rows)) for key in rows[0]]
    cells = [[f"{each:,}" if isinstance(each, int | float) else str(each) for each in row.values()] for row in rows]
    print_tables(TableContent(title, tuple(columns), tuple(map(tuple, cells))))


NOTE = (
    "bf16 in TFLOP/s, HBM in GiB and GB/s, mm2 and W as published (blank: not, or a design); "
    "`phaze-opt architectures NAME` says what a machine is called and where its figures come from"
)


@with_options
def architectures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Say all that is known of these; all are listed unless given.", show_default=False
        ),
    ] = None,
    *,
    silicon: SiliconOptions,
    json: JsonOption = False,
) -> None:
    """List the architecture presets: peak rate, memory, network, area and power; or all that is known of some."""
    from phaze_opt.report.chip import silicon_words

    rows = machine_rows(names or (), silicon, silicon_words)
    if json:
        print_json(rows)
        return
    if names:
        print_tables(*map(_detail_table, rows))
        return
    real = sum(row["kind"] != "design" for row in rows)
    out().print(
        f"{len(rows)} chips go by a name, {real} of them machines that exist; --arch and --baseline also take a file "
        f"or sizes in quotes, such as '{EXAMPLE}'."
    )
    print_tables(_list_table(rows))


def _list_table(rows: list[dict[str, Any]]) -> TableContent:
    """What a person compares architectures by."""
    from phaze_opt.report.table import Column, TableContent

    headings = ("maker", "bf16", "HBM", "GB/s", "network", "mm2", "W")
    columns = (Column("name"), *(Column(name, is_number=name not in ("maker", "network")) for name in headings))
    return TableContent("Architectures", columns, tuple(_cells(row) for row in rows), NOTE)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    peak = row["machine_tflops"].get("bf16", row["peak_tflops"])
    return (
        row["name"],
        row["maker"] or row["kind"],
        f"{peak:,.4g}" if peak < 1000 else f"{peak:,.0f}",
        f"{row['hbm_gb']:g}",
        f"{row['hbm_bandwidth_bytes_per_s'] / 1e9:,.0f}",
        row["network"],
        *(f"{row[key]:,.0f}" if row[key] else "" for key in ("published_area_mm2", "published_tdp_w")),
    )


def _detail_table(row: dict[str, Any]) -> TableContent:
    from phaze_opt.report.table import pairs_table

    name, _, peak, capacity, bandwidth, network, area, power = _cells(row)
    rates = ", ".join(f"{path} {rate:,.4g}" for path, rate in row["machine_tflops"].items())
    facts = (
        ("what", f"{row['maker']} {row['kind']}".strip()),
        ("also called", ", ".join(dict.fromkeys(row["names"]))),
        ("peak, TFLOP/s", rates or f"bf16 {peak}"),
        ("HBM", f"{capacity} GiB, {bandwidth} GB/s"),
        ("as arrays", f"{row['num_tc']:,} of {row['tc_width']} x {row['tc_depth']} at {row['clock_hz'] / 1e9:.4g} GHz"),
        ("as lanes", f"{row['num_vc']:,} x {row['vc_width']:,}"),
        ("cache", f"{row['glb_mb']:g} MiB, {row['glb_bandwidth_bytes_per_s'] / 1e12:.3g} TB/s"),
        ("network", network),
        ("area, power", ", ".join(f"{v} {u}" for v, u in ((area, "mm2"), (power, "W")) if v)),
        ("area if designed so", f"{row['area_mm2']:,.0f} mm2 {row['silicon']}"),
        ("source", row["source"]),
    )
    return pairs_table(name, tuple((key, value) for key, value in facts if value))
