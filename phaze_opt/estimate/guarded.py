"""Estimators by name; the faults of one that somebody else wrote name it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from phaze_opt.errors import PluginError
from phaze_opt.estimate.protocol import CompilingEstimator, Estimates, Estimator, OperatorBreakdown
from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.plugins import PluginGroup, is_own, load_plugin, plugin_code


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
