"""A search that stops in the middle, to be interrupted there; prints its result as one line of JSON."""

import argparse
import json
import sys
from pathlib import Path

from search_faults import Stopping

from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.testing.problems import ToyScenario, tiny_space


def main() -> None:
    """Search, interruptibly."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    result = run_search(
        SearchConfig("tpe", num_trials=40, jobs=given.jobs, work_dir=given.work_dir),
        scenario=ToyScenario(),
        space=tiny_space(),
        objective_factory=Stopping,
    )
    figures = {
        "is_interrupted": result.is_interrupted,
        "throughputs": {trial.number: trial.evaluation.throughput_samples_per_s for trial in result.trials},
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
