"""Plans of one model on one cluster, priced from the times of layers on any chip."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler
from phaze_opt.cost.price_step import StackColumns, lower_batch, price_batch
from phaze_opt.cost.step_batch import StepBatch, build_batch
from phaze_opt.cost.step_time import StepTimes
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.network import Network
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class FittingPlans:
    """The plans that fit a memory; there is at least one.

    Attributes:
        rows: numbers of the plans in `PricedPlans.plans`, in order.
        batch, stack: what they are priced from.
    """

    rows: Ints
    batch: StepBatch
    stack: StackColumns


@dataclass(slots=True)
class PricedPlans:
    """Plans whose price depends on the times of layers alone; what does not depend on the chip is made once and kept.

    Attributes:
        plans: in the order given.
        steps: one for each plan.
        sets: steps whose layers differ: a chip times the layers of these.
        set_of: of each plan, which of ``sets`` its layers are timed as, shape (plans,).
        peak_bytes: memory of the fullest stage of each plan, shape (plans,).
    """

    plans: tuple[ParallelPlan, ...]
    steps: tuple[CompiledStep, ...]
    sets: tuple[CompiledStep, ...]
    set_of: Ints
    peak_bytes: Floats
    network: Network
    _fitting: dict[float, FittingPlans] = field(default_factory=dict, repr=False)

    def fitting(self, memory_bytes: float) -> FittingPlans | None:
        """The plans that fit a device of ``memory_bytes``; None if there is none."""
        rows = np.flatnonzero(self.peak_bytes <= memory_bytes)
        if not len(rows):
            return None
        if memory_bytes not in self._fitting:
            steps = [self.steps[row] for row in rows]
            networks = [plan_network(self.network, step.plan) for step in steps]
            stack = StackColumns([step.stack for step in steps])
            self._fitting[memory_bytes] = FittingPlans(rows, build_batch(steps, networks), stack)
        return self._fitting[memory_bytes]

    def lower_s(self, fitting: FittingPlans, classes_s: Floats, attention_s: Floats) -> Floats:
        """Bounds from below that rise with every time of a layer, shape (fitting plans,), s.

        Args:
            fitting: of `fitting`.
            classes_s: times of the layers of every set, shape (sets, layers, passes, classes), s.
            attention_s: what selective recomputation runs again, shape (sets, layers), s.
        """
        sets = self.set_of[fitting.rows]
        return lower_batch(fitting.batch, classes_s[sets], attention_s[sets], fitting.stack)

    def times(self, fitting: FittingPlans, classes_s: Floats, attention_s: Floats) -> StepTimes:
        """Steps of the fitting plans; arguments as `lower_s` takes them."""
        sets = self.set_of[fitting.rows]
        return price_batch(fitting.batch, classes_s[sets], attention_s[sets], fitting.stack)


def price_plans(
    model: ModelSpec, training: TrainingSpec, plans: Sequence[ParallelPlan], *, network: Network, stack: TrainingStack
) -> PricedPlans:
    """Plans made ready to be priced.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        plans: such as `plan_space.enumerate_plans` gives; at least one.
        network: of the cluster.
        stack: training software.
    """
    compiler = StepCompiler()
    steps = tuple(compiler.compile(model, training, plan, stack=stack) for plan in plans)
    sets: dict[int, CompiledStep] = {}
    for step in steps:
        sets.setdefault(id(step.operators), step)
    number = {key: index for index, key in enumerate(sets)}
    return PricedPlans(
        plans=tuple(plans),
        steps=steps,
        sets=tuple(sets.values()),
        set_of=np.array([number[id(step.operators)] for step in steps], np.intp),
        peak_bytes=np.array([step_memory(step).peak_bytes for step in steps]),
        network=network,
    )
