"""Objectives that fail or are slow, importable by worker processes and by scripts that tests run."""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.testing.problems import ToyObjective, ToyScenario

NUM_BEFORE_STOP = 10
STOP_S = 600.0
"""Longer than any test has patience."""


def fail(scenario: ToyScenario) -> ToyObjective:
    """No objective can be made."""
    message = "models: no such model"
    raise InputError(message)


@dataclass(frozen=True, slots=True)
class Suicidal:
    """Its process ends in an evaluation."""

    scenario: ToyScenario

    def evaluate(self, point: DesignPoint) -> Evaluation:
        os._exit(9)


@dataclass(frozen=True, slots=True)
class DiesOnce:
    """The first process that evaluates is killed in it, as by hand; leaves a mark in the directory ``ATTEMPTS``."""

    scenario: ToyScenario

    def evaluate(self, point: DesignPoint) -> Evaluation:
        mark = Path(os.environ["ATTEMPTS"]) / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ToyObjective(self.scenario).evaluate(point)


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stops after a few evaluations, and notes the process it runs in in the directory ``PIDS``.

    Holds a lock between processes, as numba does: one that is not given back is reported as leaked.
    """

    scenario: ToyScenario
    lock: object = field(default_factory=multiprocessing.RLock, compare=False)

    def evaluate(self, point: DesignPoint) -> Evaluation:
        folder = Path(os.environ["PIDS"])
        (folder / str(os.getpid())).touch()
        with (folder.parent / "evaluated").open("ab") as marks:
            marks.write(b".")
            is_late = marks.tell() > NUM_BEFORE_STOP
        time.sleep(STOP_S if is_late else 0.1)
        return ToyObjective(self.scenario).evaluate(point)
