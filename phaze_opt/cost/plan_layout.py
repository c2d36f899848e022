"""Plans that lie on a network in one way: their degrees are the same, the choices of each differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.torus_mapping import is_torus
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.plan_columns import NO_RECOMPUTE, RECOMPUTES, Ints, PlanColumns, Rows, number_rows
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

_DEGREES = ("tensor", "pipeline", "data", "context", "expert", "expert_tensor")


@dataclass(frozen=True, slots=True)
class PlanLayout:
    """Plans of the same degrees but for interleave, with the same blocks in their stages.

    Attributes:
        steps: compiled for these degrees, one for each micro-batch.
        network: that the devices are on.
        step_of_plan: place in ``steps`` of each plan, shape (plans,).
        plans: the plans.
        rows: their places among all plans, shape (plans,).
        stage_recompute: of each stage where stages differ, places in `RECOMPUTES`; nothing where plans recompute alike.
    """

    steps: tuple[CompiledStep, ...]
    network: Network
    step_of_plan: Ints
    plans: PlanColumns
    rows: Rows
    stage_recompute: Ints

    @classmethod
    def of_step(cls, step: CompiledStep, network: Network, *, row: int) -> "PlanLayout":
        """One step alone, its blocks split as it says."""
        own = np.array([RECOMPUTES.index(each) for each in step.plan.stage_recompute], np.int64)
        plans = PlanColumns.of([step.plan])
        first, place = np.zeros(1, np.int64), np.array([row], np.intp)
        return cls((step,), network, first, plans, place, _of_stages(own, len(step.blocks)))


def list_layouts(
    model: ModelSpec, training: TrainingSpec, plans: PlanColumns, *, network: Network, stack: TrainingStack
) -> Iterator[PlanLayout]:
    """The layouts of plans, each graph compiled once.

    A torus is mapped to the tensor groups and shards of each plan, so there the shards are part of a layout.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        plans: any number.
        network: of the cluster.
        stack: training software.
    """
    names = (*_DEGREES, "is_sequence_parallel", "stages", *(("state_shards",) if is_torus(network) else ()))
    compiler = StepCompiler()
    for rows in _equal_rows([getattr(plans, name) for name in names]):
        own = plans.take(rows)
        sizes, step_of_plan = np.unique(own.micro_batch, return_inverse=True)
        degrees: dict[str, Any] = {name: int(getattr(own, name)[0]) for name in names}
        degrees["is_sequence_parallel"] = bool(degrees["is_sequence_parallel"])
        blocks, stage_recompute = plans.stage_choices[degrees.pop("stages")]
        degrees |= {"blocks": blocks, "stage_recompute": stage_recompute}
        same = [ParallelPlan(**degrees, micro_batch=int(size)) for size in sizes]
        steps = tuple(compiler.compile(model, training, plan, stack=stack) for plan in same)
        recompute = np.array([RECOMPUTES.index(each) for each in stage_recompute], np.int64)
        stages = _of_stages(recompute, len(steps[0].blocks))
        yield PlanLayout(steps, plan_network(network, same[0]), step_of_plan.astype(np.int64), own, rows, stages)


def _of_stages(recompute: Ints, num_stages: int) -> Ints:
    """What stages recompute besides what their plan does in all of them."""
    return recompute if len(recompute) else np.full(num_stages, NO_RECOMPUTE)


def _equal_rows(columns: Sequence[Ints]) -> Iterator[Rows]:
    """Places of equal rows of some columns, one array for each distinct row."""
    if len(columns[0]):
        number = number_rows(columns)
        order = np.argsort(number, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
