"""The job of ``network optimise``: bandwidth allocated to a network's levels for the collectives of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError
from phaze_opt.jobs.evaluate_request import training_length
from phaze_opt.jobs.options import RECORDS, ModelOptions, number
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
    from phaze_opt.cost.network_design import NetworkDesign

NETWORK = "Network"
NETWORK_HELP = "A network by name (see `phaze-opt network list`), or a TOML file."
_splitting = partial(declared, panel=NETWORK)
_choosing = partial(declared, panel=CHOICES)


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


def split_bandwidth(options: SplitOptions) -> tuple[CompiledStep, NetworkDesign]:
    """A step on ideal software, and how a budget of bandwidth is best split for its collectives.

    Raises:
        InputError: an option breaks a rule.
    """
    from phaze_opt.cost.network_design import design_network
    from phaze_opt.hardware.network import Chunking
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.units import gb_per_s_to_bytes_per_s

    total, chunking = options.total_gb_per_s, options.chunking
    way = None if chunking is None else parse_word(Chunking, chunking, source="--chunking")
    step = _compile(options)
    design = design_network(
        step,
        load_network(options.network, num_devices=options.devices),
        total_bytes_per_s=None if total is None else gb_per_s_to_bytes_per_s(total),
        costs=_costs(options.costs),
        chunking=way,
    )
    return step, design


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
