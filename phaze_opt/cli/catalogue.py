"""What there is to choose from: models, architectures, strategies, spaces."""

from __future__ import annotations

from phaze_opt.cli.options import (
    DEFAULT_HBM_GB,
    DEFAULT_MICRO_BATCHES,
    HbmOption,
    JsonOption,
    MicroBatchesOption,
    SpaceOption,
    build_space,
)
from phaze_opt.cli.output import out, print_json


def models(json: JsonOption = False) -> None:
    """List the models of the zoo, with their exact parameter counts and sources."""
    from phaze_opt.workload.config import load_model
    from phaze_opt.workload.zoo import list_models

    rows = []
    for name in list_models():
        model = load_model(name)
        rows.append(
            {
                "name": name,
                "parameters": model.num_parameters,
                "layers": model.num_layers,
                "hidden": model.hidden_size,
                "source": model.source,
            }
        )
    if json:
        print_json(rows)
        return
    _print_table("Models", rows)


def architectures(json: JsonOption = False) -> None:
    """List the architecture presets, with area, peak rate and sources."""
    from phaze_opt.hardware.area import area_mm2
    from phaze_opt.hardware.constants import load_constants
    from phaze_opt.hardware.presets import architecture_source, list_architectures, load_architecture
    from phaze_opt.objective.serialize import architecture_to_json

    rows = []
    for name in list_architectures():
        accelerator = load_architecture(name, constants=load_constants())
        row = {"name": name, **architecture_to_json(accelerator)}
        row["peak_tflops"] = round(accelerator.peak_flops_per_s / 1e12, 1)
        row["area_mm2"] = area_mm2(accelerator)
        row["source"] = architecture_source(name)
        rows.append(row)
    if json:
        print_json(rows)
        return
    shown = ("name", "num_tc", "tc_width", "tc_depth", "num_vc", "vc_width", "glb_mb", "hbm_gb", "peak_tflops", "source")
    _print_table("Architectures", [{key: row[key] for key in shown} for row in rows])


def strategies(json: JsonOption = False) -> None:
    """List the search strategies, built in and from other packages."""
    from phaze_opt.plugins import PluginGroup, list_plugins
    from phaze_opt.search.run import load_strategy

    rows = []
    for entry in list_plugins(PluginGroup.STRATEGIES):
        strategy = load_strategy(entry.name)
        summary = (type(strategy).__doc__ or "").strip().splitlines()
        rows.append(
            {
                "name": entry.name,
                "summary": summary[0] if summary else "",
                "capabilities": sorted(capability.value for capability in strategy.capabilities),
                "package": entry.dist.name if entry.dist is not None else "",
            }
        )
    if json:
        print_json(rows)
        return
    _print_table("Strategies", [{**row, "capabilities": ", ".join(row["capabilities"])} for row in rows])


def space(
    micro_batch: MicroBatchesOption = DEFAULT_MICRO_BATCHES,
    hbm: HbmOption = DEFAULT_HBM_GB,
    space: SpaceOption = None,
    json: JsonOption = False,
) -> None:
    """Describe a search space: candidates, kept architectures, points and the range of every axis."""
    points = build_space(space, micro_batches=micro_batch, hbm_gb=hbm)
    document = {
        "name": points.name,
        "candidates": points.num_candidates,
        "feasible": points.num_architectures,
        "points": points.size,
        "ranges": points.ranges(),
        "digest": points.digest,
    }
    if json:
        print_json(document)
        return
    _print_table("Space", [{"": key, "value": str(value)} for key, value in document.items()])


def _print_table(title: str, rows: list[dict[str, object]]) -> None:
    """Print rows of equal keys as a table."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for key in rows[0]:
        is_number = all(isinstance(row[key], int | float) for row in rows)
        table.add_column(key.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else str(value) for value in row.values()))
    out().print(table)
