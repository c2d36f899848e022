"""A study of many cheap trials as a process of its own: ``python long_study.py FOLDER TRIALS``; begun or resumed."""

import sys
from pathlib import Path

from phaze_opt.search.evaluators import PointObjective
from phaze_opt.study.config import Budget, Condition, Contender, Judgement, StudyConfig, StudyWorkload
from phaze_opt.study.execution.engine import StudyEngine
from phaze_opt.study.run import run_study
from phaze_opt.testing.problems import ToyObjective, ToyScenario

NUM_SEARCHES = 10


def build_toy(condition: Condition) -> PointObjective:  # noqa: ARG001
    """A closed form of some microseconds in place of an evaluation."""
    return ToyObjective(ToyScenario())


def main(folder: str, num_trials: str) -> None:
    config = StudyConfig(
        name="long",
        description="A long study of cheap trials.",
        workloads=(StudyWorkload("tiny", ("tiny",)),),
        contenders=(Contender("random", "random"),),
        seeds=tuple(range(NUM_SEARCHES)),
        budget=Budget(evaluations=int(num_trials) // NUM_SEARCHES),
        judgement=Judgement(num_bootstrap=100),
    )
    engine = StudyEngine(build_objective=build_toy, build_bounder=None, find_references=None)
    is_begun = any(Path(folder).glob("phaze-opt-studies/*/study.json"))
    run_study(config, work_dir=Path(folder), engine=engine, is_resumed=is_begun)


if __name__ == "__main__":
    main(*sys.argv[1:])
