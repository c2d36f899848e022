"""``phaze-opt network``: list and show networks, and allocate bandwidth to their levels for a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.options import JsonOption, typer_option, with_options
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_tables
from phaze_opt.jobs.network import NETWORK_HELP, SplitOptions, split_bandwidth
from phaze_opt.objective.scenario_options import ScenarioOptions, declarations

if TYPE_CHECKING:
    from phaze_opt.cost.compiled_step import CompiledStep
    from phaze_opt.cost.network_design import NetworkCase, NetworkDesign
    from phaze_opt.hardware.network import Network

DEFAULT_SHOWN_DEVICES = 64

app = typer.Typer(
    name="network",
    help="Networks of accelerators: list and show them, and allocate bandwidth to their levels for a model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.command("list")
def list_them(*, json: JsonOption = False) -> None:
    """List the networks that go by a name, with their levels and sources."""
    from phaze_opt.hardware.networks import list_networks, load_network, network_source
    from phaze_opt.report.networks import list_sentence, network_list

    networks = [(load_network(name, num_devices=1), network_source(name)) for name in list_networks()]
    if json:
        print_json(
            [{"name": network.name, "levels": _levels_to_json(network), "source": text} for network, text in networks]
        )
        return
    out().print(list_sentence(networks))
    print_tables(network_list(networks))


@app.command("show")
def show(
    network: Annotated[str, typer.Argument(help=NETWORK_HELP)],
    *,
    devices: Annotated[int, typer_option(declarations(ScenarioOptions)["devices"])] = DEFAULT_SHOWN_DEVICES,
    json: JsonOption = False,
) -> None:
    """Show a network: its levels, their measured curves if it has any, and what an all-reduce takes by size."""
    from phaze_opt.hardware.networks import load_network, network_source
    from phaze_opt.report.networks import all_reduce_times, curve_tables, level_table, reach_sentence, time_table

    loaded = load_network(network, num_devices=devices)
    times = all_reduce_times(loaded)
    if json:
        rows = [{"bytes": row.payload_bytes, "seconds": dict(row.seconds)} for row in times]
        print_json({"name": loaded.name, "levels": _levels_to_json(loaded), "all_reduce": rows})
        return
    out().print(reach_sentence(loaded, times))
    print_tables(level_table(loaded, source=network_source(network)), *curve_tables(loaded), time_table(times))


@app.command("optimise")
@with_options
def optimise(*, options: SplitOptions, json: JsonOption = False) -> None:
    """Split a budget of bandwidth over a network's levels so that a step's collectives end soonest (LIBRA).

    The answer carries a bound that no other split can beat. Compute is left out: the split is for the collectives.
    """
    from phaze_opt.hardware.networks import network_text
    from phaze_opt.record.whole_file import replace_file
    from phaze_opt.report.networks import collective_table, design_sentence, design_table

    output = options.out
    check_file_to_write(output, option="--out", example="network.toml")
    step, design = split_bandwidth(options)
    if output is not None:
        replace_file(output, network_text(design.best.network))
    if json:
        print_json(_design_to_json(design, step, output=output))
        return
    out().print(design_sentence(design))
    print_tables(design_table(design), collective_table(design))
    if output is not None:
        out().print(f"Written to {output}: give it to --network.", soft_wrap=True)


def _design_to_json(design: NetworkDesign, step: CompiledStep, *, output: Path | None) -> dict[str, Any]:
    """An allocation of bandwidth as JSON; seconds and bytes."""

    def case(given: NetworkCase) -> dict[str, Any]:
        return {"levels": _levels_to_json(given.network), "seconds": given.seconds}

    plan = step.plan
    return {
        "model": step.model.name,
        "plan": {"tensor": plan.tensor, "pipeline": plan.pipeline, "data": plan.data, "micro_batch": plan.micro_batch},
        "chunking": design.chunking.value,
        "given": case(design.given),
        "equal": case(design.equal),
        "best": case(design.best),
        "transfer_seconds": design.allocation.seconds,
        "transfer_bound_seconds": design.allocation.bound_s,
        "collectives": [
            {
                "name": before.name,
                "kind": before.kind.value,
                "payload_bytes": before.payload_bytes,
                "count": before.count,
                "sizes": [dimension.size for dimension in before.dimensions],
                "given_seconds": before.seconds(design.chunking),
                "best_seconds": after.seconds(design.chunking),
            }
            for before, after in zip(design.given.collectives, design.best.collectives, strict=True)
        ],
        "out": None if output is None else str(output),
    }


def _levels_to_json(network: Network) -> list[dict[str, Any]]:
    """The levels of a network, innermost first; SI units."""
    return [asdict(dimension) for dimension in network.dimensions]
