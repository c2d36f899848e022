"""Memory of the plans of a table, as `plan_memory` counts it: of every run of equal stages, or of every stage.

Along a run the first stage holds most: it has the most micro-batches in flight, and all else is equal.
"""

import numpy as np

from phaze_opt.cost.plan_memory import (
    Floats,
    PlanMemory,
    StageMemory,
    StageRows,
    graph_sizes,
    list_stages,
    stage_memory,
)
from phaze_opt.cost.step_table import StepTable
from phaze_opt.workload.plan_columns import Ints, Rows
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import Optimizer


def peak_bytes(table: StepTable, *, optimizer: Optimizer, stack: TrainingStack) -> Floats:
    """What the fullest stage of each plan holds, shape (plans,), bytes.

    A plan fits a device that has as much. Nothing here depends on the chip, so the plans that fit a capacity are a list
    that is made once.
    """
    runs = table.runs
    stages = _stage_rows(table, np.arange(len(runs.plan)), runs.first)
    memory = _memory(table, runs.plan, stages, optimizer=optimizer, stack=stack)
    return np.asarray(np.maximum.reduceat(memory.total_bytes, table.start[:-1]))


def plan_memories(table: StepTable, rows: Rows, *, optimizer: Optimizer, stack: TrainingStack) -> list[PlanMemory]:
    """Memory of every stage of some plans."""
    run = np.concatenate([np.arange(table.start[row], table.start[row + 1]) for row in rows])
    lengths = table.runs.length[run]
    run = np.repeat(run, lengths)
    place = np.arange(len(run)) - np.repeat(lengths.cumsum() - lengths, lengths)
    plan = table.runs.plan[run]
    stages = _stage_rows(table, run, table.runs.first[run] + place)
    memory = list_stages(_memory(table, plan, stages, optimizer=optimizer, stack=stack))
    ends = table.plans.pipeline[rows].cumsum()
    return [
        PlanMemory(memory[end - number : end]) for end, number in zip(ends, table.plans.pipeline[rows], strict=True)
    ]


def _stage_rows(table: StepTable, run: Rows, stage: Ints) -> StageRows:
    """Stages of runs of the table."""
    plans, plan = table.plans, table.runs.plan[run]
    return StageRows(
        counts=table.runs.counts[run],
        stage=stage,
        pipeline=plans.pipeline[plan],
        interleave=plans.interleave[plan],
        zero=plans.zero[plan],
        num_micro_batches=plans.num_micro_batches[plan],
        shards=plans.shards[plan],
        expert_shards=plans.expert_shards[plan],
        recompute=table.runs.recompute[run],
    )


def _memory(
    table: StepTable, plan: Ints, stages: StageRows, *, optimizer: Optimizer, stack: TrainingStack
) -> StageMemory[Floats]:
    sizes = graph_sizes([[layer.graph for layer in step.layers] for step in table.graphs])
    graph = table.graph_of_group[table.plans.group[plan]]
    return stage_memory(sizes.take(graph), stages, optimizer=optimizer, stack=stack)
