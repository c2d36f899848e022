"""Independent check of placements, in plain Python from the definitions of semantics 5.

Shares the data classes and the collectives with the solver, and nothing else: no kernels, no prefix sums, no tables.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

from phaze_opt.errors import VerificationError
from phaze_opt.estimate.collectives import collective_coefficients, group_dimensions, transfer_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.placement.heterogeneous import HeterogeneousPlacement
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
