"""Independent check of placements on several chips, from the definitions of semantics 5, stage by stage."""

from __future__ import annotations

import math
from collections.abc import Sequence

from phaze_opt.errors import VerificationError
from phaze_opt.placement.heterogeneous import HeterogeneousPlacement
from phaze_opt.placement.problem import PlacementProblem, RecomputePolicy
from phaze_opt.placement.verify import RELATIVE_TOLERANCE, STAGE_TERMS, SYNC_TERMS, stage_memory_bytes, stage_terms


def verify_heterogeneous(problems: Sequence[PlacementProblem], found: HeterogeneousPlacement) -> None:
    """Check layers, devices, the memory of every stage on its own chip, and every reported time.

    Args:
        problems: the chain on every chip.
        found: the placement and its chips.

    Raises:
        VerificationError: any of it is wrong; names the stage and both figures.
    """
    placement = found.placement
    layers = [layer for stage in placement.stages for layer in range(stage.first, stage.last + 1)]
    if layers != list(range(problems[0].options[0].num_layers)) or len(found.chips) != len(placement.stages):
        message = f"stages cover layers {layers} on {len(found.chips)} chips, not each layer once in order"
        raise VerificationError(message)
    if placement.devices_used > problems[0].cluster.num_devices:
        message = f"{placement.devices_used} devices used of {problems[0].cluster.num_devices}"
        raise VerificationError(message)
    times, syncs = [], []
    for number, chip in enumerate(found.chips):
        problem, stage = problems[chip], placement.stages[number]
        terms = stage_terms(problem, placement, number)
        times.append(sum(terms[term] for term in STAGE_TERMS))
        syncs.append(sum(terms[term] for term in SYNC_TERMS))
        stash, recomputed = stage_memory_bytes(problem, placement, number)
        is_recomputed = problem.recompute is RecomputePolicy.ALWAYS
        if problem.recompute is RecomputePolicy.AUTO:
            is_recomputed = stash > problem.memory_bytes
        memory = recomputed if is_recomputed else stash
        if is_recomputed != stage.is_recomputed or memory > problem.memory_bytes:
            message = f"stage {number}: {memory} bytes, recomputation {is_recomputed}, of {problem.memory_bytes}"
            raise VerificationError(message)
        _check_close(f"stage {number} memory_bytes", stage.memory_bytes, memory)
        _check_close(f"stage {number} time_s", stage.time_s, times[-1])
        _check_close(f"stage {number} sync_s", stage.sync_s, syncs[-1])
    slots = math.ceil(problems[0].global_batch / (problems[0].micro_batch * placement.data_parallel)) + len(times) - 1
    _check_close("batch_time_s", placement.batch_time_s, max(times) * slots + max(syncs))


def _check_close(name: str, reported: float, independent: float) -> None:
    """Compare a reported figure with the independent one."""
    if not math.isclose(reported, independent, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-15):
        message = f"{name} = {reported!r} but independent recomputation gives {independent!r}"
        raise VerificationError(message)
