"""Faults in a contender's own code: told apart from all others, as they fail one search and not the study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from phaze_opt.errors import PluginError
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.record.interrupts import kernels_interruptible
from phaze_opt.record.worker_process import WorkerToldToEndError
from phaze_opt.search.loop import SearchLoop
from phaze_opt.search.pruner import PrunerRun, Verdict
from phaze_opt.search.strategy import Outcome, StrategyRun
from phaze_opt.space.search_space import SearchSpace


class ContenderFaultError(Exception):
    """A strategy or pruner raised an error, or proposed what it may not; its cause is the error itself."""


@contextmanager
def contender_code() -> Iterator[None]:
    """A block that runs a contender's code.

    Ctrl-C and a machine without memory are no fault of a contender and go on as they are. An exit that the code asks
    for is one, as it would end the study.

    Raises:
        ContenderFaultError: the block raised an error.
    """
    try:
        with kernels_interruptible():
            yield
    except (KeyboardInterrupt, MemoryError, WorkerToldToEndError):
        raise
    except BaseException as error:
        raise ContenderFaultError from error


@dataclass(frozen=True, slots=True)
class GuardedStrategy:
    """A strategy's run whose faults are told apart and whose proposals are points of the space.

    Attributes:
        run: of the strategy.
        space: that it searches.
    """

    run: StrategyRun
    space: SearchSpace

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """The strategy's proposals, at most ``count``."""
        with contender_code():
            points = tuple(self.run.ask(count))[:count]
            for point in points:
                self._check(point)
            return points

    def _check(self, proposal: object) -> None:
        """Refuse what is no point of the space."""
        if not isinstance(proposal, DesignPoint):
            message = f"proposed a {type(proposal).__name__}, and no DesignPoint: {proposal!r}"
            raise PluginError(message)
        self.space.index(proposal)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Pass outcomes on."""
        with contender_code():
            self.run.tell(outcomes)


@dataclass(frozen=True, slots=True)
class GuardedPruner:
    """A pruner's run whose faults are told apart.

    Attributes:
        run: of the pruner.
    """

    run: PrunerRun

    def judge(self, points: Sequence[DesignPoint], incumbents: Sequence[tuple[float, ...]]) -> Sequence[Verdict]:
        """The pruner's verdicts, one a point."""
        with contender_code():
            verdicts = tuple(self.run.judge(points, incumbents))
            if len(verdicts) != len(points) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
                message = f"gave {len(verdicts)} verdicts on {len(points)} points; give a Verdict for each"
                raise PluginError(message)
            return verdicts


def guard(loop: SearchLoop, space: SearchSpace) -> None:
    """Let a search that has not begun tell its contender's faults apart."""
    loop.run = GuardedStrategy(loop.run, space)
    if loop.judging is not None:
        loop.judging.run = GuardedPruner(loop.judging.run)
