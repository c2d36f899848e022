"""Times of a step's layers on a designed chip: exact operator schedules, as in every other evaluation of one."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from phaze_opt.estimate.protocol import Estimator
from phaze_opt.graph.operator import CoreType, OperatorGraph
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.objective.step.compiled_step import CompiledLayer, CompiledStep
from phaze_opt.objective.step.price_step import BACKWARD, DeviceTimes, Floats
from phaze_opt.schedule.options import ScheduleOptions
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.solve import solve_compiled
from phaze_opt.schedule.structure import compile_structure
from phaze_opt.workload.plan import Recompute


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
        """Makespans of a step's layers; what selective recomputation repeats runs serially.

        What the software spares of a full recomputation comes off the backward pass, as in `serial_times`: the makespan
        of forward less that of forward without the operators spared.
        """
        pass_s = np.array([[self._makespan_s(graph) for graph in layer.graph.phases] for layer in step.layers])
        if step.plan.recompute is Recompute.FULL:
            pass_s[:, BACKWARD] -= [self._spared_s(layer, step) for layer in step.layers]
        estimates = self._estimator.estimate(step.operators, self._table)
        spread_s = estimates.spread_s[0]
        attention_s = np.array([float(spread_s[layer.forward.attention_columns].sum()) for layer in step.layers])
        return DeviceTimes(pass_s, attention_s)

    def _spared_s(self, layer: CompiledLayer, step: CompiledStep) -> float:
        """What running forward again is shorter by than forward itself, s."""
        spared = {step.operators[column].name for column in layer.forward.kept_columns}
        if not spared:
            return 0.0
        graph = layer.graph.forward
        return max(0.0, self._makespan_s(graph) - self._makespan_s(graph, spared=spared))

    def _makespan_s(self, graph: OperatorGraph, *, spared: Collection[str] = ()) -> float:
        """One problem's makespan; collectives are contracted, as `price_step` adds them, and so is what is spared."""
        is_run = np.array([operator.name not in spared for operator in graph.operators])
        core_types = tuple(
            operator.core_type if is_own and operator.core_type is not CoreType.NETWORK else CoreType.NONE
            for operator, is_own in zip(graph.operators, is_run, strict=True)
        )
        estimates = self._estimator.estimate(graph.operators, self._table)
        traffic = float(estimates.traffic_bytes[0][is_run].sum())
        result = solve_compiled(
            compile_structure(core_types, graph.edges),
            _row(estimates.one_core_s),
            _row(estimates.spread_s),
            cores=Cores.of(self._accelerator),
            exclusivity=self._exclusivity,
            floor_s=traffic / self._accelerator.hbm_bandwidth_bytes_per_s,
            options=self._options,
        )
        return float(result.makespan_s)


def _row(table: Floats) -> Floats:
    """The only row of a table, as the schedule's kernels want it."""
    return np.ascontiguousarray(table[0])
