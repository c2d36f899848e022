"""What recording costs: a search with and without it, time added to a study per trial, and how fast trials are stored.

A made-up study (no evaluation takes any time) is written to disk and tells its events to the MLflow tracker as fast as
it can; its process of delivery reads the searches and writes them meanwhile and after. A search of 20 trials is run as
a command, unrecorded, with its page alone, and recorded in an empty directory. Writes bench.json beside this file.
Run: python experiments/tracking/bench.py
"""

import argparse
import json
import os
import platform
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import phaze_opt
from phaze_opt.study.events import CellFinished, StudyEvent
from phaze_opt.testing.events import example_study, record_study
from phaze_opt.track.protocol import TrackerConfig, TrialRuns, open_tracker


def measure(*, evaluations: int, seeds: int, trials: TrialRuns) -> dict[str, object]:
    """Record one study in a fresh store."""
    events: Sequence[StudyEvent] = example_study(evaluations, num_seeds=seeds)
    count = sum(len(event.evaluations) for event in events if isinstance(event, CellFinished))
    with tempfile.TemporaryDirectory() as name:
        events = record_study(Path(name), events)
        session = open_tracker("mlflow", TrackerConfig(work_dir=Path(name), trials=trials), "study")
        cpu_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        for event in events:
            session.observe(event)
        told = time.perf_counter()
        delivery = session.close()
        closed = time.perf_counter()
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = cpu.ru_utime + cpu.ru_stime - cpu_before.ru_utime - cpu_before.ru_stime
        with closing(sqlite3.connect(Path(name) / "mlflow.db")) as connection:
            (runs,) = connection.execute("select count(*) from runs").fetchone()
        size_mb = (Path(name) / "mlflow.db").stat().st_size / 1e6
    return {
        "trials": count,
        "trial_runs": trials.value,
        "runs": runs,
        "is_complete": delivery.is_complete,
        "added_to_the_study_ms_per_trial": round(1e3 * (told - started) / count, 3),
        "until_all_is_delivered_ms_per_trial": round(1e3 * (closed - started) / count, 1),
        "delivery_cpu_ms_per_trial": round(1e3 * cpu_s / count, 1),
        "delivered_trials_per_s": round(count / (closed - started), 1),
        "store_mb": round(size_mb, 1),
    }


SEARCH = "search --model bert-large --devices 64 --global-batch 1024 --trials 20"
WAYS = {"unrecorded": "--no-tracking", "page alone": "--no-tracking --report page/search.html", "recorded": ""}


def measure_search(way: str) -> dict[str, object]:
    """Processor time of a search as a command, all its processes together, and what it leaves on disk."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "phaze_opt", *SEARCH.split(), *WAYS[way].split()]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=name, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = sum(path.stat().st_size for path in Path(name).rglob("*") if path.is_file())
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"search": way, "cpu_s": round(cpu_s, 1), "disk_mb": round(size / 1e6, 1)}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    cases = [
        measure(evaluations=arguments.evaluations, seeds=arguments.seeds, trials=trials)
        for trials in (TrialRuns.ALL, TrialRuns.BEST)
    ]
    record = {
        "_meta": {
            "command": " ".join(
                (
                    "python experiments/tracking/bench.py",
                    f"--evaluations {arguments.evaluations}",
                    f"--seeds {arguments.seeds}",
                )
            ),
            "phaze_opt": phaze_opt.__version__,
            "mlflow": version("mlflow"),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load_average_before": round(load, 1),
            "note": "delivery includes starting its process, importing MLflow and making the store (some seconds)",
        },
        "searches": [measure_search(way) for way in WAYS],
        "cases": cases,
    }
    text = json.dumps(record, indent=1)
    Path(__file__).with_name("bench.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
