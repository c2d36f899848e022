"""A study on the toy objective: real conditions, evaluations in closed form that take no time."""

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.search.evaluators import PointObjective
from phaze_opt.study.config import Budget, Condition, Contender, Setting, StudyConfig, StudyWorkload
from phaze_opt.study.events import StudyEvent
from phaze_opt.study.execution.engine import StudyEngine
from phaze_opt.study.result import StudyResult
from phaze_opt.study.run import run_study
from phaze_opt.testing.problems import ToyObjective, ToyScenario

CONFIG = StudyConfig(
    name="toy",
    description="A toy.",
    workloads=(StudyWorkload("tiny", ("tiny",)), StudyWorkload("bert", ("bert-large",))),
    contenders=(Contender("random", "random"), Contender("tpe", "tpe", {"startup_trials": 4})),
    settings=(Setting(silicon="phaze"),),
    seeds=(0, 1),
    budget=Budget(evaluations=12),
)


def build_toy(condition: Condition) -> PointObjective:
    return ToyObjective(ToyScenario(max_macs=1 << (14 if condition.workload.name == "tiny" else 16)))


ENGINE = StudyEngine(build_objective=build_toy, build_bounder=None, find_references=None)


def refuse_bert(condition: Condition) -> PointObjective:
    if condition.workload.name == "bert":
        raise InputError("the toy refuses bert")
    return build_toy(condition)


@dataclass(slots=True)
class FaultyObjective:
    """Kills its process at every third evaluation of a process, as long as there is a token for it in a directory."""

    inner: PointObjective
    tokens: Path
    count: int = 0

    def evaluate(self, point: DesignPoint) -> Evaluation:
        self.count += 1
        if self.count % 3 == 0 and (token := next(iter(sorted(self.tokens.glob("kill*"))), None)) is not None:
            token.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.evaluate(point)


@dataclass(frozen=True, slots=True)
class BuildFaulty:
    tokens: Path

    def __call__(self, condition: Condition) -> PointObjective:
        return FaultyObjective(build_toy(condition), self.tokens)


@dataclass(frozen=True, slots=True)
class DeadlyObjective:
    """Kills its process whatever it is asked."""

    def evaluate(self, point: DesignPoint) -> Evaluation:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError(point)


def die_on_bert(condition: Condition) -> PointObjective:
    return DeadlyObjective() if condition.workload.name == "bert" else build_toy(condition)


class Unloadable:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (3,)

    def __call__(self, condition: Condition) -> PointObjective:
        return build_toy(condition)


def faulty_engine(tokens: Path) -> StudyEngine:
    return replace(ENGINE, build_objective=BuildFaulty(tokens))


def table(result: StudyResult) -> list[object]:
    """All that must not depend on jobs, order or interruption."""
    return [
        (
            cell.cell.key,
            [(trial.number, trial.point, trial.values, trial.status, trial.is_repeat) for trial in cell.trials],
            (cell.probes, cell.pruned, cell.ilp_solves, cell.placements, cell.is_exhausted),
        )
        for cell in result.cells
    ]


PER_TDP = Goal.THROUGHPUT_PER_TDP


class Recorder:
    """Keeps the events that it is told."""

    def __init__(self) -> None:
        self.events: list[StudyEvent] = []

    def observe(self, event: StudyEvent) -> None:
        self.events.append(event)


@dataclass(slots=True)
class SlowObjective:
    """Takes a hundredth of a second, so that a kill hits something."""

    inner: PointObjective

    def evaluate(self, point: DesignPoint) -> Evaluation:
        time.sleep(0.01)
        return self.inner.evaluate(point)


def build_slow(condition: Condition) -> PointObjective:
    return SlowObjective(build_toy(condition))


def run_slowly(work_dir: Path, jobs: int) -> None:
    """Run or resume the toy study; says so on standard error when it begins."""
    sys.stderr.write("begins\n")
    sys.stderr.flush()
    run_study(CONFIG, work_dir=work_dir, engine=replace(ENGINE, build_objective=build_slow), jobs=jobs, is_resumed=True)
