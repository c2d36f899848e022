"""Plans of one model on one cluster, priced from the times of layers on any chip."""

from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.cost.compiled_step import BACKWARD, FORWARD, CompiledStep, blocks_of
from phaze_opt.cost.plan_memory import peak_bytes
from phaze_opt.cost.price_rows import PriceRows, layer_times, price_rows
from phaze_opt.cost.price_step import StackColumns, price_batch
from phaze_opt.cost.step_table import StepTable, build_table
from phaze_opt.cost.step_table_parts import list_layouts
from phaze_opt.cost.step_time import StepTimes
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Floats, Indices, Ints
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload


@dataclass(slots=True)
class PricedPlans:
    """Plans whose price depends on the times of layers alone; what does not depend on the chip is made once and kept.

    Attributes:
        plans: in the order given.
        table, rows: their steps, and what the kernel reads of them.
        peak_bytes: memory of the fullest stage of each plan, shape (plans,).
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        network: of the cluster.
        stack: training software.
    """

    plans: PlanColumns
    table: StepTable
    rows: PriceRows
    peak_bytes: Floats
    training: TrainingSpec
    network: Network
    stack: TrainingStack
    _fitting: dict[float, Indices] = field(default_factory=dict, repr=False)

    @property
    def sets(self) -> tuple[CompiledStep, ...]:
        """Steps whose layers differ: a chip times the layers of these."""
        return self.table.graphs

    @property
    def set_of(self) -> Indices:
        """Of each plan, which of `sets` its layers are timed as, shape (plans,)."""
        return self.table.graph_of_group[self.table.plans.group]

    @property
    def layers(self) -> Ints:
        """Tensor, context and micro-batch of every set of layers, shape (3, sets)."""
        plans = (step.plan for step in self.sets)
        return np.array([(plan.tensor, plan.context, plan.micro_batch) for plan in plans], np.int64).T

    @property
    def unit_counts(self) -> Floats:
        """How often each kind of unit comes in the model, shape (kinds,)."""
        return np.bincount(self.sets[0].graph.cut.order).astype(float)

    def totals_s(self, classes_s: Floats) -> Floats:
        """Passes of a micro-batch through all layers, at least: without what is sent or launched.

        Args:
            classes_s: as `layer_s` takes it.

        Returns:
            Shape (chips, sets), s.
        """
        runs_s = classes_s[..., (FORWARD, BACKWARD), :].sum(axis=(-2, -1))
        head = min(1.0, self.stack.loss_traffic, 1.0 / self.stack.lone_head_efficiency)
        return np.asarray((runs_s * np.array([1.0, *self.unit_counts, head])).sum(axis=-1))

    def fitting(self, memory_bytes: float) -> Indices:
        """Numbers of the plans that fit a device of ``memory_bytes``, in order."""
        if memory_bytes not in self._fitting:
            self._fitting[memory_bytes] = np.flatnonzero(self.peak_bytes <= memory_bytes)
        return self._fitting[memory_bytes]

    def layer_s(self, classes_s: Floats, attention_s: Floats) -> Floats:
        """What the software makes of layer times, for all plans that share them, shape (chips, groups, layers, 5), s.

        Args:
            classes_s: times of the layers of every set, shape (chips, sets, layers, passes, classes), s.
            attention_s: what selective recomputation runs again, shape (chips, sets, layers), s.
        """
        return layer_times(self.table, classes_s, attention_s, self.stack)

    def lower_s(self, plans: Indices, classes_s: Floats, attention_s: Floats) -> Floats:
        """Bounds from below that rise with every time of a layer, shape (plans,), s.

        Args:
            plans: numbers of plans.
            classes_s: times of the layers of every set, shape (sets, layers, passes, classes), s.
            attention_s: what selective recomputation runs again, shape (sets, layers), s.
        """
        return np.asarray(self.lower_of_chips_s(plans, classes_s[None], attention_s[None])[0])

    def lower_of_chips_s(self, plans: Indices, classes_s: Floats, attention_s: Floats) -> Floats:
        """`lower_s` on many chips, shape (chips, plans), s; times have a leading axis of chips."""
        from phaze_opt.cost.price_kernel import plan_bounds_s  # noqa: PLC0415 - pulls in numba

        return plan_bounds_s(self.rows, self.layer_s(classes_s, attention_s), plans)

    def seconds(self, plans: Indices, classes_s: Floats, attention_s: Floats) -> Floats:
        """Steps of plans; arguments as `lower_s` takes them."""
        from phaze_opt.cost.price_kernel import plan_prices_s  # noqa: PLC0415 - pulls in numba

        layer_s = self.layer_s(classes_s[None], attention_s[None])
        return np.asarray(plan_prices_s(self.rows, layer_s, plans)[0])

    def step(self, number: int) -> CompiledStep:
        """One plan compiled."""
        same, plan = self.sets[int(self.set_of[number])], self.plans.plan(number)
        return replace(same, plan=plan, blocks=blocks_of(same.model, plan))

    def step_times(self, plans: Indices, classes_s: Floats, attention_s: Floats) -> StepTimes:
        """Steps of plans and where they go, by the formula that tells the parts; arguments as `lower_s` takes them."""
        own, stack = self.set_of[plans], StackColumns([self.stack] * len(plans))
        return price_batch(self.table.batch(plans), classes_s[own], attention_s[own], stack)


def price_plans(
    model: Workload, training: TrainingSpec, plans: PlanColumns, *, network: Network, stack: TrainingStack
) -> PricedPlans:
    """Plans made ready to be priced.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        plans: such as `plan_space.list_plans` gives; at least one.
        network: of the cluster.
        stack: training software.
    """
    table = build_table(list_layouts(model, training, plans, network=network, stack=stack))
    peaks = peak_bytes(table, optimizer=training.optimizer, stack=stack)
    return PricedPlans(plans, table, price_rows(table, stack), peaks, training, network, stack)
