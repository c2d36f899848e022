"""What there is to choose from: models, chips, strategies, pruners, spaces, training software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.options import JsonOption, with_options
from phaze_opt.cli.output import out, print_json, print_tables
from phaze_opt.errors import InputError
from phaze_opt.jobs.options import FormOptions, SiliconOptions
from phaze_opt.objective.scenario_options import EXAMPLE, SpaceOptions

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from phaze_opt.hardware.constants import Constants
    from phaze_opt.hardware.device import Device
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
    from phaze_opt.workload.config import load_model
    from phaze_opt.workload.zoo import list_models

    rows: list[dict[str, Any]] = []
    for name, model in ((name, load_model(name)) for name in map(_model_name, names or list_models())):
        sizes = {"parameters": model.num_parameters, "layers": model.num_layers, "hidden": model.hidden_size}
        rows.append({"name": name, **sizes, "source": model.source})
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


def _model_name(text: str) -> str:
    """The model that a text names, in any case.

    Raises:
        InputError: there is none; a near miss is suggested.
    """
    from phaze_opt.record.suggestions import known_as, suggest
    from phaze_opt.workload.zoo import list_models

    name = known_as(text, list_models())
    if name not in list_models():
        message = f"no model is named '{text[:60]}'; {suggest(text, list_models())}"
        raise InputError(message, source="NAME")
    return name


def strategies(*, json: JsonOption = False) -> None:
    """List the search strategies, built in and from other packages."""
    from phaze_opt.jobs.search import SearchOptions
    from phaze_opt.plugins import PluginGroup, list_plugins
    from phaze_opt.search.run import load_strategy

    loaded = [(entry, load_strategy(entry.name)) for entry in list_plugins(PluginGroup.STRATEGIES)]
    rows = [
        _plugin_row(entry, strategy) | {"capabilities": sorted(each.value for each in strategy.capabilities)}
        for entry, strategy in loaded
    ]
    said = (
        f"{len(rows)} strategies for `search --strategy` and studies ({SearchOptions().strategy} unless given); a file "
        "of your own is named file.py:Class, a sampler of Optuna optuna:NAME."
    )
    _show("Strategies", rows, ("name", "package", "summary"), said=said, is_json=json)


def pruners(*, json: JsonOption = False) -> None:
    """List the pruners, built in and from other packages."""
    from phaze_opt.plugins import PluginGroup, list_plugins
    from phaze_opt.search.run import load_pruner

    loaded = [(entry, load_pruner(entry.name)) for entry in list_plugins(PluginGroup.PRUNERS)]
    rows = [_plugin_row(entry, pruner) | {"is_safe": pruner.is_safe} for entry, pruner in loaded]
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


def _plugin_row(entry: EntryPoint, plugin: object) -> dict[str, Any]:
    """What is said of any plug-in: its summary is the first paragraph of its class's docstring."""
    summary = (type(plugin).__doc__ or "").strip().split("\n\n")[0]
    return {
        "name": entry.name,
        "summary": " ".join(summary.split()).replace("``", "'"),
        "package": entry.dist.name if entry.dist is not None else "",
    }


@with_options
def space(*, space: SpaceOptions, silicon: SiliconOptions, json: JsonOption = False) -> None:
    """Describe a search space: candidates, kept architectures, points and the range of every axis.

    The micro-batch is a part of each plan, and an axis of the space in the published form alone.
    """
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.objective.scenario import PlanSpace, build_space
    from phaze_opt.objective.silicon_options import chosen_silicon

    is_published = FormOptions(published_form=silicon.published_form).checked() is not None
    if space.micro_batch and not is_published:
        message = "is part of each plan and no axis of the space; leave it out, or give --as phaze too"
        raise InputError(message, source="--micro-batch")
    dies = chosen_silicon(silicon, load_network(silicon.network, num_devices=1), space=space.space)
    points = build_space(space, PlanSpace.PHAZE if is_published else PlanSpace.FULL, silicon=dies)
    ranges = {axis: span for axis, span in points.ranges().items() if is_published or axis != "micro_batch"}
    document = {
        "name": points.name,
        "candidates": points.num_candidates,
        "feasible": points.num_architectures,
        "points": points.size,
        "ranges": ranges,
        "digest": points.digest,
    }
    if json:
        print_json(document)
        return
    each = f", {points.size:,} points with their micro-batches" if points.size != points.num_architectures else ""
    out().print(
        f"{points.num_architectures:,} of {points.num_candidates:,} candidates of the space {points.name} may be "
        f"built{each}; `certify` proves the best of them, `search` looks for it."
    )
    _print_table("Axes", [{"axis": axis, "values": _values(span)} for axis, span in ranges.items()])


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
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.hardware.presets import list_architectures
    from phaze_opt.hardware.silicon.silicon import constants_with
    from phaze_opt.objective.silicon_options import chosen_silicon, meant_machine, silicon_form

    known = constants_with(chosen_silicon(silicon, load_network(silicon.network, num_devices=1)))
    asked = [_preset(meant_machine(name, silicon_form(silicon))) for name in names or ()]
    rows = [_row(name, known) for name in asked or list_architectures()]
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


def _preset(text: str) -> str:
    """Name of the preset that a text means.

    Raises:
        InputError: none or several, with a near miss.
    """
    from phaze_opt.hardware.device_catalogue import find_device
    from phaze_opt.hardware.presets import explain_name, list_architectures

    device = find_device(text)
    if text in list_architectures():
        return text
    if device is None:
        raise InputError(explain_name(text), source="NAME")
    return device.name


def _row(name: str, known: Constants) -> dict[str, Any]:
    """All that is known of a preset, as ``--json`` prints it."""
    from phaze_opt.hardware.presets import architecture_source, find_machine, load_architecture
    from phaze_opt.hardware.silicon.chip_silicon import area_mm2_of
    from phaze_opt.objective.evaluation import architecture_to_json
    from phaze_opt.report.chip import silicon_words

    accelerator = load_architecture(name, constants=known)
    return {
        "name": name,
        **architecture_to_json(accelerator),
        "peak_tflops": round(accelerator.peak_flops_per_s / 1e12, 1),
        "area_mm2": area_mm2_of(accelerator, known),
        "silicon": silicon_words(accelerator),
        "source": architecture_source(name),
        **_machine_row(find_machine(name)),
    }


def _machine_row(device: Device | None) -> dict[str, Any]:
    """What is known of a machine that exists beyond its chip; blank and 0 of designs and where not published."""
    from phaze_opt.hardware.device import MatrixStyle
    from phaze_opt.hardware.device_catalogue import find_device

    names: list[str] = []
    if device is None:
        kind, tflops = "design", {}
    else:
        kind = "GPU" if device.style is MatrixStyle.TILES else "systolic arrays"
        names = [name for name in (*device.data_names, *device.aliases) if find_device(name) is device]
        tflops = {str(path): rate / 1e12 for path, rate in device.peak_flops_per_s.items()}
    return {
        "kind": kind,
        "maker": "" if device is None else device.maker,
        "names": names,
        "machine_tflops": tflops,
        "network": "" if device is None else device.network,
        "published_area_mm2": 0.0 if device is None else device.die_mm2,
        "published_tdp_w": 0.0 if device is None else device.tdp_w,
    }


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
