"""Times of a step's layers on a designed chip: exact operator schedules, as in every other evaluation of one."""

from __future__ import annotations

import numpy as np

from phaze_opt.estimate.protocol import Estimator
from phaze_opt.graph.operator import CoreType, OperatorGraph
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.objective.step.compiled_step import CompiledStep
from phaze_opt.objective.step.price_step import DeviceTimes, Floats
from phaze_opt.schedule.options import ScheduleOptions
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.schedule.solve import solve_compiled
from phaze_opt.schedule.structure import compile_structure


class ScheduledTimes:
    """Makespans of embedding, block and head on one accelerator.

    Args:
        accelerator: the chip.
        estimator: what prices its operators.
        exclusivity: what a spread operator excludes.
        options: effort of the schedules.
    """

    def __init__(
        self, accelerator: Accelerator, *, estimator: Estimator, exclusivity: Exclusivity, options: ScheduleOptions
    ) -> None:
        """Keep what every step shares."""
        self._accelerator = accelerator
        self._table = AcceleratorTable.from_accelerators([accelerator])
        self._estimator = estimator
        self._exclusivity = exclusivity
        self._options = options

    def times(self, step: CompiledStep) -> DeviceTimes:
        """Makespans of a step's layers; what selective recomputation repeats runs serially."""
        pass_s = np.array([[self._makespan_s(graph) for graph in layer.graph.phases] for layer in step.layers])
        estimates = self._estimator.estimate(step.operators, self._table)
        spread_s = estimates.spread_s[0]
        attention_s = np.array([float(spread_s[layer.forward.attention_columns].sum()) for layer in step.layers])
        return DeviceTimes(pass_s, attention_s)

    def _makespan_s(self, graph: OperatorGraph) -> float:
        """One problem's makespan; collectives are contracted, as `price_step` adds them."""
        kinds = (operator.core_type for operator in graph.operators)
        core_types = tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds)
        estimates = self._estimator.estimate(graph.operators, self._table)
        traffic = float(estimates.hbm_bytes[0].sum())
        result = solve_compiled(
            compile_structure(core_types, graph.edges),
            _row(estimates.one_core_s),
            _row(estimates.spread_s),
            num_tc=self._accelerator.num_tc,
            num_vc=self._accelerator.num_vc,
            exclusivity=self._exclusivity,
            floor_s=traffic / self._accelerator.hbm_bandwidth_bytes_per_s,
            options=self._options,
        )
        return float(result.makespan_s)


def _row(table: Floats) -> Floats:
    """The only row of a table, as the schedule's kernels want it."""
    return np.ascontiguousarray(table[0])
