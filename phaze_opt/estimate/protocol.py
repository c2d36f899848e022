"""The `Estimator` seam: operators and accelerators in, latencies and energies out.

Estimators by name; the faults of one that somebody else wrote name it.

The disputable choices of the analytic estimator, as named options (their sources are in hardware/constants.toml).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

from phaze_opt.errors import InputError, PluginError
from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.plugins import PluginGroup, is_own, load_plugin, plugin_code
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


def load_estimator(name: str) -> Estimator:
    """An estimator plug-in by name.

    Raises:
        PluginError: it is unknown, fails to load, or is no estimator.
    """
    plugin = load_plugin(PluginGroup.ESTIMATORS, name)
    if not isinstance(plugin, Estimator):
        message = f"estimator '{name}' lacks one of name, estimate, explain, with_constants"
        raise PluginError(message)
    if is_own(PluginGroup.ESTIMATORS, name):
        return plugin
    kind = GuardedCompiler if isinstance(plugin, CompilingEstimator) else GuardedEstimator
    return kind(plugin, name)


@dataclass(frozen=True, slots=True)
class GuardedEstimator:
    """An estimator of somebody else.

    Attributes:
        estimator: what prices.
        registered: its name.
    """

    estimator: Estimator
    registered: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.estimator.name

    def with_constants(self, constants: Constants) -> Estimator:
        """The same under other constants."""
        with self._code():
            return replace(self, estimator=self.estimator.with_constants(constants))

    def estimate(self, operators: Sequence[Operator], accelerators: AcceleratorTable) -> Estimates:
        """Estimates of operators on accelerators, as the estimator gives them.

        Raises:
            PluginFaultError: its code raised an error.
        """
        with self._code():
            return self.estimator.estimate(operators, accelerators)

    def explain(self, operators: Sequence[Operator], accelerator: Accelerator) -> tuple[OperatorBreakdown, ...]:
        """Breakdowns of operators on one accelerator; errors as of `estimate`."""
        with self._code():
            return self.estimator.explain(operators, accelerator)

    def _code(self) -> AbstractContextManager[None]:
        return plugin_code(PluginGroup.ESTIMATORS, self.registered)


@dataclass(frozen=True, slots=True)
class GuardedCompiler(GuardedEstimator):
    """One that prepares operators once."""

    def compile(self, operators: Sequence[Operator]) -> Sequence[Operator]:
        """Operators as the estimator prepares them."""
        assert isinstance(self.estimator, CompilingEstimator)
        with self._code():
            return self.estimator.compile(operators)


_ChoiceT = TypeVar("_ChoiceT", bound=StrEnum)


class GlbLimit(StrEnum):
    """How fast the global buffer is.

    ``fixed``: the accelerator's own bandwidth; ``proportional``: that, times its size over
    ``glb.proportional_reference_bytes``; ``none``: never binds.
    """

    FIXED = "fixed"
    PROPORTIONAL = "proportional"
    NONE = "none"


class FillAndDrain(StrEnum):
    """How often an array pays 2d + w - 2 cycles: at every fold (SCALE-Sim), once an operator, or never."""

    PER_FOLD = "per_fold"
    PER_OPERATOR = "per_operator"
    NONE = "none"


class Multicast(StrEnum):
    """Whether arrays that need the same operand each read it from the GLB (``none``) or share one read (``ideal``)."""

    NONE = "none"
    IDEAL = "ideal"


class Residency(StrEnum):
    """Whether the buffer holds tensors between operators: none, or those that `graph.residency` plans."""

    NONE = "none"
    PLANNED = "planned"


class GroupedProducts(StrEnum):
    """How the groups of a convolution run, whose products are too small for an array each.

    ``packed``: block-diagonally, as many side by side as an array's edges take; ``lanes``: on the vector cores, where a
    multiply-accumulate takes as long as an addition; ``faster``: the faster of both; ``one_by_one``: as any matmuls.
    """

    FASTER = "faster"
    PACKED = "packed"
    LANES = "lanes"
    ONE_BY_ONE = "one_by_one"


@dataclass(frozen=True, slots=True)
class EstimatorOptions:
    """Choices in force; the defaults are those of semantics 3."""

    glb_limit: GlbLimit = GlbLimit.FIXED
    fill_and_drain: FillAndDrain = FillAndDrain.PER_FOLD
    multicast: Multicast = Multicast.NONE
    residency: Residency = Residency.NONE
    grouped: GroupedProducts = GroupedProducts.FASTER

    @classmethod
    def from_constants(cls, constants: Constants) -> "EstimatorOptions":
        """The choices that ``[estimator_options]`` of the constants names.

        Raises:
            InputError: a choice this estimator does not know.
        """
        return cls(
            glb_limit=_choice(GlbLimit, constants, name="glb_limit"),
            fill_and_drain=_choice(FillAndDrain, constants, name="fill_and_drain"),
            multicast=_choice(Multicast, constants, name="multicast"),
            residency=_choice(Residency, constants, name="residency"),
            grouped=_choice(GroupedProducts, constants, name="grouped"),
        )


def _choice(choices: type[_ChoiceT], constants: Constants, *, name: str) -> _ChoiceT:
    """The constants' choice for one option as a member of its enum."""
    text = constants.option(name)
    try:
        return choices(text)
    except ValueError as error:
        message = f"estimator option = '{text}' must be one of {', '.join(choices)}"
        raise InputError(message, key=f"estimator_options.{name}") from error
