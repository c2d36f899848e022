"""``phaze-opt architectures``: the presets, what is known of one of them, and designs as options take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.options import JsonOption, with_options
from phaze_opt.cli.output import out, print_json, print_tables
from phaze_opt.errors import InputError
from phaze_opt.jobs.options import SiliconOptions
from phaze_opt.objective.scenario_options import EXAMPLE

if TYPE_CHECKING:
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.hardware.device import Device
    from phaze_opt.report.table import TableContent

NOTE = (
    "bf16 in TFLOP/s, HBM in GiB and GB/s, mm2 and W as published (blank: not, or a design); "
    "`phaze-opt architectures NAME` says what a machine is called and where its figures come from"
)
CORES = ("num_tc", "num_vc")


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
