"""``phaze-opt network``: list and show networks, and allocate bandwidth to their levels for a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.file_to_write import check_file_to_write
from phaze_opt.cli.network_output import design_to_json, draw, levels_to_json, print_design
from phaze_opt.cli.numbers import MAX_MICRO_BATCH, integer, positive
from phaze_opt.cli.options import (
    CHOICES,
    INTEGER,
    NUMBER,
    RECORDS,
    WORKLOAD,
    DevicesOption,
    GlobalBatchOption,
    JsonOption,
    OneModelOption,
    OptimizerOption,
    SequenceLengthOption,
)
from phaze_opt.cli.output import print_json
from phaze_opt.cli.plan_options import training_length
from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten
from phaze_opt.record.spelling import parse_word

if TYPE_CHECKING:
    from phaze_opt.hardware.network import Network
    from phaze_opt.objective.step.compiled_step import CompiledStep

NETWORK = "Network"
DEFAULT_GLOBAL_BATCH = 512
DEFAULT_SHOWN_DEVICES = 64
NETWORK_HELP = "A network by name (see `phaze-opt network list`), or a TOML file."

app = typer.Typer(
    name="network",
    help="Networks of accelerators: list and show them, and allocate bandwidth to their levels for a model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _degree(option: str, help_text: str) -> Any:
    return typer.Option(option, help=help_text, parser=integer(option), metavar=INTEGER, rich_help_panel=CHOICES)


@app.command("list")
def list_them(*, json: JsonOption = False) -> None:
    """List the networks that go by a name, with their levels and sources."""
    from phaze_opt.hardware.networks import list_networks, load_network, network_source
    from phaze_opt.report.networks import network_list

    networks = [(load_network(name, num_devices=1), network_source(name)) for name in list_networks()]
    if json:
        print_json(
            [{"name": network.name, "levels": levels_to_json(network), "source": text} for network, text in networks]
        )
        return
    draw(network_list(networks))


@app.command("show")
def show(
    network: Annotated[str, typer.Argument(help=NETWORK_HELP)],
    *,
    devices: DevicesOption = DEFAULT_SHOWN_DEVICES,
    json: JsonOption = False,
) -> None:
    """Show a network: its levels, their measured curves if it has any, and what an all-reduce takes by size."""
    from phaze_opt.hardware.networks import load_network, network_source
    from phaze_opt.report.networks import all_reduce_times, level_table, time_table

    loaded = load_network(network, num_devices=devices)
    times = all_reduce_times(loaded)
    if json:
        rows = [{"bytes": row.payload_bytes, "seconds": dict(row.seconds)} for row in times]
        print_json({"name": loaded.name, "levels": levels_to_json(loaded), "all_reduce": rows})
        return
    draw(level_table(loaded, source=network_source(network)))
    draw(time_table(times))


@app.command("optimise")
def optimise(
    *,
    model: OneModelOption,
    devices: DevicesOption,
    network: Annotated[str, typer.Option("--network", help=NETWORK_HELP, rich_help_panel=WORKLOAD)] = "two-level",
    total_gb_per_s: Annotated[
        float | None,
        typer.Option(
            "--total-gb-per-s",
            help="Bandwidth of a device over all levels, one way, 10^9 bytes/s.",
            parser=positive("--total-gb-per-s"),
            metavar=NUMBER,
            rich_help_panel=NETWORK,
            show_default="what the network has",
        ),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            help="Cost of bandwidth on each level, innermost first, such as 2,4,36; the budget is what an equal split "
            "of the total costs.",
            rich_help_panel=NETWORK,
            show_default="1 each",
        ),
    ] = None,
    chunking: Annotated[
        str | None,
        typer.Option(
            "--chunking",
            help="How collectives go through the levels: none (one after another), fixed (in chunks, inside out) or "
            "themis (in chunks, balanced).",
            rich_help_panel=NETWORK,
            show_default="as the network says",
        ),
    ] = None,
    tensor_parallel: Annotated[int, _degree("--tensor-parallel", "Tensor-parallel degree.")] = 1,
    pipeline: Annotated[int, _degree("--pipeline", "Pipeline stages.")] = 1,
    data: Annotated[
        int | None,
        typer.Option(
            "--data",
            help="Replicas.",
            parser=integer("--data"),
            metavar=INTEGER,
            rich_help_panel=CHOICES,
            show_default="the devices left",
        ),
    ] = None,
    global_batch: GlobalBatchOption = DEFAULT_GLOBAL_BATCH,
    micro_batch: Annotated[
        int,
        typer.Option(
            "--micro-batch",
            help="Samples a micro-batch.",
            parser=integer("--micro-batch", high=MAX_MICRO_BATCH),
            metavar=INTEGER,
            rich_help_panel=CHOICES,
        ),
    ] = 1,
    sequence_length: SequenceLengthOption = None,
    optimizer: OptimizerOption = "adam",
    output: Annotated[
        Path | None,
        typer.Option("--out", help="Network file (TOML) to write, for --network.", rich_help_panel=RECORDS),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Split a budget of bandwidth over a network's levels so that a step's collectives end soonest (LIBRA).

    The answer carries a bound that no other split can beat. Compute is left out: the split is for the collectives.
    """
    from phaze_opt.hardware.network import Chunking
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.objective.step.network_design import design_network
    from phaze_opt.units import gb_per_s_to_bytes_per_s

    way = None if chunking is None else parse_word(Chunking, chunking, source="--chunking")
    check_file_to_write(output, option="--out", example="network.toml")
    step = _compile(
        model,
        devices=devices,
        degrees=(tensor_parallel, pipeline, data),
        batches=(global_batch, micro_batch),
        sequence_length=sequence_length,
        optimizer=optimizer,
    )
    design = design_network(
        step,
        load_network(network, num_devices=devices),
        total_bytes_per_s=None if total_gb_per_s is None else gb_per_s_to_bytes_per_s(total_gb_per_s),
        costs=_costs(costs),
        chunking=way,
    )
    if output is not None:
        _write(design.best.network, output)
    if json:
        print_json(design_to_json(design, step, output=output))
        return
    print_design(design, output=output)


def _compile(
    name: str,
    *,
    devices: int,
    degrees: tuple[int, int, int | None],
    batches: tuple[int, int],
    sequence_length: int | None,
    optimizer: str,
) -> CompiledStep:
    """The step of a plan on ideal software.

    Raises:
        InputError: the degrees do not fill the devices, or model and batch cannot be split this way.
    """
    from phaze_opt.objective.step.compiled_step import compile_step
    from phaze_opt.objective.step.plan_space import plan_obstacle
    from phaze_opt.workload.config import load_model
    from phaze_opt.workload.plan import ParallelPlan
    from phaze_opt.workload.stack import IDEAL_STACK
    from phaze_opt.workload.training import Optimizer, TrainingSpec

    model = load_model(name)
    tensor, pipeline, data = degrees
    replicas = devices // (tensor * pipeline) if data is None else data
    if tensor * pipeline * replicas != devices:
        shown = "" if data is None else f" x data {data}"
        message = f"tensor {tensor} x pipeline {pipeline}{shown} do not fill {devices} devices; give degrees that do"
        raise InputError(message, source="--devices")
    global_batch, micro_batch = batches
    training = TrainingSpec(
        micro_batch=micro_batch,
        sequence_length=training_length(model, sequence_length),
        global_batch=global_batch,
        optimizer=parse_word(Optimizer, optimizer, source="--optimizer"),
    )
    plan = ParallelPlan(tensor=tensor, pipeline=pipeline, data=replicas, micro_batch=micro_batch)
    obstacle = plan_obstacle(model, training, plan)
    if obstacle is not None:
        raise InputError(obstacle)
    step = compile_step(model, training, plan, stack=IDEAL_STACK)
    if degrees == (1, 1, None):
        _refuse_unfit(step)
    return step


def _refuse_unfit(step: CompiledStep) -> None:
    """Plain data parallelism, where no degree is given, is for models that some machine could hold.

    Raises:
        InputError: none could, even if every block were computed again.
    """
    from dataclasses import replace

    from phaze_opt.hardware.device import list_devices, load_device
    from phaze_opt.objective.step.plan_search import step_memory
    from phaze_opt.units import bytes_to_gib
    from phaze_opt.workload.plan import Recompute

    least = step_memory(replace(step, plan=replace(step.plan, recompute=Recompute.FULL))).peak_bytes
    largest = max(load_device(name).hbm_bytes for name in list_devices())
    if least > largest:
        message = (
            f"{step.model.name} whole on every device takes {bytes_to_gib(least):,.0f} GiB, more than any machine has "
            f"({bytes_to_gib(largest):,.0f}); give --tensor-parallel and --pipeline (`evaluate` finds degrees that fit)"
        )
        raise InputError(message, source="--model")


def _costs(text: str | None) -> tuple[float, ...]:
    """Positive numbers separated by commas; none if nothing was given."""
    if text is None:
        return ()
    read = positive("--costs")
    try:
        return tuple(read(word) for word in text.split(","))
    except InputError:
        message = f"{shorten(text)} must be positive numbers separated by commas, such as 1,4,20"
        raise InputError(message, source="--costs") from None


def _write(network: Network, path: Path) -> None:
    from phaze_opt.hardware.network_file import network_text
    from phaze_opt.record.whole_file import replace_file

    replace_file(path, network_text(network))
