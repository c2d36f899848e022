"""Which stages fit the memory of a device: candidates of one set of degrees; how many blocks those of many sets hold.

Memory never falls with the blocks of a stage, so the most blocks that fit say which do; stages hold all blocks of a
model if the most that each of them holds add up to as many.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK, CompiledStep
from phaze_opt.cost.plan_memory import TableStages, list_table_stages
from phaze_opt.cost.stage_costs import StageSpans, choice_bytes, list_spans
from phaze_opt.cost.step_table import StepTable
from phaze_opt.record.arrays import Flags, Floats, Indices, Ints
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.plan_columns import RECOMPUTES
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import Optimizer

NONE_FITS = -1
"""In place of the most blocks that a stage holds."""
NOT_STATED = -1
"""In place of a stage's own recomputation."""


def stage_sizes(step: CompiledStep, *, has_free_cuts: bool = True) -> Sequence[int]:
    """Numbers of blocks that stages of a step may have, rising; with interleaving, or given cuts, those of the step."""
    plan = step.plan
    if plan.interleave > 1 or not has_free_cuts:
        return sorted(set(step.blocks))
    if plan.pipeline == 1:
        return step.blocks
    # The other stages between the first and the last have a block each.
    return range(step.model.num_units - max(0, plan.pipeline - 3) + 1)


def fitting_stages(
    step: CompiledStep,
    blocks: Sequence[int],
    memory_bytes: float,
    recomputes: Sequence[Recompute],
    *,
    has_free_cuts: bool = True,
    spans: StageSpans | None = None,
    may: Flags | None = None,
) -> Flags:
    """Which candidates each stage may take: they fit, and are of the plan; shape (stages, columns, recomputations).

    Args:
        step: the step; its cuts play a part with interleaving, or where they are given.
        blocks: numbers of blocks that stages may have.
        memory_bytes: capacity of one device.
        recomputes: what each stage may recompute.
        has_free_cuts: whether stages may be cut otherwise than the step's.
        spans: the units that stages may hold; all of units in their order unless given.
        may: which of their columns each stage may take, if not all, shape (stages, columns).
    """
    spans = spans or list_spans(step.graph.cut)
    columns, _ = spans.candidates(np.asarray(blocks, np.intp))
    possible = _possible(step, spans, columns, recomputes, has_free_cuts=has_free_cuts)
    return possible & (choice_bytes(step, spans, may)[:, columns] <= memory_bytes)


def holds_all_blocks(allowed: Flags, step: CompiledStep, blocks: Sequence[int]) -> bool:
    """Whether every stage has a candidate, and the largest ones together have as many blocks as the model.

    Of equal units that says that they hold it.
    """
    spans = list_spans(step.graph.cut)
    columns, _ = spans.candidates(np.asarray(blocks, np.intp))
    may = np.asarray(allowed.any(axis=-1), np.bool_)
    most = np.where(may, spans.sizes[columns], 0).max(axis=1).sum()
    return bool(may.any(axis=1).all() and most >= step.model.num_units)


def least_memory_bytes(
    step: CompiledStep,
    blocks: Sequence[int],
    recomputes: Sequence[Recompute],
    *,
    has_free_cuts: bool = True,
    spans: StageSpans | None = None,
) -> float:
    """What the fullest stage holds under the cuts and recomputations that take the least memory.

    Arguments as `fitting_stages` takes them.
    """
    from phaze_opt.plan.cut_program import BACKWARD, FORWARD, StageCandidates, front_bounds  # noqa: PLC0415

    sizes, stages = np.asarray(blocks, np.intp), np.arange(step.plan.pipeline)
    spans = spans or list_spans(step.graph.cut)
    columns, column_of = spans.candidates(sizes)
    memory = choice_bytes(step, spans)[:, columns]
    held = np.zeros((*memory.shape, max(FORWARD, BACKWARD) + 1))
    held[..., FORWARD] = memory
    possible = _possible(step, spans, columns, recomputes, has_free_cuts=has_free_cuts)
    candidates = StageCandidates(held, stages, sizes, column_of, possible)
    _, fullest = front_bounds(candidates, spans.num_steps)
    return float(fullest[-1, -1])


def _possible(
    step: CompiledStep, spans: StageSpans, columns: Indices, recomputes: Sequence[Recompute], *, has_free_cuts: bool
) -> Flags:
    """Candidates that are of a plan, whether or not they fit, shape (stages, columns, recomputations)."""
    possible = np.zeros((step.plan.pipeline, len(columns), len(RECOMPUTES)), np.bool_)
    possible[..., [each in recomputes for each in RECOMPUTES]] = True
    if step.plan.stage_recompute:
        possible &= np.array([[each is own for each in RECOMPUTES] for own in step.plan.stage_recompute])[:, None, :]
    if step.plan.interleave > 1 or not has_free_cuts:
        possible &= (columns == spans.of_cut(step.blocks)[:, None])[..., None]
    else:
        possible[1:-1, spans.sizes[columns] == 0] = False
    return possible


@dataclass(frozen=True, slots=True)
class StageLimits:
    """What the stages of many sets of degrees may be, and what decides their memory beside their degrees.

    Attributes:
        table: plans; a set of degrees is named by the row of one of its plans.
        has_own_recompute: whether the stages of each plan recompute each as it states, shape (plans,).
        recomputes: what a stage may recompute.
        has_free_cuts: whether stages without interleaving are cut anywhere; else plans state their cuts.
        optimizer: bytes of weight and state of a parameter.
        stack: training software.
    """

    table: StepTable
    has_own_recompute: Flags
    recomputes: tuple[Recompute, ...]
    has_free_cuts: bool
    optimizer: Optimizer
    stack: TrainingStack


def most_blocks(limits: StageLimits, rows: Indices, memory_bytes: float) -> Floats:
    """The most blocks that stages hold if none recomputes, none more than attention, or all in any way.

    Args:
        limits: of the plans.
        rows: a plan of each set of degrees; at least one.
        memory_bytes: capacity of one device.

    Returns:
        Shape (rows, 3), all 0 where stages do not hold the blocks of the model however they recompute.
    """
    stages = list_table_stages(limits.table, rows, optimizer=limits.optimizer, stack=limits.stack)
    pipeline = limits.table.plans.pipeline[rows]
    starts = pipeline.cumsum() - pipeline
    own = np.where(np.repeat(limits.has_own_recompute[rows], pipeline), stages.rows.recompute, NOT_STATED)
    least, most = _blocks_between(limits, rows, stages)
    held = np.full((len(own), len(RECOMPUTES)), NONE_FITS, np.int64)
    for number in sorted(RECOMPUTES.index(each) for each in limits.recomputes):
        # Stages that hold all they may without it need no recomputation.
        may = np.flatnonzero(((own == NOT_STATED) | (own == number)) & (held.max(axis=1) < most))
        held[may, number] = _most_that_fit(stages, may, least[may], most[may], number, memory_bytes)
    held = np.maximum.accumulate(held, axis=1)
    total = np.add.reduceat(np.maximum(held, 0), starts, axis=0)
    wanted = np.add.reduceat(stages.rows.counts[:, BLOCK], starts)
    holds = np.logical_and.reduceat(held[:, -1] != NONE_FITS, starts) & (total[:, -1] >= wanted)
    return np.where(holds[:, None], total, 0).astype(float)


def _blocks_between(limits: StageLimits, rows: Indices, stages: TableStages) -> tuple[Ints, Ints]:
    """The fewest and the most blocks that each stage may have, as `stage_sizes` says."""
    blocks, pipeline = stages.rows.counts[:, BLOCK], stages.rows.pipeline
    is_free = limits.has_free_cuts & (stages.rows.interleave == 1) & (pipeline > 1)
    is_end = stages.rows.counts.sum(axis=1) > blocks
    of_plan = limits.table.plans.pipeline[rows]
    num_blocks = np.repeat(np.add.reduceat(blocks, of_plan.cumsum() - of_plan), of_plan)
    most = np.where(is_free, num_blocks - np.maximum(0, pipeline - 3), blocks)
    return np.where(is_free, (~is_end).astype(np.int64), blocks), most


def _most_that_fit(  # noqa: PLR0917 - four columns of the same stages
    stages: TableStages, chosen: Indices, least: Ints, most: Ints, recompute: int, memory_bytes: float
) -> Ints:
    """The most blocks between two numbers with which each stage fits, by halves; `NONE_FITS` where none do."""

    def fits(places: Indices, blocks: Ints) -> Flags:
        return np.asarray(stages.total_bytes(chosen[places], blocks, recompute) <= memory_bytes)

    found = np.full(len(chosen), NONE_FITS, np.int64)
    every = np.arange(len(chosen))
    is_full = fits(every, most)
    found[is_full] = most[is_full]
    rest = every[~is_full & (least < most)]
    rest = rest[fits(rest, least[rest])]
    low, high = least[rest], most[rest] - 1
    while len(rest):
        is_known = low >= high
        found[rest[is_known]] = low[is_known]
        rest, low, high = rest[~is_known], low[~is_known], high[~is_known]
        middle = (low + high + 1) // 2
        is_held = fits(rest, middle)
        low, high = np.where(is_held, middle, low), np.where(is_held, high, middle - 1)
    return found
