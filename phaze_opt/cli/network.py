"""``phaze-opt network``: list and show networks, and allocate bandwidth to their levels for a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.evaluate_request import training_length
from phaze_opt.cli.options import RECORDS, JsonOption, ModelOptions, number, typer_option, with_options
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_tables
from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import (
    CHOICES,
    MAX_MICRO_BATCH,
    Kind,
    ScenarioOptions,
    declarations,
    declared,
    same,
)
from phaze_opt.record.input_files import shorten
from phaze_opt.record.suggestions import parse_word

if TYPE_CHECKING:
    from phaze_opt.cost.compiled_step import CompiledStep
    from phaze_opt.cost.network_design import NetworkCase, NetworkDesign
    from phaze_opt.hardware.network import Network

NETWORK = "Network"
DEFAULT_SHOWN_DEVICES = 64
NETWORK_HELP = "A network by name (see `phaze-opt network list`), or a TOML file."
_splitting = partial(declared, panel=NETWORK)
_choosing = partial(declared, panel=CHOICES)

app = typer.Typer(
    name="network",
    help="Networks of accelerators: list and show them, and allocate bandwidth to their levels for a model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """A step of training, and the bandwidth that its collectives share."""

    model: str = same(ModelOptions, "model", is_required=True)
    devices: int = same(ScenarioOptions, "devices")
    network: str = same(ScenarioOptions, "network", help=NETWORK_HELP)
    total_gb_per_s: float | None = _splitting(
        None, "Bandwidth of a device over all levels, one way, 10^9 bytes/s.", Kind.AMOUNT, shown="what the network has"
    )
    costs: str | None = _splitting(
        None,
        "Cost of bandwidth on each level, innermost first, such as 2,4,36; the budget is what an equal split "
        "of the total costs.",
        Kind.TEXT,
        shown="1 each",
    )
    chunking: str | None = _splitting(
        None,
        "How collectives go through the levels: none (one after another), fixed (in chunks, inside out) or "
        "themis (in chunks, balanced).",
        Kind.WORD,
        shown="as the network says",
    )
    tensor_parallel: int = _choosing(1, "Tensor-parallel degree.", Kind.COUNT)
    pipeline: int = _choosing(1, "Pipeline stages.", Kind.COUNT)
    data: int | None = _choosing(None, "Replicas.", Kind.COUNT, shown="the devices left")
    global_batch: int = same(ScenarioOptions, "global_batch", default=512, is_required=False)
    micro_batch: int = _choosing(1, "Samples a micro-batch.", Kind.COUNT, high=MAX_MICRO_BATCH)
    sequence_length: int | None = same(ScenarioOptions, "sequence_length")
    optimizer: str = same(ScenarioOptions, "optimizer")
    out: Path | None = declared(None, "Network file (TOML) to write, for --network.", Kind.PATH, panel=RECORDS)


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
    from phaze_opt.cost.network_design import design_network
    from phaze_opt.hardware.network import Chunking
    from phaze_opt.hardware.network_file import network_text
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.record.whole_file import replace_file
    from phaze_opt.report.networks import collective_table, design_sentence, design_table
    from phaze_opt.units import gb_per_s_to_bytes_per_s

    total, output = options.total_gb_per_s, options.out
    way = None if options.chunking is None else parse_word(Chunking, options.chunking, source="--chunking")
    check_file_to_write(output, option="--out", example="network.toml")
    step = _compile(options)
    design = design_network(
        step,
        load_network(options.network, num_devices=options.devices),
        total_bytes_per_s=None if total is None else gb_per_s_to_bytes_per_s(total),
        costs=_costs(options.costs),
        chunking=way,
    )
    if output is not None:
        replace_file(output, network_text(design.best.network))
    if json:
        print_json(_design_to_json(design, step, output=output))
        return
    out().print(design_sentence(design))
    print_tables(design_table(design), collective_table(design))
    if output is not None:
        out().print(f"Written to {output}: give it to --network.", soft_wrap=True)


def _compile(options: SplitOptions) -> CompiledStep:
    """The step of a plan on ideal software.

    Raises:
        InputError: the degrees do not fill the devices, or model and batch cannot be split this way.
    """
    from phaze_opt.cost.compiled_step import compile_step
    from phaze_opt.graph.any_model import load_any_model
    from phaze_opt.plan.plan_space import plan_obstacle
    from phaze_opt.workload.plan import ParallelPlan
    from phaze_opt.workload.software import IDEAL_STACK
    from phaze_opt.workload.training import Optimizer, TrainingSpec

    model = load_any_model(options.model)
    devices, tensor, pipeline, data = options.devices, options.tensor_parallel, options.pipeline, options.data
    replicas = devices // (tensor * pipeline) if data is None else data
    if tensor * pipeline * replicas != devices:
        shown = "" if data is None else f" x data {data}"
        message = f"tensor {tensor} x pipeline {pipeline}{shown} do not fill {devices} devices; give degrees that do"
        raise InputError(message, source="--devices")
    training = TrainingSpec(
        micro_batch=options.micro_batch,
        sequence_length=training_length(model, options.sequence_length),
        global_batch=options.global_batch,
        optimizer=parse_word(Optimizer, options.optimizer, source="--optimizer"),
    )
    plan = ParallelPlan(tensor=tensor, pipeline=pipeline, data=replicas, micro_batch=options.micro_batch)
    obstacle = plan_obstacle(model, training, plan)
    if obstacle is not None:
        raise InputError(obstacle)
    step = compile_step(model, training, plan, stack=IDEAL_STACK)
    if (tensor, pipeline, data) == (1, 1, None):
        _refuse_unfit(step)
    return step


def _refuse_unfit(step: CompiledStep) -> None:
    """Plain data parallelism, where no degree is given, is for models that some machine could hold.

    Raises:
        InputError: none could, even if every block were computed again.
    """
    from phaze_opt.hardware.device_catalogue import list_devices, load_device
    from phaze_opt.plan.plan_search import step_memory
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
    read = number(replace(declarations(SplitOptions)["costs"], kind=Kind.AMOUNT))
    try:
        return tuple(read(word) for word in text.split(","))
    except InputError:
        message = f"{shorten(text)} must be positive numbers separated by commas, such as 1,4,20"
        raise InputError(message, source="--costs") from None


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
