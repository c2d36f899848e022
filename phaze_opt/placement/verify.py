"""Independent check of placements, in plain Python from the definitions of semantics 5.

Shares the data classes and the collectives with the solver, and nothing else: no kernels, no prefix sums, no tables.

Independent re-evaluation of placements under the original framework's semantics, layer by layer in plain Python.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from phaze_opt.errors import VerificationError
from phaze_opt.estimate.collectives import collective_coefficients, group_dimensions, transfer_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.placement.heterogeneous import HeterogeneousPlacement
from phaze_opt.placement.phaze_instance import PhazeChain, PhazeInstance
from phaze_opt.placement.phaze_solve import PhazePlacement
from phaze_opt.placement.problem import (
    LayerCosts,
    PlacementProblem,
    PlacementResult,
    PlacementStatus,
    RecomputePolicy,
    Stage,
)

RELATIVE_TOLERANCE = 1e-9
"""Agreement demanded of times and memories."""


class TimeTerm(StrEnum):
    """The terms that make up `batch_time`."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    FRONT_TRANSFER = "front_transfer"
    BACK_TRANSFER = "back_transfer"
    ALL_REDUCE = "all_reduce"
    UPDATE = "update"
    BUBBLE = "bubble"


STAGE_TERMS = (TimeTerm.FORWARD, TimeTerm.BACKWARD, TimeTerm.RECOMPUTE, TimeTerm.FRONT_TRANSFER, TimeTerm.BACK_TRANSFER)
"""The terms of `stage_time`."""
SYNC_TERMS = (TimeTerm.ALL_REDUCE, TimeTerm.UPDATE)
"""The terms of a stage's synchronisation."""


def recompute_batch_time(
    problem: PlacementProblem, result: PlacementResult, *, without: frozenset[TimeTerm] = frozenset()
) -> float:
    """`batch_time` of a placement from the definitions, s; ``without`` leaves terms out (to see what each is worth).

    Raises:
        VerificationError: the placement names a tensor degree that the problem does not have.
    """
    return _batch_time_s([problem] * len(result.stages), result, without)


def _batch_time_s(
    problems: Sequence[PlacementProblem], result: PlacementResult, without: frozenset[TimeTerm] = frozenset()
) -> float:
    """`batch_time` of stages that each have a problem of their own."""
    problem = problems[0]
    terms = [stage_terms(each, result, number) for number, each in enumerate(problems)]
    kept = [{term: 0.0 if term in without else value for term, value in stage.items()} for stage in terms]
    bottleneck_s = max(sum(stage[term] for term in STAGE_TERMS) for stage in kept)
    sync_s = max(sum(stage[term] for term in SYNC_TERMS) for stage in kept)
    num_micro = math.ceil(problem.global_batch / (problem.micro_batch * result.data_parallel))
    bubbles = 0 if TimeTerm.BUBBLE in without else len(result.stages) - 1
    return bottleneck_s * (num_micro + bubbles) + sync_s


def verify_placement(problem: PlacementProblem, result: PlacementResult) -> None:
    """Check a placement: layers, devices, memory, recomputation and every reported figure.

    An infeasible result must carry a shortfall that exceeds the memory or says that devices are too few.

    Raises:
        VerificationError: any of it is wrong; names the stage and both figures.
    """
    if result.status is PlacementStatus.INFEASIBLE:
        check(
            result.shortfall is not None and not result.stages,
            "an infeasible placement needs a shortfall and no stages",
        )
        return
    check(result.shortfall is None, "a placement that fits has no shortfall")
    _verify([problem] * len(result.stages), problem, result)


def verify_heterogeneous(problems: Sequence[PlacementProblem], found: HeterogeneousPlacement) -> None:
    """Check a placement on several chips: as `verify_placement`, the memory and times of each stage on its own chip.

    Args:
        problems: the chain on every chip.
        found: the placement and its chips.

    Raises:
        VerificationError: any of it is wrong; names the stage and both figures.
    """
    count = len(found.placement.stages)
    check(len(found.chips) == count, f"{count} stages on {len(found.chips)} chips")
    _verify([problems[chip] for chip in found.chips], problems[0], found.placement)


def _verify(problems: Sequence[PlacementProblem], whole: PlacementProblem, result: PlacementResult) -> None:
    """A placement that fits; ``problems`` are those of its stages, ``whole`` has what they share."""
    _verify_shape(whole, result)
    for number, (problem, stage) in enumerate(zip(problems, result.stages, strict=True)):
        _verify_stage(problem, result, number, stage)
    check_close("batch_time_s", result.batch_time_s, _batch_time_s(problems, result))


def _verify_shape(problem: PlacementProblem, result: PlacementResult) -> None:
    """Layers covered once and in order, devices within the cluster, micro-batches right."""
    layers = [layer for stage in result.stages for layer in range(stage.first, stage.last + 1)]
    check(layers == list(range(problem.options[0].num_layers)), f"stages cover layers {layers}, not each once in order")
    check(all(stage.last >= stage.first for stage in result.stages), "a stage is empty")
    used = result.tensor_parallel * len(result.stages) * result.data_parallel
    check(1 <= used <= problem.cluster.num_devices, f"{used} devices used of {problem.cluster.num_devices}")
    num_micro = math.ceil(problem.global_batch / (problem.micro_batch * result.data_parallel))
    check(result.num_micro_batches == num_micro, f"{result.num_micro_batches} micro-batches, not {num_micro}")


def _verify_stage(problem: PlacementProblem, result: PlacementResult, number: int, stage: Stage) -> None:
    """Memory, recomputation, time and synchronisation of one stage."""
    stash, recomputed = stage_memory_bytes(problem, result, number)
    if problem.recompute is RecomputePolicy.AUTO:
        is_recomputed = stash > problem.memory_bytes
    else:
        is_recomputed = problem.recompute is RecomputePolicy.ALWAYS
    check(stage.is_recomputed == is_recomputed, f"stage {number}: recomputation is {stage.is_recomputed}")
    memory = recomputed if is_recomputed else stash
    check_close(f"stage {number} memory_bytes", stage.memory_bytes, memory)
    check(memory <= problem.memory_bytes, f"stage {number}: {memory} bytes exceed {problem.memory_bytes}")
    terms = stage_terms(problem, result, number)
    check_close(f"stage {number} time_s", stage.time_s, sum(terms[term] for term in STAGE_TERMS))
    check_close(f"stage {number} sync_s", stage.sync_s, sum(terms[term] for term in SYNC_TERMS))


def _costs(problem: PlacementProblem, result: PlacementResult) -> LayerCosts:
    """Costs at the result's tensor degree."""
    for option in problem.options:
        if option.tensor_parallel == result.tensor_parallel:
            return option
    message = f"tensor_parallel = {result.tensor_parallel} is not among the problem's options"
    raise VerificationError(message)


def stage_memory_bytes(problem: PlacementProblem, result: PlacementResult, number: int) -> tuple[float, float]:
    """`stage_memory` with all stashed and with recomputation, bytes."""
    costs, stage = _costs(problem, result), result.stages[number]
    layers = range(stage.first, stage.last + 1)
    from_end = len(result.stages) - number
    in_flight = min(from_end, math.ceil(problem.global_batch / (problem.micro_batch * result.data_parallel)))
    state = math.fsum(costs.state_bytes[layer] for layer in layers)
    if len(result.stages) == 1:
        state -= costs.tied_state_bytes
    stash = math.fsum(costs.stash_bytes[layer] for layer in layers)
    inputs = math.fsum(costs.input_bytes[layer] for layer in layers)
    working = max(float(costs.working_set_bytes[layer]) for layer in layers)
    return state + in_flight * stash, state + in_flight * inputs + working


def stage_terms(problem: PlacementProblem, result: PlacementResult, number: int) -> dict[TimeTerm, float]:
    """Every term of one stage's time and synchronisation, s."""
    costs, stage, network = _costs(problem, result), result.stages[number], problem.cluster.network
    layers = range(stage.first, stage.last + 1)
    degree, from_end = costs.tensor_parallel, len(result.stages) - number
    forward_s = math.fsum(costs.forward_s[layer] for layer in layers)
    front_s = back_s = 0.0
    if number > 0:
        entering = float(costs.output_bytes[stage.first - 1])
        front_s = transfer_s(network, position=from_end * degree, payload_bytes=entering)
    if from_end > 1:
        leaving = float(costs.output_bytes[stage.last])
        back_s = transfer_s(network, position=(from_end - 1) * degree, payload_bytes=leaving)
    gradient = math.fsum(costs.gradient_bytes[layer] for layer in layers)
    update_s = math.fsum(costs.update_s[layer] for layer in layers)
    if len(result.stages) == 1:
        gradient -= costs.tied_gradient_bytes
        update_s -= costs.tied_update_s
    stride = degree * len(result.stages)
    group = group_dimensions(network, size=result.data_parallel, stride=stride, is_aligned=True)
    return {
        TimeTerm.FORWARD: forward_s,
        TimeTerm.BACKWARD: math.fsum(costs.backward_s[layer] for layer in layers),
        TimeTerm.RECOMPUTE: forward_s if stage.is_recomputed else 0.0,
        TimeTerm.FRONT_TRANSFER: front_s,
        TimeTerm.BACK_TRANSFER: back_s,
        TimeTerm.ALL_REDUCE: collective_coefficients(CollectiveKind.ALL_REDUCE, group).seconds(gradient),
        TimeTerm.UPDATE: update_s,
    }


def check(holds: bool, message: str) -> None:
    """Raise what does not hold."""
    if not holds:
        raise VerificationError(message)


def check_close(name: str, reported: float, independent: float) -> None:
    """Compare a reported figure with the independent one."""
    if not math.isclose(reported, independent, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-15):
        message = f"{name} = {reported!r} but independent recomputation gives {independent!r}"
        raise VerificationError(message)


def evaluate_phaze(
    instance: PhazeInstance, *, tensor_parallel: int, data_parallel: int, bounds: Sequence[int]
) -> float | None:
    """Time per batch of a placement, s; None if it exceeds memory or devices.

    Args:
        instance: the instance.
        tensor_parallel: one of its widths.
        data_parallel: replicas.
        bounds: stage bounds 0 = c_0 < ... < c_S = n, positions in the chain.
    """
    chain = next(chain for chain in instance.chains if chain.tensor_parallel == tensor_parallel)
    stages = [range(start, stop) for start, stop in pairwise(bounds)]
    devices = sum(stage_devices(chain, stage) for stage in stages)
    if devices * data_parallel > instance.num_devices or data_parallel > instance.num_micro_batches:
        return None
    places = list(range(len(stages), 0, -1))
    if any(
        phaze_stage_memory_bytes(instance, chain, stage, s) > instance.memory_bytes
        for stage, s in zip(stages, places, strict=True)
    ):
        return None
    load_s = max(stage_load_s(instance, chain, stage, s) for stage, s in zip(stages, places, strict=True))
    slots = math.ceil(instance.num_micro_batches / data_parallel) + len(stages) - 1
    parameters = sum(chain.layers[position].parameter_bytes for position in stages[0])
    return load_s * slots + 4 * (data_parallel - 1) / data_parallel * parameters / instance.bandwidth_bytes_per_s


def stage_devices(chain: PhazeChain, stage: range) -> int:
    """Devices of a stage: the width if any of its layers is sharded, else one."""
    return chain.tensor_parallel if any(chain.layers[position].is_sharded for position in stage) else 1


def phaze_stage_memory_bytes(instance: PhazeInstance, chain: PhazeChain, stage: range, from_end: int) -> float:
    """Memory of a device of the stage that is ``from_end``-th from the end."""
    layers = [chain.layers[position] for position in stage]
    activations = sum(layer.activation_bytes for layer in layers)
    stash = activations
    if instance.is_recomputed:
        stash = sum(e.payload_bytes for e in chain.edges if e.source not in stage and e.target in stage)
    copies = 3 if instance.has_adam else 2
    return copies * sum(layer.parameter_bytes for layer in layers) + activations + (from_end - 1) * stash


def stage_load_s(instance: PhazeInstance, chain: PhazeChain, stage: range, from_end: int) -> float:
    """Load of a stage: forward and backward, with the forward pass again under recomputation unless it is the last."""
    forward_s = _pass_s(instance, chain, stage, is_forward=True, begin_s=0.0, waits=True)
    if not instance.is_recomputed or from_end == 1:
        return forward_s + _pass_s(instance, chain, stage, is_forward=False, begin_s=0.0, waits=True)
    again_s = _pass_s(instance, chain, stage, is_forward=True, begin_s=0.0, waits=False)
    return forward_s + _pass_s(instance, chain, stage, is_forward=False, begin_s=again_s, waits=True)


def _pass_s(
    instance: PhazeInstance, chain: PhazeChain, stage: range, *, is_forward: bool, begin_s: float, waits: bool
) -> float:
    """Finish of one pass that begins at ``begin_s``; layers wait for their slowest tensor from outside, sent at 0."""
    finish_s: dict[int, float] = {}
    clock_s = begin_s
    for position in stage if is_forward else reversed(stage):
        start_s = clock_s
        for edge in chain.edges:
            here, other = (edge.target, edge.source) if is_forward else (edge.source, edge.target)
            if here != position:
                continue
            if other in finish_s:
                start_s = max(start_s, finish_s[other])
            elif waits:
                start_s = max(start_s, edge.payload_bytes / instance.bandwidth_bytes_per_s)
        layer = chain.layers[position]
        clock_s = finish_s[position] = start_s + (layer.forward_s if is_forward else layer.backward_s)
    return clock_s


def verify_phaze(instance: PhazeInstance, placement: PhazePlacement) -> None:
    """Check a placement: layers once and in chain order, devices, memory, loads and the time per batch.

    Raises:
        VerificationError: any of it is wrong.
    """
    if placement.status is PlacementStatus.INFEASIBLE:
        check(placement.shortfall is not None and not placement.stages, "infeasible needs a shortfall and no stages")
        return
    chains = {chain.tensor_parallel: chain for chain in instance.chains}
    check(placement.tensor_parallel in chains, f"the instance has no width {placement.tensor_parallel}")
    chain = chains[placement.tensor_parallel]
    order = [layer.layer for layer in chain.layers]
    check([layer for stage in placement.stages for layer in stage.layers] == order, "layers not each once in order")
    bounds = [0]
    for number, stage in enumerate(placement.stages):
        bounds.append(bounds[-1] + len(stage.layers))
        span, from_end = range(bounds[-2], bounds[-1]), len(placement.stages) - number
        check(stage.num_devices == stage_devices(chain, span), f"stage {number}: {stage.num_devices} devices")
        check_close(f"stage {number} load_s", stage.load_s, stage_load_s(instance, chain, span, from_end))
        memory = phaze_stage_memory_bytes(instance, chain, span, from_end)
        check_close(f"stage {number} memory_bytes", stage.memory_bytes, memory)
    independent = evaluate_phaze(
        instance, tensor_parallel=chain.tensor_parallel, data_parallel=placement.data_parallel, bounds=bounds
    )
    check(independent is not None, "the placement exceeds memory or devices")
    check_close("batch_time_s", placement.batch_time_s, independent or 0.0)
