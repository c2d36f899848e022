"""Contenders' own code: its faults fail one search and not the study, and what old and new code found is not mixed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from phaze_opt.errors import InputError, PluginError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.plugins import PluginGroup, PluginOrigin, changed_plugins
from phaze_opt.record.interrupts import kernels_interruptible
from phaze_opt.record.suggestions import suggest
from phaze_opt.record.worker_process import WorkerToldToEndError
from phaze_opt.search.loop import SearchLoop
from phaze_opt.search.pruner import PrunerRun, Verdict
from phaze_opt.search.strategy import Outcome, StrategyRun
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.config import Cell, StudyConfig
from phaze_opt.study.disk.directory import StudyDirectory
from phaze_opt.study.disk.plan_file import code_origins, load_plan


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


def check_restart(config: StudyConfig, restart: Sequence[str]) -> None:
    """Refuse to restart what is no contender.

    Raises:
        InputError: a name is unknown.
    """
    names = [contender.name for contender in config.contenders]
    for name in restart:
        if name not in names:
            message = f"the study has no strategy '{name}'; {suggest(name, names)}"
            raise InputError(message, source="--restart")


def drop_searches(directory: StudyDirectory, cells: Sequence[Cell], restart: Sequence[str]) -> None:
    """Remove the searches of contenders that are run again; evaluations stay, as they do not depend on who asked."""
    for cell in cells:
        if cell.contender.name in restart:
            directory.cell(cell).unlink(missing_ok=True)
            directory.failure(cell).unlink(missing_ok=True)


def refuse_changed_code(config: StudyConfig, directory: StudyDirectory, cells: Sequence[Cell]) -> None:
    """Refuse to go on with a contender whose code is not that of its finished searches, or with another estimator's.

    Raises:
        InputError: the code of a contender with a finished search has changed, or that of an estimator, or the study's
            plan is broken.
    """
    if not directory.plan.exists():
        return
    before = load_plan(directory).plugins
    now = code_origins(config)
    # Evaluations are shared by all contenders and outlive --restart, so what priced them is held to, whoever asked.
    all_before, all_now = (chain.from_iterable(origins.values()) for origins in (before, now))
    priced = [one for one in changed_plugins(all_before, all_now) if one.group == PluginGroup.ESTIMATORS]
    if priced and any(directory.evaluations.glob("*")):
        message = (
            f"the code of the estimator {_named(priced[:1])} has changed since this study's evaluations were made; run "
            "without --resume and --restart: the study starts afresh"
        )
        raise InputError(message, source=str(directory.path))
    for contender in config.contenders:
        num_finished = sum(cell.contender == contender and directory.cell(cell).exists() for cell in cells)
        changed = changed_plugins(before.get(contender.name, ()), now[contender.name])
        if num_finished and changed:
            message = (
                f"the code of '{contender.name}' ({_named(changed)}) has changed since {num_finished} of its searches "
                f"finished; --restart {contender.name} runs them again, and without --resume the study starts afresh"
            )
            raise InputError(message, source=str(directory.path), key=contender.name)


def _named(origins: Sequence[PluginOrigin]) -> str:
    return ", ".join(f"{one.name} of {one.distribution or 'no distribution'} {one.version}".strip() for one in origins)
