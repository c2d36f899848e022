"""The parallel plans that a model, a cluster and a batch admit, narrowed by what the user fixes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isqrt
from typing import Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.sharding import sharding_obstacle
from phaze_opt.record.arrays import Flags, Indices
from phaze_opt.record.input_files import shorten
from phaze_opt.workload.plan import (
    FREE_EXPERT_TENSOR,
    PLAN_RULES,
    ParallelPlan,
    PlanChoices,
    Recompute,
    chunked_cuts,
    nearest_cut,
)
from phaze_opt.workload.plan_columns import NO_STAGES, RECOMPUTES, PlanColumns
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack, launch_sizes, refusals
from phaze_opt.workload.training import MAX_SAMPLES, TrainingSpec
from phaze_opt.workload.workload import Workload

_INDEPENDENT = ("micro_batch", "interleave", "expert", "expert_tensor", "zero", "state_shards")
"""Fields of a plan that take any of their choices, whatever the devices."""
_ENDS = ("embedding", "head")
"""Layers besides the blocks that a stage may have alone."""


def list_plans(
    model: Workload,
    training: TrainingSpec,
    *,
    num_devices: int,
    choices: PlanChoices,
    stack: TrainingStack = IDEAL_STACK,
) -> PlanColumns:
    """Every plan that the choices, the devices, the model and the software's launcher admit, in a fixed order.

    Interleaving needs blocks and micro-batches that divide evenly (Narayanan et al. 2021, section 2.2); the batch
    divides into replicas and micro-batches, as training software demands. Of ZeRO stages and shards that come to the
    same, because nothing is sharded or nobody shares it, only the first given is tried; of ways to lay out experts that
    come to the same, the one that says nothing of tensor groups.
    """
    is_fold_free, choices = not choices.expert_tensor, _resolved(choices, model)
    parts = []
    if choices.blocks and given_obstacle(model, choices):
        return PlanColumns.of([])
    for tensor, context in product(choices.tensor, choices.context):
        spreads = _spreads(model, num_devices // (tensor * context), choices, training.global_batch)
        own = _with_split_experts(choices, model, tensor) if is_fold_free else choices
        combined = _combined(tensor, context, sorted({each[:2] for each in spreads}), own)
        of_plans = np.stack([combined.pipeline, combined.data, combined.micro_batch])
        combined = combined.take(_are_among(of_plans, np.array(sorted(spreads), np.int64).reshape(-1, 3).T))
        if choices.blocks:
            combined = _with_given_stages(model, combined, choices)
        elif choices.has_cuts:
            combined = _with_cuts(combined, model.num_units)
        elif choices.has_near_cuts:
            combined = _with_near_cuts(combined, model)
        parts.append(_admitted(model, training, combined, choices, stack))
    plans = PlanColumns.joined([PlanColumns.of([]), *parts])
    return plans.take(~_copies_in_group(plans)) if is_fold_free else plans


def _resolved(choices: PlanChoices, model: Workload) -> PlanChoices:
    """The choices with free interleaving, expert and expert tensor degrees as the model admits, and stages given."""
    return replace(
        choices,
        pipeline=choices.pipeline or ((len(choices.blocks),) if choices.blocks else ()),
        recompute=(Recompute.NONE,) if choices.stage_recompute else choices.recompute,
        interleave=choices.interleave or (_divisors(model.num_units) if has_equal_units(model) else (1,)),
        expert=choices.expert or _divisors(model.num_experts),
        expert_tensor=_expert_tensors(choices, model),
    )


def has_equal_units(model: Workload) -> bool:
    """Whether the units of a model are all equal, so that stages may have several chunks of them."""
    return len(model.cut.units) == 1


def _expert_tensors(choices: PlanChoices, model: Workload) -> tuple[int, ...]:
    """Expert tensor degrees as the model admits them; without experts 1 says nothing."""
    free = choices.expert_tensor or FREE_EXPERT_TENSOR
    return free if model.has_experts else tuple(dict.fromkeys(0 if degree == 1 else degree for degree in free))


def _with_split_experts(choices: PlanChoices, model: Workload, tensor: int) -> PlanChoices:
    """Free choices with experts split by all of a tensor group that cannot have whole ones on its devices."""
    if model.has_experts and model.num_experts % tensor:
        return replace(choices, expert_tensor=tuple(dict.fromkeys((*choices.expert_tensor, tensor))))
    return choices


def _divisors(number: int) -> tuple[int, ...]:
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return tuple(sorted({*low, *(number // each for each in low)}))


def _combined(tensor: int, context: int, degrees: Sequence[tuple[int, int]], choices: PlanChoices) -> PlanColumns:
    """Pipeline and data degrees with every value of all else, admitted or not."""
    free = [tuple(value for value in getattr(choices, name) if value <= MAX_SAMPLES) for name in _INDEPENDENT]
    free.append(tuple(RECOMPUTES.index(each) for each in choices.recompute))
    values = np.stack(np.meshgrid(*(np.array(each, np.int64) for each in free), indexing="ij"), -1)
    values = values.reshape(-1, len(free))
    pipeline, data = np.repeat(np.array(degrees, np.int64).reshape(-1, 2), len(values), axis=0).T
    columns = dict(zip((*_INDEPENDENT, "recompute"), np.tile(values, (len(degrees), 1)).T, strict=True))
    values_of_all = (tensor, context, int(choices.is_sequence_parallel and tensor > 1), 0)
    same = (np.full(len(data), each) for each in values_of_all)
    columns |= dict(zip(("tensor", "context", "is_sequence_parallel", "stages"), same, strict=True))
    return PlanColumns(**columns, pipeline=pipeline, data=data)


def _with_cuts(plans: PlanColumns, num_layers: int) -> PlanColumns:
    """The plans, each followed by those cut unevenly; of those without interleaving one stands for all."""
    shapes, place = np.unique(np.stack([plans.pipeline, plans.interleave], axis=1), axis=0, return_inverse=True)
    parts, order = [plans], [np.arange(len(plans))]
    for number, (pipeline, interleave) in enumerate(shapes.tolist()):
        rows = np.flatnonzero(place.reshape(-1) == number)
        for cuts in _uneven_cuts(num_layers, pipeline, interleave):
            if cuts != (num_layers // pipeline,) * pipeline or num_layers % (pipeline * interleave):
                stages = np.ones(len(rows), np.int64)
                parts.append(replace(plans.take(rows), stages=stages, stage_choices=(NO_STAGES, (cuts, (), ()))))
                order.append(rows)
    return PlanColumns.joined(parts).take(np.argsort(np.concatenate(order), kind="stable"))


def _with_near_cuts(plans: PlanColumns, model: Workload) -> PlanColumns:
    """The plans, with the nearest cuts where equal chunks do not come out, or several layers precede the blocks."""
    num_layers, parts = model.num_units, plans.pipeline * plans.interleave
    is_uneven = (plans.interleave > 1) & (num_layers % parts > 0) | (_front_blocks(model) > 1)
    is_uneven &= plans.pipeline > 1
    stages, choices = plans.stages.copy(), [NO_STAGES]
    for pipeline, interleave in np.unique(np.stack([plans.pipeline, plans.interleave], 1)[is_uneven], axis=0).tolist():
        cut = nearest_cut(num_layers, pipeline, interleave, front=_front_blocks(model))
        if cut:
            stages[is_uneven & (plans.pipeline == pipeline) & (plans.interleave == interleave)] = len(choices)
            choices.append((cut, (), ()))
    return replace(plans, stages=stages, stage_choices=tuple(choices))


def _with_given_stages(model: Workload, plans: PlanColumns, choices: PlanChoices) -> PlanColumns:
    """The plans of as many stages as are given, with these; with interleaving where equal chunks have such cuts."""
    parts, stages = [PlanColumns.of([])], len(choices.blocks)
    rows = plans.take(plans.pipeline == stages)
    for interleave in np.unique(rows.interleave).tolist():
        if interleave > 1 and not (stages > 1 and _is_of_chunks(model, choices.blocks, interleave)):
            continue
        own = rows.take(rows.interleave == interleave)
        one = ParallelPlan(pipeline=stages, interleave=interleave)
        stated = one.with_stages(choices.blocks, choices.stage_recompute or one.recomputes)
        key = stated.blocks, stated.stage_recompute, stated.unit_order
        if choices.stage_recompute:
            own = replace(own, recompute=np.full(len(own), RECOMPUTES.index(stated.recompute)))
        if key != NO_STAGES:
            own = replace(own, stages=np.ones(len(own), np.int64), stage_choices=(NO_STAGES, key))
        parts.append(own)
    return PlanColumns.joined(parts)


def _front_blocks(model: Workload) -> int:
    """As how many blocks the layers before the blocks count: each but the embedding, which alone counts as one."""
    return max(1, len(model.cut.front) - 1)


def _is_of_chunks(model: Workload, blocks: tuple[int, ...], interleave: int) -> bool:
    """Whether stages of so many blocks are of equal chunks each, or of the nearest to it."""
    shape = model.num_units, len(blocks), interleave
    return blocks in (*chunked_cuts(*shape), nearest_cut(*shape, front=_front_blocks(model)))


def _uneven_cuts(num_layers: int, pipeline: int, interleave: int) -> tuple[tuple[int, ...], ...]:
    """Cuts that are tried besides even ones, which may be among them."""
    if interleave > 1:
        return chunked_cuts(num_layers, pipeline, interleave)
    if num_layers < pipeline <= num_layers + len(_ENDS):
        return ((0, *[1] * (pipeline - 2), int(pipeline == num_layers + 1)),)
    return ()


def _admitted(
    model: Workload, training: TrainingSpec, plans: PlanColumns, choices: PlanChoices, stack: TrainingStack
) -> PlanColumns:
    """Those plans that no rule forbids, that are told from others, and that fit the model, the batch and a launcher."""
    for rule in PLAN_RULES:
        plans = plans.take(~rule.is_broken(plans))
    if not len(plans):
        return plans
    plans = plans.take(~_is_repeated(plans, choices))
    plans = plans.take(_is_shardable(model, plans))
    for obstacle in _OBSTACLES:
        plans = plans.take(~np.broadcast_to(obstacle.is_met(model, training, plans), len(plans)))
    for asked in stack.rules:
        is_broken = asked.is_broken(launch_sizes(model, training, plans))
        plans = plans.take(~np.broadcast_to(is_broken, len(plans)))
    return plans


def _is_repeated(plans: PlanColumns, choices: PlanChoices) -> Flags:
    """Whether another ZeRO stage, number of shards or way to lay out experts among the choices says the same."""
    first_zero, first_shards = choices.zero[0], choices.state_shards[0]
    is_other = plans.state_shards != first_shards
    # Experts that are folded over a tensor group may have replicas where nothing else has any.
    folds = plans.tensor // np.where(plans.expert_tensor > 0, plans.expert_tensor, plans.tensor)
    is_alone = (plans.data * plans.context == 1) & (folds == plans.expert)
    is_same = np.where(is_alone, (plans.zero != first_zero) | is_other, (plans.zero == 0) & is_other)
    return np.asarray(is_same | _is_said_shorter(plans, choices))


def _is_said_shorter(plans: PlanColumns, choices: PlanChoices) -> Flags:
    """Whether a plan that says nothing of tensor groups lays experts out alike: over all of a group, or within one."""
    if 0 not in choices.expert_tensor:
        return np.zeros(len(plans), np.bool_)
    is_whole_group = (plans.expert > 1) & (plans.expert_tensor == plans.tensor)
    is_within_group = (plans.expert == plans.tensor) & (plans.expert_tensor == 1) & (1 in choices.expert)
    return np.asarray(is_whole_group | is_within_group)


def _copies_in_group(plans: PlanColumns) -> Flags:
    """Whether several devices of a tensor group hold the same part of an expert: more than the group need hold."""
    return np.asarray((plans.expert_tensor > 0) & (plans.expert * plans.expert_tensor < plans.tensor))


def _is_shardable(model: Workload, plans: PlanColumns) -> Flags:
    """Whether the model can be split over the tensor and expert degrees of each plan."""
    degrees = np.stack([plans.tensor, plans.expert, plans.expert_tensor], axis=1)
    distinct, place = np.unique(degrees, axis=0, return_inverse=True)
    alone = (ParallelPlan(tensor=t, data=e, expert=e, expert_tensor=split) for t, e, split in distinct.tolist())
    fits = [_sharding_obstacle(model, plan) is None for plan in alone]
    return np.array(fits, np.bool_)[place.reshape(-1)]


def _sharding_obstacle(model: Workload, plan: ParallelPlan) -> str | None:
    return sharding_obstacle(model, plan.tensor, options=ShardingOptions.of_plan(plan))


def plan_obstacle(
    model: Workload, training: TrainingSpec, plan: ParallelPlan, stack: TrainingStack = IDEAL_STACK
) -> str | None:
    """Why a software cannot train a model by a plan, as a sentence; None if it can."""
    sharding = _sharding_obstacle(model, plan)
    if sharding is not None:
        return sharding
    met = [each.says(model, training, plan) for each in _OBSTACLES if each.is_met(model, training, plan)]
    met += refusals(stack.name, stack.rules, launch_sizes(model, training, plan))
    return met[0] if met else None


def _is_even(plan: ParallelPlan | PlanColumns) -> Any:
    """Whether a plan, or each of many, leaves its cuts to be as even as they can be."""
    return not plan.blocks if isinstance(plan, ParallelPlan) else plan.is_even


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """What stands between a model and a plan.

    Attributes:
        is_met: asked of a plan, or of columns for all of their plans at once.
        says: of one plan, as a sentence.
    """

    is_met: Callable[[Workload, TrainingSpec, Any], Any]
    says: Callable[[Workload, TrainingSpec, ParallelPlan], str]


_OBSTACLES = (
    _Obstacle(
        lambda model, training, plan: training.sequence_length % plan.context > 0,
        lambda model, training, plan: (
            f"sequences of {training.sequence_length} tokens do not divide into {plan.context} context shards"
        ),
    ),
    _Obstacle(
        lambda model, training, plan: plan.data * plan.micro_batch > training.global_batch,
        lambda model, training, plan: (
            f"{_replicas(plan.data, plan.micro_batch)} need{'s' * (plan.data == 1)} a global batch of "
            f"{plan.data * plan.micro_batch}, not {training.global_batch}"
        ),
    ),
    _Obstacle(
        lambda model, training, plan: training.global_batch % (plan.data * plan.micro_batch) > 0,
        lambda model, training, plan: _uneven_batch(training.global_batch, plan.data, plan.micro_batch),
    ),
    _Obstacle(
        lambda model, training, plan: isinstance(plan, ParallelPlan) and sum(plan.blocks) not in (0, model.num_units),
        lambda model, training, plan: (
            f"stages of {list(plan.blocks)} blocks have {sum(plan.blocks)}, not the {model.num_units} of {model.name}"
        ),
    ),
    _Obstacle(
        lambda model, training, plan: (
            isinstance(plan, ParallelPlan)
            and bool(plan.blocks)
            and plan.interleave > 1
            and not _is_of_chunks(model, plan.blocks, plan.interleave)
        ),
        lambda model, training, plan: (
            f"stages of {list(plan.blocks)} blocks are not {plan.interleave} equal chunks each, nor the nearest to it, "
            "embedding and head counted or not"
        ),
    ),
    _Obstacle(
        lambda model, training, plan: (plan.interleave > 1) & (not has_equal_units(model)),
        lambda model, training, plan: (
            f"stages of several chunks need equal layers, and those of {model.name} differ; give interleave 1"
        ),
    ),
    _Obstacle(
        lambda model, training, plan: _is_even(plan) & (plan.pipeline * plan.interleave > model.num_units),
        lambda model, training, plan: (
            f"{plan.pipeline * plan.interleave} model chunks exceed the {model.num_units} blocks of {model.name}"
        ),
    ),
    _Obstacle(
        lambda model, training, plan: (
            _is_even(plan) & (plan.interleave > 1) & (model.num_units % (plan.pipeline * plan.interleave) > 0)
        ),
        lambda model, training, plan: (
            f"{model.num_units} blocks do not divide into {plan.pipeline} stages of {plan.interleave} chunks"
        ),
    ),
    _Obstacle(
        lambda model, training, plan: (
            (plan.interleave > 1) & (training.global_batch // (plan.data * plan.micro_batch) % plan.pipeline > 0)
        ),
        lambda model, training, plan: f"interleaving needs micro-batches in multiples of {plan.pipeline} stages",
    ),
)
"""In the order they are told, once the model can be sharded."""


def _uneven_batch(global_batch: int, data: int, micro_batch: int) -> str:
    """That a batch leaves some replicas with less, which training software refuses, and the nearest that do not."""
    samples = data * micro_batch
    below = global_batch // samples * samples
    nearest = " or ".join(str(each) for each in (below, below + samples) if each)
    whole = _replicas(data, micro_batch)
    return f"a global batch of {global_batch} does not divide into {whole}; give {nearest}"


def _replicas(data: int, micro_batch: int) -> str:
    return f"{data} replica{'s' * (data > 1)} of {micro_batch} sequence{'s' * (micro_batch > 1)}"


def given_obstacle(model: Workload, choices: PlanChoices) -> str | None:
    """Why stages that are given are not of a model or of a pipeline, as a sentence; None if they are."""
    given = f"stages of {shorten(list(choices.blocks))} blocks"
    if sum(choices.blocks) != model.num_units:
        return f"{given} have {sum(choices.blocks)}, not the {model.num_units} of {model.name}"
    if choices.pipeline and len(choices.blocks) not in choices.pipeline:
        return f"{given} are {len(choices.blocks)} of a pipeline of {' or '.join(map(str, choices.pipeline))}"
    try:
        ParallelPlan(pipeline=len(choices.blocks), blocks=choices.blocks, stage_recompute=choices.stage_recompute)
    except InputError as error:
        return str(error).removeprefix(f"'{error.key}': ")
    return None


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why choices leave no plan.

    Attributes:
        sentence: what hinders the smallest one.
        field: of `PlanChoices` that is at fault; empty where it is not one alone.
        is_refused: whether rules of the launcher alone are in the way.
    """

    sentence: str
    field: str = ""
    is_refused: bool = False


def explain_no_plan(
    model: Workload,
    training: TrainingSpec,
    *,
    num_devices: int,
    choices: PlanChoices,
    stack: TrainingStack = IDEAL_STACK,
) -> NoPlan:
    """What hinders the smallest plan of choices that admit none."""
    faulty = given_obstacle(model, choices) if choices.blocks else None
    if faulty:
        return NoPlan(faulty, "blocks")
    near = replace(choices, has_near_cuts=True)
    try:
        free = list_plans(model, training, num_devices=num_devices, choices=near)
        told = refusals(stack.name, stack.rules, launch_sizes(model, training, free.plan(0))) if len(free) else ()
        if told:
            return NoPlan(told[0], is_refused=True)
        return NoPlan(_explain(model, training, num_devices, _resolved(choices, model)))
    except InputError as error:
        return NoPlan(str(error).removeprefix(f"'{error.key}': "), error.key or "")


def _explain(model: Workload, training: TrainingSpec, num_devices: int, choices: PlanChoices) -> str:
    """The sentence, where no stages are given or they are the model's.

    Raises:
        InputError: no such plan can be at all; its key is the field at fault.
    """
    split = max(1, min(choices.expert_tensor))
    tensor = min((each for each in choices.tensor if each % split == 0), default=max(choices.tensor))
    context = min(choices.context)
    pipeline, data = min(choices.pipeline, default=1), min(choices.data, default=1)
    needed = tensor * context * pipeline * data
    options = ShardingOptions(has_kv_replicas=True, expert_tensor=None if model.has_experts else split)
    obstacles = [sharding_obstacle(model, degree, options=options) for degree in choices.tensor]
    if all(obstacles):
        return str(obstacles[0])
    if needed > num_devices:
        return (
            f"tensor {tensor} x context {context} x pipeline {pipeline} x data {data} takes {needed} devices of "
            f"{num_devices}; give smaller degrees or more devices"
        )
    least = {name: min(getattr(choices, name)) for name in _INDEPENDENT}
    is_split = choices.is_sequence_parallel and tensor > 1
    plan = ParallelPlan(tensor, pipeline, data, context, **least, blocks=choices.blocks)
    obstacle = plan_obstacle(model, training, replace(plan, is_sequence_parallel=is_split))
    return obstacle or "no combination of the degrees given fits the devices and the batch; leave more of them free"


def _are_among(columns: Indices, known: Indices) -> Flags:
    """Which columns are among others of as many rows."""
    _, place = np.unique(np.concatenate([known, columns], axis=1), axis=1, return_inverse=True)
    place = place.reshape(-1)
    return np.isin(place[known.shape[1] :], place[: known.shape[1]])


def _spreads(model: Workload, devices: int, choices: PlanChoices, batch: int) -> set[tuple[int, int, int]]:
    """Stages, replicas and micro-batches on the devices that tensor and context groups leave.

    Of stages and replicas that are free neither could be more: replicas are the most that the batch divides into beside
    the stages, stages the most that the devices hold beside the replicas, of blocks and in all; any number where each
    replica has one micro-batch. Stages beside given replicas are those that divide the devices, too.
    """
    most = min(devices, model.num_units + len(_ENDS) * (choices.has_cuts or bool(choices.blocks)))
    found = set()
    for micro_batch in (each for each in choices.micro_batch if each > 0):
        if choices.data:
            held = {data: range(1, min(most, devices // data) + 1) for data in choices.data if 0 < data <= devices}
            free = {
                data: [p for p in stages if devices % p == 0 or p in (stages[-1], min(stages[-1], model.num_units))]
                for data, stages in held.items()
            }
            pairs = [(p, data) for data in held for p in choices.pipeline or free[data] if 0 < p * data <= devices]
        else:
            counts = _divisors(batch // micro_batch) if batch % micro_batch == 0 else ()
            stages = [each for each in choices.pipeline or range(1, most + 1) if 0 < each <= devices]
            pairs = [(p, max((each for each in counts if each * p <= devices), default=0)) for p in stages]
            # Stages of the embedding or the head alone are more than the blocks can be cut into.
            tallest = {(data, p > model.num_units): p for p, data in sorted(pairs)}
            is_whole = {d: bool(choices.pipeline) or d * micro_batch == batch for _, d in pairs}
            pairs = [(p, d) for p, d in pairs if d and (is_whole[d] or tallest[d, p > model.num_units] == p)]
        found |= {(*pair, micro_batch) for pair in pairs}
    return found
