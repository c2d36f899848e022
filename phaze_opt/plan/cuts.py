"""The best cuts and recomputation of one set of degrees: a table of what stages may be, and the program over it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.cost.cut_table import CutReading, CutTable
from phaze_opt.cost.stage_costs import choice_bytes
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.plan_columns import RECOMPUTES

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Cuts and recomputation of a plan.

    Attributes:
        seconds: of the step.
        blocks: of each stage.
        recomputes: of each stage.
        most_labels: the most labels that the program kept for one stage and number of blocks.
    """

    seconds: float
    blocks: tuple[int, ...]
    recomputes: tuple[Recompute, ...]
    most_labels: int


def stage_sizes(step: CompiledStep) -> Sequence[int]:
    """Numbers of blocks that stages of a step may have; with interleaving those of its plan's cuts."""
    plan = step.plan
    if plan.interleave > 1:
        return sorted(set(step.blocks))
    if plan.pipeline == 1:
        return step.blocks
    # The other stages between the first and the last have a block each.
    return range(step.model.num_layers - max(0, plan.pipeline - 3) + 1)


def allowed_stages(
    step: CompiledStep, blocks: Sequence[int], memory_bytes: float, recomputes: Sequence[Recompute]
) -> Flags | None:
    """Which candidates each stage may take: they fit, and the plan is one.

    Args:
        step: the step; its cuts play a part with interleaving alone.
        blocks: of the columns.
        memory_bytes: capacity of one device.
        recomputes: what each stage may recompute.

    Returns:
        Shape (stages, columns, recomputations); None if no stages that fit hold all blocks.
    """
    sizes = np.asarray(blocks, np.intp)
    allowed = _possible(step, sizes, recomputes) & (choice_bytes(step)[:, sizes] <= memory_bytes)
    may = np.asarray(allowed.any(axis=-1), np.bool_)
    most = np.where(may, sizes, 0).max(axis=1).sum()
    return allowed if may.any(axis=1).all() and most >= step.model.num_layers else None


def most_blocks(allowed: Flags, blocks: Sequence[int]) -> Floats:
    """The most blocks that stages hold if none recomputes, none more than attention, or all in any way, shape (3,).

    Args:
        allowed: of `allowed_stages`.
        blocks: of the columns.
    """
    may = np.logical_or.accumulate(allowed, axis=-1)
    held: Floats = np.where(may, np.asarray(blocks, float)[:, None], 0.0).max(axis=1).sum(axis=0)
    return held


def least_memory_bytes(step: CompiledStep, blocks: Sequence[int], recomputes: Sequence[Recompute]) -> float:
    """What the fullest stage holds under the cuts and recomputations that take the least memory."""
    from phaze_opt.plan.cut_program import BACKWARD, FORWARD, StageCandidates, front_bounds  # noqa: PLC0415

    sizes, stages = np.asarray(blocks, np.intp), np.arange(step.plan.pipeline)
    memory = choice_bytes(step)[:, sizes]
    held = np.zeros((*memory.shape, max(FORWARD, BACKWARD) + 1))
    held[..., FORWARD] = memory
    candidates = StageCandidates(held, stages, sizes, _possible(step, sizes, recomputes))
    _, fullest = front_bounds(candidates, step.model.num_layers)
    return float(fullest[-1, -1])


def _possible(step: CompiledStep, sizes: NDArray[np.intp], recomputes: Sequence[Recompute]) -> Flags:
    """Candidates that are of a plan, whether or not they fit, shape (stages, columns, recomputations)."""
    possible = np.zeros((step.plan.pipeline, len(sizes), len(RECOMPUTES)), np.bool_)
    possible[..., [each in recomputes for each in RECOMPUTES]] = True
    if step.plan.interleave > 1:
        possible &= (sizes == np.array(step.blocks)[:, None])[..., None]
    else:
        possible[1:-1, sizes == 0] = False
    return possible


def best_choice(table: CutTable, allowed: Flags, *, limit_s: float = np.inf) -> StageChoice | None:
    """The cuts and recomputation of the least price below a limit; None if there are none.

    Times are compared on a grid, so that the last digits of a CPU choose nothing: another choice may be faster by
    rounding. The price of the choice is that of the grid too; `price_steps` gives the plan's own.
    """
    return _solve(table, table.price(), allowed, limit_s=limit_s, is_on_grid=True)


def least_bound_s(table: CutTable, allowed: Flags, *, limit_s: float = np.inf) -> float:
    """The least `lower_s` over all cuts and recomputations, or the limit if that is less, s; infinite if none fits."""
    found = _solve(table, table.lower(), allowed, limit_s=limit_s, is_on_grid=False)
    return limit_s if found is None else found.seconds


def _solve(
    table: CutTable, reading: CutReading, allowed: Flags, *, limit_s: float, is_on_grid: bool
) -> StageChoice | None:
    """Run the program on one reading of a table."""
    from phaze_opt.plan.cut_program import PipelineRules, StageCandidates, solve_cuts  # noqa: PLC0415

    rules = table.rules
    parts = (reading.forward_s, reading.backward_s, reading.sync_s, reading.least_sync_s)
    seconds = np.ascontiguousarray(np.stack(parts, axis=-1))
    m, v = float(rules.num_micro_batches[0]), float(rules.interleave[0])
    overhead_s, factor = float(rules.overhead_s[0]), 1.0 + float(rules.waiting[0])
    value, chosen, most, _ = solve_cuts(
        StageCandidates(comparable(seconds) if is_on_grid else seconds, table.kinds, table.blocks, allowed),
        PipelineRules(table.step.model.num_layers, m, v, reading.hidden_share),
        limit_s / factor - overhead_s,
    )
    if not most:
        return None
    return StageChoice(
        (value + overhead_s) * factor,
        tuple(int(each) for each in table.blocks[chosen[:, 0]]),
        tuple(RECOMPUTES[each] for each in chosen[:, 1]),
        most,
    )
