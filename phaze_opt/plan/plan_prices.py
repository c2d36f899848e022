"""Plans of one model on one cluster, ready to be priced on any chip from the times of its layers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.cost.plan_layout import list_layouts
from phaze_opt.cost.price_rows import PriceRows, price_rows
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.cost.price_table import layer_times, lower_plans, price_plans
from phaze_opt.cost.step_table import StepTable, build_table
from phaze_opt.cost.table_memory import peak_bytes
from phaze_opt.hardware.network import Network
from phaze_opt.plan.ranked_plans import PricedPlans, RankedPlan
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan_columns import Ints, PlanColumns, Rows
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PlanPrices:
    """Plans whose price depends on the times of layers alone; what no chip changes is made once and kept.

    Attributes:
        plans: in the order given.
        training: of all of them.
        network: of the cluster.
        stack: training software.
        table: their steps.
        rows: the same for the kernel that prices them.
        peak_bytes: memory of the fullest stage of each plan, shape (plans,).
    """

    plans: PlanColumns
    training: TrainingSpec
    network: Network
    stack: TrainingStack
    table: StepTable
    rows: PriceRows
    peak_bytes: Floats

    @property
    def sets(self) -> tuple[CompiledStep, ...]:
        """Steps whose layers differ: a chip times the layers of these."""
        return self.table.graphs

    @property
    def set_of(self) -> Ints:
        """Of each plan, which of ``sets`` its layers are timed as, shape (plans,)."""
        return self.table.graph_of_group[self.table.plans.group]

    def fitting(self, memory_bytes: float) -> Rows:
        """The plans that fit a device of ``memory_bytes``, in order."""
        return np.flatnonzero(self.peak_bytes <= memory_bytes)

    def layer_s(self, classes_s: Floats, attention_s: Floats) -> Floats:
        """What the software makes of layer times, for all plans that share them, shape (chips, groups, layers, 5), s.

        Args:
            classes_s: times of the layers of every set, shape (chips, sets, layers, passes, classes), s.
            attention_s: what selective recomputation runs again, shape (chips, sets, layers), s.
        """
        return layer_times(self.table, classes_s, attention_s, self.stack)

    def lower_s(self, layer_s: Floats, plans: Rows) -> Floats:
        """Bounds from below that rise with every time of a layer, shape (chips, plans), s."""
        return lower_plans(self.rows, layer_s, plans)

    def price_s(self, layer_s: Floats, plans: Rows) -> Floats:
        """Steps, shape (chips, plans), s."""
        return price_plans(self.rows, layer_s, plans)

    def tell(self, row: int, times: LayerTimes) -> RankedPlan:
        """One plan in full.

        Args:
            row: its place in ``plans``.
            times: of the layers of every set, shape (sets, ...).
        """
        told = PricedPlans(self.plans, self.table, times, self.stack, self.training.optimizer)
        return told.tell(np.array([row], np.intp))[0]


def build_plan_prices(
    model: ModelSpec, training: TrainingSpec, plans: PlanColumns, *, network: Network, stack: TrainingStack
) -> PlanPrices:
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
    return PlanPrices(plans, training, network, stack, table, price_rows(table, stack), peaks)
