"""The `Estimator` seam: operators and accelerators in, latencies and energies out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.record.arrays import Floats


class Bound(StrEnum):
    """What an operator's latency is spent on."""

    COMPUTE = "compute"
    FILL_AND_DRAIN = "fill_and_drain"
    EDGE_WASTE = "edge_waste"
    VECTOR = "vector"
    GLB = "glb"
    HBM = "hbm"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimates of operators (columns) on accelerators (rows).

    NETWORK and NONE operators have zero everywhere: collectives are priced by `estimate.collectives`.

    Attributes:
        one_core_s: latency on one core of the operator's type(s), shape (num_accelerators, num_operators), s.
        spread_s: latency spread over all cores of its type(s), same shape, s; never above ``one_core_s``.
        energy_j: dynamic energy of one execution, same shape, J.
        traffic_bytes: HBM traffic when spread, same shape, bytes.
    """

    one_core_s: Floats
    spread_s: Floats
    energy_j: Floats
    traffic_bytes: Floats

    def of_design(self, row: int) -> "Estimates":
        """Those on one accelerator."""
        here = slice(row, row + 1)
        return Estimates(self.one_core_s[here], self.spread_s[here], self.energy_j[here], self.traffic_bytes[here])


@dataclass(frozen=True, slots=True)
class OperatorBreakdown:
    """Where the spread latency of one operator on one accelerator goes.

    ``parts_s`` maps `Bound`s to seconds and sums to ``latency_s``; ``bound`` is what binds. When compute binds,
    the parts are ideal compute, fill and drain and edge waste; otherwise the binding resource takes the excess
    over them. An estimator that knows of starting an operator names that ``LAUNCH``, besides.
    """

    operator: str
    latency_s: float
    bound: Bound
    parts_s: tuple[tuple[Bound, float], ...]
    dataflow: str
    traffic_bytes: float


@runtime_checkable
class Estimator(Protocol):
    """Prices operators on accelerators; deterministic and without side effects."""

    @property
    def name(self) -> str:
        """Name it is registered under."""
        ...

    def with_constants(self, constants: Constants) -> "Estimator":
        """The same estimator under other constants (sensitivity studies)."""
        ...

    def estimate(self, operators: Sequence[Operator], accelerators: AcceleratorTable) -> Estimates:
        """Latency and energy of every operator on every accelerator."""
        ...

    def explain(self, operators: Sequence[Operator], accelerator: Accelerator) -> tuple[OperatorBreakdown, ...]:
        """What bounds each operator on one accelerator when spread over all its cores."""
        ...


@runtime_checkable
class CompilingEstimator(Estimator, Protocol):
    """An estimator that prepares operators once for being priced again and again."""

    def compile(self, operators: Sequence[Operator]) -> Sequence[Operator]:
        """The same operators, in the form that `estimate` and `explain` take fastest; independent of constants."""
        ...


@runtime_checkable
class FittedEstimator(Estimator, Protocol):
    """An estimator with constants of its own that were fitted to measurements, beside the package's."""

    @property
    def fitted_digest(self) -> str:
        """Digest of these constants: part of every digest of a scenario, so that stale records are noticed."""
        ...
