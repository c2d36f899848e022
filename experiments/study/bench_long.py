"""Memory and time a trial of studies of 1,000 to 100,000 cheap trials; writes long.json beside this file.

The evaluations are a closed form of some microseconds, so all that is left of a run is what the study does: the loop,
the strategy, the store of evaluations, the files of searches, and the judging of what was found. Ten searches share
the trials; the number of searches stays, so that lists that grow with a search show. Each size runs in a process of its
own; times are process time, which other work on the machine hardly changes. A flat study has a time a trial, and a
memory a trial, that do not grow with the number of trials. The strategy draws at random: others think longer the more
they know (of qmc Optuna makes its sequence anew for every trial: 1.8 ms a trial at 1,000 trials, 2.2 ms at 8,000).

Run: python experiments/study/bench_long.py [--trials N]...
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import phaze_opt
from phaze_opt.search.evaluators import PointObjective
from phaze_opt.study.config import Budget, Condition, Contender, Judgement, StudyConfig, StudyWorkload
from phaze_opt.study.execution.engine import StudyEngine
from phaze_opt.study.run import run_study
from phaze_opt.study.summary import summarise
from phaze_opt.testing.problems import ToyObjective, ToyScenario

NUM_SEARCHES = 10
SIZES = (1_000, 10_000, 100_000)
KIB_PER_MIB = 1024
STUDY = StudyConfig(
    name="long",
    description="A long study of cheap trials.",
    workloads=(StudyWorkload("tiny", ("tiny",)),),
    contenders=(Contender("random", "random"),),
    seeds=tuple(range(NUM_SEARCHES)),
    judgement=Judgement(num_bootstrap=1_000),
)
RESULT = Path(__file__).with_name("long.json")


def build_toy(condition: Condition) -> PointObjective:  # noqa: ARG001
    """A closed form in place of an evaluation."""
    return ToyObjective(ToyScenario())


def peak_mib() -> float:
    """Largest memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_MIB


def measure(num_trials: int) -> dict[str, float]:
    """One study, run, resumed and judged in this process."""
    engine = StudyEngine(build_objective=build_toy, build_bounder=None, find_references=None)
    config = replace(STUDY, budget=Budget(evaluations=num_trials // NUM_SEARCHES))
    marks = []
    with tempfile.TemporaryDirectory() as folder:
        # The first run pays for imports and first use of libraries.
        run_study(replace(STUDY, budget=Budget(evaluations=8)), work_dir=Path(folder), engine=engine)
        before_mib = peak_mib()
        marks.append(time.process_time())
        result = run_study(config, work_dir=Path(folder), engine=engine)
        marks.append(time.process_time())
        run_mib = peak_mib()
        result = run_study(config, work_dir=Path(folder), engine=engine, is_resumed=True)
        marks.append(time.process_time())
        summarise(result)
        marks.append(time.process_time())
        num_bytes = sum(path.stat().st_size for path in result.directory.rglob("*") if path.is_file())
    trials = sum(cell.evaluations for cell in result.cells)
    steps = [1e3 * (later - earlier) / trials for earlier, later in zip(marks, marks[1:], strict=False)]
    return {
        "trials": trials,
        "distinct": sum(cell.distinct_evaluations for cell in result.cells),
        "run_ms_per_trial": steps[0],
        "strategies_and_evaluations_ms_per_trial": 1e3 * sum(cell.charged_s for cell in result.cells) / trials,
        "resume_ms_per_trial": steps[1],
        "judge_ms_per_trial": steps[2],
        "run_peak_mib": run_mib,
        "run_kib_per_trial": KIB_PER_MIB * (run_mib - before_mib) / trials,
        "peak_mib": peak_mib(),
        "disk_kib_per_trial": num_bytes / 1024 / trials,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, action="append", help="sizes to run; all of them unless given")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(measure(arguments.alone)))
        return
    rows = {}
    for size in arguments.trials or SIZES:
        command = [sys.executable, __file__, "--alone", str(size)]
        rows[str(size)] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        print(json.dumps(rows[str(size)]), flush=True)
    meta = {
        "version": phaze_opt.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "command": "python experiments/study/bench_long.py",
    }
    if not arguments.trials:
        RESULT.write_text(json.dumps({"_meta": meta, **rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
