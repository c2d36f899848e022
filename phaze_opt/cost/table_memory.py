"""Memory of the plans of a table, as `plan_memory` counts it: of every run of equal stages, or of every stage.

Along a run the first stage holds most: it has the most micro-batches in flight, and all else is equal.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK
from phaze_opt.cost.plan_memory import (
    Floats,
    GraphSizes,
    PlanMemory,
    StageMemory,
    StageRows,
    graph_sizes,
    list_stages,
    stage_memory,
)
from phaze_opt.cost.step_table import StepTable, ranges
from phaze_opt.workload.plan_columns import Ints, Rows
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import Optimizer


@dataclass(frozen=True, slots=True)
class TableStages:
    """Stages of plans of a table, as their memory is counted.

    Attributes:
        rows: the stages.
        graph: place in ``sizes`` of each, shape (stages,).
        sizes: of all graphs of the table.
        optimizer: bytes of weight and state of a parameter.
        stack: training software.
    """

    rows: StageRows
    graph: Ints
    sizes: GraphSizes
    optimizer: Optimizer
    stack: TrainingStack

    @classmethod
    def of(
        cls, table: StepTable, run: Rows, stage: Ints, *, optimizer: Optimizer, stack: TrainingStack
    ) -> "TableStages":
        """Stages by their runs in the table and their numbers."""
        plan = table.runs.plan[run]
        graph = table.graph_of_group[table.plans.group[plan]]
        sizes = graph_sizes([[layer.graph for layer in step.layers] for step in table.graphs])
        return cls(_stage_rows(table, run, stage), graph, sizes, optimizer, stack)

    def memory(self) -> StageMemory[Floats]:
        """What each stage holds."""
        return stage_memory(self.sizes.take(self.graph), self.rows, optimizer=self.optimizer, stack=self.stack)

    def total_bytes(self, chosen: Rows, blocks: Ints, recompute: int) -> Floats:
        """What some of them hold with other blocks and another recomputation, shape (chosen,), bytes.

        Args:
            chosen: stages.
            blocks: of each.
            recompute: of all, place in `RECOMPUTES`.
        """
        rows = StageRows(*(getattr(self.rows, each.name)[chosen] for each in fields(StageRows)))
        rows.counts[:, BLOCK] = blocks
        rows.recompute[:] = recompute
        return replace(self, rows=rows, graph=self.graph[chosen]).memory().total_bytes


def peak_bytes(table: StepTable, *, optimizer: Optimizer, stack: TrainingStack) -> Floats:
    """What the fullest stage of each plan holds, shape (plans,), bytes.

    A plan fits a device that has as much. Nothing here depends on the chip, so the plans that fit a capacity are a list
    that is made once.
    """
    runs = table.runs
    stages = TableStages.of(table, np.arange(len(runs.plan)), runs.first, optimizer=optimizer, stack=stack)
    return np.asarray(np.maximum.reduceat(stages.memory().total_bytes, table.start[:-1]))


def list_table_stages(table: StepTable, rows: Rows, *, optimizer: Optimizer, stack: TrainingStack) -> TableStages:
    """Every stage of some plans, plan by plan."""
    run = ranges(table.start[rows], table.start[rows + 1])[1]
    lengths = table.runs.length[run]
    run = np.repeat(run, lengths)
    place = np.arange(len(run)) - np.repeat(lengths.cumsum() - lengths, lengths)
    return TableStages.of(table, run, table.runs.first[run] + place, optimizer=optimizer, stack=stack)


def plan_memories(table: StepTable, rows: Rows, *, optimizer: Optimizer, stack: TrainingStack) -> list[PlanMemory]:
    """Memory of every stage of some plans."""
    memory = list_stages(list_table_stages(table, rows, optimizer=optimizer, stack=stack).memory())
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
