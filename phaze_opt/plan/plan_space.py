"""The parallel plans that a model, a cluster and a batch admit, narrowed by what the user fixes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from phaze_opt.errors import InputError
from phaze_opt.graph.sharding import ShardingOptions, sharding_obstacle
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, chunked_cuts
from phaze_opt.workload.training import TrainingSpec

_INDEPENDENT = ("micro_batch", "interleave", "expert", "zero", "state_shards")
"""Fields of a plan that take any of their choices, whatever the devices."""
_ENDS = ("embedding", "head")
"""Layers besides the blocks that a stage may have alone."""


def enumerate_plans(
    model: ModelSpec, training: TrainingSpec, *, num_devices: int, choices: PlanChoices
) -> Iterator[ParallelPlan]:
    """Every plan that the choices, the devices and the model admit, in a fixed order.

    Interleaving needs blocks and micro-batches that divide evenly (Narayanan et al. 2021, section 2.2); the batch
    divides into replicas and micro-batches, as training software demands. Of ZeRO stages and shards that come to the
    same, because nothing is sharded or nobody shares it, only the first given is tried.
    """
    choices = _resolved(choices, model)
    free = tuple(product(*(getattr(choices, name) for name in (*_INDEPENDENT, "recompute"))))
    for tensor, context in product(choices.tensor, choices.context):
        is_split = choices.is_sequence_parallel and tensor > 1
        for pipeline, data in _pipeline_and_data(model, num_devices // (tensor * context), choices):
            for values in free:
                rest = dict(zip((*_INDEPENDENT, "recompute"), values, strict=True))
                try:
                    plan = ParallelPlan(tensor, pipeline, data, context, **rest, is_sequence_parallel=is_split)
                except InputError:
                    continue
                if _is_repeated(plan, choices):
                    continue
                for each in _with_cuts(model, plan, choices):
                    if plan_obstacle(model, training, each) is None:
                        yield each


def _with_cuts(model: ModelSpec, plan: ParallelPlan, choices: PlanChoices) -> Iterator[ParallelPlan]:
    """The plan, and if asked for with cuts that are not even; of those without interleaving one stands for all."""
    yield plan
    if not choices.has_cuts:
        return
    if plan.interleave > 1:
        for cuts in chunked_cuts(model.num_layers, plan.pipeline, plan.interleave):
            cut = plan.with_stages(cuts, plan.recomputes)
            if cut != plan:
                yield cut
    elif model.num_layers < plan.pipeline <= model.num_layers + len(_ENDS):
        has_head = int(plan.pipeline == model.num_layers + 1)
        yield replace(plan, blocks=(0, *[1] * (plan.pipeline - 2), has_head))


def _resolved(choices: PlanChoices, model: ModelSpec) -> PlanChoices:
    """The choices with free interleaving and expert degrees as the model admits them."""
    counted = range(model.num_layers, model.num_layers + 1 + len(_ENDS) * choices.has_cuts)
    chunks = sorted({each for number in counted for each in _divisors(number)})
    return replace(
        choices, interleave=choices.interleave or tuple(chunks), expert=choices.expert or _divisors(model.num_experts)
    )


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(each for each in range(1, number + 1) if number % each == 0)


def _is_repeated(plan: ParallelPlan, choices: PlanChoices) -> bool:
    """Whether another ZeRO stage or number of shards among the choices says the same."""
    first_zero, first_shards = choices.zero[0], choices.state_shards[0]
    if plan.data * plan.context == 1:
        return (plan.zero, plan.state_shards) != (first_zero, first_shards)
    return plan.zero == 0 and plan.state_shards != first_shards


def plan_obstacle(model: ModelSpec, training: TrainingSpec, plan: ParallelPlan) -> str | None:
    """Why a model cannot be trained by a plan, as a sentence; None if it can."""
    obstacle = sharding_obstacle(model, plan.tensor, options=ShardingOptions.of_plan(plan))
    if obstacle is not None:
        return obstacle
    if training.sequence_length % plan.context:
        return f"sequences of {training.sequence_length} tokens do not divide into {plan.context} context shards"
    samples = plan.data * plan.micro_batch
    if samples > training.global_batch:
        return (
            f"{plan.data} replicas of {plan.micro_batch} sequences need a global batch of {samples}, "
            f"not {training.global_batch}"
        )
    if training.global_batch % samples:
        return _uneven_batch(training.global_batch, plan.data, plan.micro_batch)
    return _pipeline_obstacle(model, plan, num_micro_batches=plan.num_micro_batches(training.global_batch))


def _uneven_batch(global_batch: int, data: int, micro_batch: int) -> str:
    """That a batch leaves some replicas with less, which training software refuses, and the nearest that do not."""
    samples = data * micro_batch
    below = global_batch // samples * samples
    nearest = " or ".join(str(each) for each in (below, below + samples) if each)
    whole = f"{data} replicas of {micro_batch} sequences"
    return f"a global batch of {global_batch} does not divide into {whole}; give {nearest}"


def _pipeline_obstacle(model: ModelSpec, plan: ParallelPlan, *, num_micro_batches: int) -> str | None:
    """What hinders stages and their chunks."""
    obstacle = _cuts_obstacle(model, plan)
    if obstacle is not None:
        return obstacle
    if plan.interleave > 1 and num_micro_batches % plan.pipeline:
        return f"interleaving needs micro-batches in multiples of {plan.pipeline} stages"
    return None


def _cuts_obstacle(model: ModelSpec, plan: ParallelPlan) -> str | None:
    """What hinders the cuts of stages: with chunks they are equal, where the ends may count as a block each."""
    chunks, layers = plan.pipeline * plan.interleave, model.num_layers
    cuts = list(plan.blocks)
    if cuts and sum(cuts) != layers:
        return f"stages of {cuts} blocks have {sum(cuts)}, not the {layers} of {model.name}"
    if cuts and plan.interleave > 1 and plan.blocks not in chunked_cuts(layers, plan.pipeline, plan.interleave):
        return f"stages of {cuts} blocks are not {plan.interleave} equal chunks each, embedding and head counted or not"
    if not cuts and chunks > layers:
        return f"{chunks} model chunks exceed the {layers} blocks of {model.name}"
    if not cuts and plan.interleave > 1 and layers % chunks:
        return f"{layers} blocks do not divide into {plan.pipeline} stages of {plan.interleave} chunks"
    return None


def explain_no_plan(model: ModelSpec, training: TrainingSpec, *, num_devices: int, choices: PlanChoices) -> str:
    """What hinders the smallest plan of choices that admit none, as a sentence."""
    choices = _resolved(choices, model)
    tensor, context = min(choices.tensor), min(choices.context)
    pipeline, data = min(choices.pipeline, default=1), min(choices.data, default=1)
    needed = tensor * context * pipeline * data
    obstacles = [
        sharding_obstacle(model, degree, options=ShardingOptions(has_kv_replicas=True)) for degree in choices.tensor
    ]
    if all(obstacles):
        return str(obstacles[0])
    if needed > num_devices:
        return (
            f"tensor {tensor} x context {context} x pipeline {pipeline} x data {data} takes {needed} devices of "
            f"{num_devices}; give smaller degrees or more devices"
        )
    if not choices.data and num_devices % needed:
        return (
            f"tensor {tensor} x context {context} x pipeline {pipeline} does not divide {num_devices} devices; give "
            "the replicas too, and the rest stays idle"
        )
    replicas = data if choices.data else num_devices // needed
    try:
        least = {name: min(getattr(choices, name)) for name in _INDEPENDENT}
        plan = ParallelPlan(tensor, pipeline, replicas, context, **least, recompute=choices.recompute[0])
    except InputError as error:
        return str(error)
    obstacle = plan_obstacle(model, training, plan)
    if obstacle == _uneven_batch(training.global_batch, plan.data, plan.micro_batch):
        # Larger tensor and context degrees leave fewer replicas, whose multiples lie closer together.
        sizes = product(choices.tensor, choices.context)
        rest = [num_devices // (tensor * context) for tensor, context in sizes]
        fewest = min((data for devices in rest for _, data in _pipeline_and_data(model, devices, choices)), default=1)
        return _uneven_batch(training.global_batch, fewest, plan.micro_batch)
    return obstacle or "no combination of the degrees given fits the devices and the batch; leave more of them free"


def _pipeline_and_data(model: ModelSpec, devices: int, choices: PlanChoices) -> Iterator[tuple[int, int]]:
    """Pipeline and data degrees on the devices that tensor and context groups leave."""
    most = min(devices, model.num_layers + len(_ENDS) * choices.has_cuts)
    stages = choices.pipeline or tuple(p for p in range(1, most + 1) if devices % p == 0)
    for pipeline in stages:
        if choices.data:
            yield from ((pipeline, data) for data in choices.data if pipeline * data <= devices)
        elif pipeline <= devices and devices % pipeline == 0:
            yield pipeline, devices // pipeline
