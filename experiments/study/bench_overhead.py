"""What a study costs beside evaluations and the strategies' own thinking; writes overhead.json beside this file.

The evaluations are a closed form of some microseconds, so all that is left of a run is overhead: the loop, the store of
evaluations, the files of searches, and, with tracking, the journal and the sqlite store of MLflow. Given per trial in
process time (which other work on the machine hardly changes) and in wall time.

Run: python experiments/study/bench_overhead.py [--tracking]
"""

import argparse
import json
import os
import platform
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import phaze_opt
from phaze_opt.search.evaluators import PointObjective
from phaze_opt.study.config import Budget, Condition, Contender, StudyConfig, StudyWorkload
from phaze_opt.study.execution.engine import StudyEngine
from phaze_opt.study.run import run_study
from phaze_opt.testing.problems import ToyObjective, ToyScenario
from phaze_opt.track.guard import open_study_tracker
from phaze_opt.track.protocol import TrackerConfig

STUDY = StudyConfig(
    name="overhead",
    description="Overhead of studies.",
    workloads=(StudyWorkload("tiny", ("tiny",)),),
    contenders=(Contender("random", "random"), Contender("qmc", "qmc")),
    seeds=tuple(range(10)),
    budget=Budget(evaluations=60),
)
RESULT = Path(__file__).with_name("overhead.json")


def build_toy(condition: Condition) -> PointObjective:  # noqa: ARG001
    """A closed form in place of an evaluation."""
    return ToyObjective(ToyScenario())


def measure(config: StudyConfig, work_dir: Path, tracker: str) -> dict[str, float]:
    """Times of one run, s, and of its parts."""
    engine = StudyEngine(build_objective=build_toy, build_bounder=None, find_references=None)
    session = open_study_tracker(tracker, TrackerConfig(work_dir=work_dir, tracking_uri=""))
    wall, process = time.perf_counter(), time.process_time()
    result = run_study(config, work_dir=work_dir, engine=engine, observers=(session,) if tracker != "null" else ())
    ran_wall, ran_process = time.perf_counter() - wall, time.process_time() - process
    delivery = session.close()
    closed_wall = time.perf_counter() - wall
    trials = sum(cell.evaluations for cell in result.cells)
    thinking = sum(cell.charged_s for cell in result.cells)
    return {
        "trials": trials,
        "run_ms_per_trial": 1e3 * ran_wall / trials,
        "run_process_ms_per_trial": 1e3 * ran_process / trials,
        "strategies_and_evaluations_ms_per_trial": 1e3 * thinking / trials,
        "overhead_ms_per_trial": 1e3 * (ran_wall - thinking) / trials,
        "run_and_delivery_ms_per_trial": 1e3 * closed_wall / trials,
        "events_pending": delivery.num_pending,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracking", action="store_true", help="with sqlite and MLflow too")
    arguments = parser.parse_args()
    rows = {}
    for tracker in ("null", "mlflow") if arguments.tracking else ("null",):
        with tempfile.TemporaryDirectory() as folder:
            # The first run pays for imports and first use of libraries.
            measure(replace(STUDY, seeds=(99,)), Path(folder), "null")
            rows[tracker] = measure(STUDY, Path(folder), tracker)
    meta = {
        "version": phaze_opt.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "command": "python experiments/study/bench_overhead.py --tracking",
    }
    RESULT.write_text(json.dumps({"_meta": meta, **rows}, indent=2) + "\n")
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
