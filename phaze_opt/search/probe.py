"""The `Probe`: estimates and bounds of architectures, counted; all that a strategy may see beside evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.template import DesignPoint


@dataclass(frozen=True, slots=True, eq=False)
class PhaseView:
    """One scheduling problem on one architecture: a distinct layer's forward, backward or update pass.

    Attributes:
        model: name of the model.
        tensor_parallel: degree that the layer is sharded by.
        layer: name of the layer.
        phase: forward, backward or update.
        repeats: how often the layer occurs in the model.
        core_types: of each operator; NONE occupies no core, shape (num_operators,).
        edges: precedence between operators, as (before, after) indices.
        one_core_s: latency of each operator on one core, s, shape (num_operators,).
        spread_s: its latency over all cores of its type, s, same shape.
        floor_s: HBM traffic of the whole problem over the HBM bandwidth, s.
        collective_s: its tensor-parallel collectives, s.
    """

    model: str
    tensor_parallel: int
    layer: str
    phase: Phase
    repeats: int
    core_types: tuple[CoreType, ...]
    edges: tuple[tuple[int, int], ...]
    one_core_s: NDArray[np.float64]
    spread_s: NDArray[np.float64]
    floor_s: float
    collective_s: float


@dataclass(frozen=True, slots=True)
class PointBound:
    """What no evaluation of a point can beat, known without solving a schedule or a placement.

    Attributes:
        throughput_samples_per_s: upper bound; 0 if the point is certainly infeasible.
        throughput_per_tdp: upper bound, samples/s/W.
        tdp_w: exact.
        area_mm2: exact.
        reason: why the point is certainly infeasible; empty if it may be feasible.
    """

    throughput_samples_per_s: float
    throughput_per_tdp: float
    tdp_w: float
    area_mm2: float
    reason: str = ""

    @property
    def may_be_feasible(self) -> bool:
        """Whether nothing rules the point out."""
        return not self.reason


class PointBounder(Protocol):
    """Bounds and estimates of points for one scenario; pure."""

    def bound(self, points: Sequence[DesignPoint], /) -> Sequence[PointBound]:
        """The bound of each point, in order; many at once cost far less than one by one."""
        ...

    def phases(self, point: DesignPoint, /) -> tuple[PhaseView, ...]:
        """Every model, tensor degree, distinct layer and phase on the architecture of a point."""
        ...

    def within_budgets(self, points: Sequence[DesignPoint], /) -> Sequence[bool]:
        """Whether each point keeps to the budgets of area and TDP, which are known exactly from its sizes."""
        ...


BounderFactory = Callable[[Any], PointBounder]
"""Makes the bounder of a scenario."""


class Probe(Protocol):
    """What a strategy or a pruner may ask about architectures without evaluating them."""

    @property
    def num_probes(self) -> int:
        """Distinct architectures (chips with their HBM, whatever the micro-batch) looked at so far."""
        ...

    @property
    def num_left(self) -> int:
        """Further architectures that may be looked at."""
        ...

    def bounds(self, points: Sequence[DesignPoint]) -> tuple[tuple[float, ...], ...]:
        """Objectives in the order of `StrategyContext.directions` that no evaluation of the point beats.

        Empty for a point that is certainly infeasible.

        Raises:
            PluginError: more architectures than `num_left`.
        """
        ...

    def within_budgets(self, points: Sequence[DesignPoint]) -> Sequence[bool]:
        """Whether each point keeps to the budgets of area and TDP: exact, of no workload, and so not counted."""
        ...

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        """Operator graphs and latencies on the architecture of a point.

        Raises:
            PluginError: more architectures than `num_left`.
        """
        ...
