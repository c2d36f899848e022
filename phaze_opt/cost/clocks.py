"""What times the layers of a step on one device: a real machine's operators, or a designed chip's schedules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from phaze_opt.cost.compiled_step import FORWARD, CompiledStep, forward_again
from phaze_opt.cost.device_seconds import ATTENTION, VECTOR, SerialSteps
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.estimate.protocol import Estimates, Estimator, OperatorBreakdown
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph
from phaze_opt.hardware.accelerator import Accelerator, table_of
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleOptions, ScheduleResult
from phaze_opt.schedule.solve import bound_compiled, solve_compiled
from phaze_opt.schedule.structure import ScheduleStructure, compile_structure

_Problem = tuple[tuple[CoreType, ...], tuple[tuple[int, int], ...], bytes, bytes, float]
"""A schedule's graph and latencies, and its floor."""
Schedules = tuple[tuple[ScheduleResult, ...], ...]
"""Of every distinct layer, each in forward, backward and update."""


class LayerClock(Protocol):
    """Times front, unit and back on one device."""

    def times(self, step: CompiledStep) -> LayerTimes:
        """Every pass of the three, collectives apart."""
        ...


@dataclass(frozen=True, slots=True)
class MachineClock:
    """A real machine, one operator after the other."""

    device: Device
    path: ComputePath
    fitted: FittedConstants

    def times(self, step: CompiledStep) -> LayerTimes:
        """Serial times under the step's own software."""
        classes, attention = SerialSteps([step]).times(
            self.device, path=self.path, stack=step.stack, fitted=self.fitted
        )
        return serial_times(classes[0], attention[0])


def serial_times(classes_s: Floats, attention_s: Floats) -> LayerTimes:
    """Times of one step of `SerialSteps`; matmuls are what attention and other operators leave of a pass."""
    attention, vector = classes_s[..., ATTENTION], classes_s[..., VECTOR]
    matmul = classes_s.sum(axis=-1) - attention - vector
    return LayerTimes(np.stack([matmul, attention, vector], axis=-1), attention_s)


class ScheduleClock:
    """Makespans of the distinct layers on one accelerator; a problem that comes again is not solved again.

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
        self._table = table_of(accelerator)
        self._estimator = estimator
        self._exclusivity = exclusivity
        self._options = options
        self._solved: dict[_Problem, ScheduleResult] = {}
        self._estimated: dict[tuple[Operator, ...], Estimates] = {}
        self._smaller: dict[int, ScheduleClock] = {}

    def times(self, step: CompiledStep, schedules: Schedules | None = None) -> LayerTimes:
        """Makespans of a step's layers; what selective recomputation repeats runs serially.

        What full recomputation runs again is scheduled without the operators that the software keeps.

        Args:
            step: compiled.
            schedules: those of `schedules`, if they are made already.
        """
        return self._times(step, schedules, lambda result: result.makespan_s)

    def lower_times(self, step: CompiledStep, schedules: Schedules | None = None) -> LayerTimes:
        """As `times`, with what no schedule goes below."""
        return self._times(step, schedules, lambda result: result.lower_bound_s)

    @property
    def has_gaps(self) -> bool:
        """Whether a schedule that was asked for may be longer than the shortest one."""
        return any(each.makespan_s > each.lower_bound_s for each in self._solved.values())

    def estimate(self, operators: Sequence[Operator]) -> Estimates:
        """Latencies, traffic and energy of operators, row 0; the same ones are estimated once."""
        asked = tuple(operators)
        if asked not in self._estimated:
            self._estimated[asked] = self._estimator.estimate(asked, self._table)
        return self._estimated[asked]

    def explain(self, operators: Sequence[Operator]) -> tuple[OperatorBreakdown, ...]:
        """What bounds each operator when it is spread over all cores."""
        return self._estimator.explain(operators, self._accelerator)

    def schedules(self, step: CompiledStep) -> Schedules:
        """The schedules of the distinct layers, each in its three phases."""
        return tuple(tuple(self.schedule(graph) for graph in layer.graph.phases) for layer in step.layers)

    @property
    def accelerator(self) -> Accelerator:
        """The chip."""
        return self._accelerator

    @property
    def estimator(self) -> Estimator:
        """What prices operators."""
        return self._estimator

    def with_buffer(self, glb_bytes: int) -> "ScheduleClock":
        """The same clock where so much of the buffer is left; kept, so that its schedules serve whoever asks again."""
        if glb_bytes not in self._smaller:
            self._smaller[glb_bytes] = ScheduleClock(
                replace(self._accelerator, glb_bytes=glb_bytes),
                estimator=self._estimator,
                exclusivity=self._exclusivity,
                options=self._options,
            )
        return self._smaller[glb_bytes]

    def _times(
        self, step: CompiledStep, schedules: Schedules | None, seconds: Callable[[ScheduleResult], float]
    ) -> LayerTimes:
        """Times of a step's layers, by what counts of a schedule."""
        pass_s = np.array([[seconds(result) for result in layer] for layer in schedules or self.schedules(step)])
        again_s = pass_s[:, FORWARD].copy()
        if step.is_spared:
            again_s = np.array([seconds(self.schedule(forward_again(layer, step))) for layer in step.layers])
        again_s = step.graph.of_parts(np.minimum(again_s, pass_s[:, FORWARD]), is_again=True)
        pass_s = np.column_stack([step.graph.of_parts(pass_s), again_s])
        estimates = self.estimate(step.operators)
        spread_s = estimates.spread_s[0]
        attention_s = np.array([float(spread_s[layer.forward.partly_columns].sum()) for layer in step.layers])
        attention_s = step.graph.of_parts(attention_s, is_again=True)
        nothing = np.zeros_like(pass_s)
        return LayerTimes(np.stack([pass_s, nothing, nothing], axis=-1), attention_s)

    def least_s(self, structure: ScheduleStructure, one_core_s: Floats, spread_s: Floats, *, floor_s: float) -> float:
        """What no schedule of operators of such latencies goes below, in closed form, s."""
        cores, exclusivity = Cores.of(self._accelerator), self._exclusivity
        bounds = bound_compiled(structure, one_core_s, spread_s, cores=cores, exclusivity=exclusivity, floor_s=floor_s)
        return bounds.lower_s

    def schedule(self, graph: OperatorGraph) -> ScheduleResult:
        """One problem's schedule; collectives are contracted, as `price_step` adds them."""
        kinds = (operator.core_type for operator in graph.operators)
        core_types = tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds)
        estimates = self.estimate(graph.operators)
        one_core_s, spread_s = _row(estimates.one_core_s), _row(estimates.spread_s)
        floor_s = float(estimates.traffic_bytes[0].sum()) / self._accelerator.hbm_bandwidth_bytes_per_s
        problem = core_types, graph.edges, one_core_s.tobytes(), spread_s.tobytes(), floor_s
        if problem not in self._solved:
            self._solved[problem] = solve_compiled(
                compile_structure(core_types, graph.edges),
                one_core_s,
                spread_s,
                cores=Cores.of(self._accelerator),
                exclusivity=self._exclusivity,
                floor_s=floor_s,
                options=self._options,
            )
        return self._solved[problem]


def _row(table: Floats) -> Floats:
    """The only row of a table, as the schedule's kernels want it."""
    return np.ascontiguousarray(table[0])
