"""Runs of strategies and pruners whose faults name the plug-in, and whose proposals are points of the space."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.plugins import PluginGroup, is_own, plugin_code, plugin_fault
from phaze_opt.search.pruner import PrunerRun, Verdict
from phaze_opt.search.strategy import Outcome, StrategyRun
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class GuardedStrategy:
    """A strategy's run.

    Attributes:
        run: of the strategy.
        name: of the strategy.
        space: that it searches.
    """

    run: StrategyRun
    name: str
    space: SearchSpace

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """The strategy's proposals, at most ``count``.

        Raises:
            PluginFaultError: its code raised an error, or proposed what is no point of the space.
        """
        with plugin_code(PluginGroup.STRATEGIES, self.name):
            points = tuple(self.run.ask(count))[:count]
        # Conformance holds the package's own to it; a look at each of half a million points takes most of a minute.
        for point in () if is_own(PluginGroup.STRATEGIES, self.name) else points:
            self._check(point)
        return points

    def _check(self, proposal: object) -> None:
        """Refuse what is no point of the space."""
        if not isinstance(proposal, DesignPoint):
            what = f"proposed a {type(proposal).__name__}, and no DesignPoint{self._place}: {repr(proposal)[:80]}"
            raise plugin_fault(PluginGroup.STRATEGIES, self.name, what)
        try:
            self.space.index(proposal)
        except InputError as error:
            what = f"proposed a point outside the space{self._place}: {error}"
            raise plugin_fault(PluginGroup.STRATEGIES, self.name, what) from error

    @property
    def _place(self) -> str:
        """Where the run's ``ask`` is written, as far as Python knows."""
        code = getattr(self.run.ask, "__code__", None)
        return "" if code is None else f" in its ask at {Path(code.co_filename).name}:{code.co_firstlineno}"

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Pass outcomes on.

        Raises:
            PluginFaultError: the strategy's code raised an error.
        """
        with plugin_code(PluginGroup.STRATEGIES, self.name):
            self.run.tell(outcomes)


@dataclass(frozen=True, slots=True)
class GuardedPruner:
    """A pruner's run.

    Attributes:
        run: of the pruner.
        name: of the pruner.
    """

    run: PrunerRun
    name: str

    def judge(self, points: Sequence[DesignPoint], incumbents: Sequence[tuple[float, ...]]) -> Sequence[Verdict]:
        """The pruner's verdicts, one a point.

        Raises:
            PluginFaultError: its code raised an error, or gave something else than a verdict for each point.
        """
        with plugin_code(PluginGroup.PRUNERS, self.name):
            verdicts = tuple(self.run.judge(points, incumbents))
        if len(verdicts) != len(points) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
            what = f"gave {len(verdicts)} verdicts on {len(points)} points; give a Verdict for each"
            raise plugin_fault(PluginGroup.PRUNERS, self.name, what)
        return verdicts
