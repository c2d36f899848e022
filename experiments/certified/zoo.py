"""Certifies every model of the zoo under both networks of the demonstration; writes zoo.json beside this file.

    python experiments/certified/zoo.py certify --work-dir DIR [--models M ...] [--jobs 2]
    python experiments/certified/zoo.py check --work-dir DIR [--models M ...]
    python experiments/certified/zoo.py study --work-dir DIR [--models M ...] [--jobs 2]
    python experiments/certified/zoo.py compare --work-dir DIR

``certify`` proves the optimum of Phaze's space joined with three HBM sizes and four micro-batches (352,320 points),
``check`` has every certificate verified by the independent code, ``study`` runs studies/zoo.toml on the models given,
and ``compare`` adds how far its strategies end below the optimum.
"""

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phaze_opt import Cluster, Scenario, load_model, load_network
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.result import CertifyResult
from phaze_opt.hardware.constants import load_constants
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.study.directory import find_study
from phaze_opt.study.load import load_study
from phaze_opt.study.summary import summarise
from phaze_opt.workload.zoo import list_models

DEVICES, GLOBAL_BATCH = 1024, 4096
NETWORKS = {"two-level": "two-level", "flat": "phaze"}
"""Names of the study's settings, and the network of each."""
TOLERANCE = 1e-3
OUT = Path(__file__).with_name("zoo.json")
STUDY = Path(__file__).parents[2] / "studies" / "zoo.toml"


def make_problem(model: str, network: str) -> CertifyProblem:
    """One model on the demonstration's cluster, over the whole joined space."""
    cluster = Cluster(DEVICES, load_network(network, num_devices=DEVICES))
    return CertifyProblem(
        scenario=Scenario((load_model(model),), cluster, GLOBAL_BATCH), space=phaze_space(), constants=load_constants()
    )


def describe(result: CertifyResult) -> dict[str, Any]:
    """What is proved, how flat the top is, what it cost."""
    claim, provenance = result.certificate.claim, result.certificate.provenance
    return {
        "samples_per_s": claim.value,
        "upper_samples_per_s": claim.value_upper,
        "gap": claim.gap,
        "is_proved": claim.is_proved,
        "points": claim.num_points,
        "solved": claim.num_solved,
        "point": None if claim.point is None else asdict(claim.point),
        "best": [{"rank": design.rank, "value": design.value, "point": asdict(design.point)} for design in result.best],
        "flatness": [asdict(row) for row in result.flatness],
        "ilp_solves": provenance.num_ilp_solves,
        "placements": provenance.num_placements,
        "wall_s": result.wall_s,
        "directory": result.directory.name,
    }


def certify_zoo(models: list[str], work_dir: Path, *, jobs: int) -> None:
    """Certify one model and network after the other, writing after each."""
    directory = work_dir / "phaze-opt-certificates"
    for model in models:
        for setting, network in NETWORKS.items():
            options = CertifyOptions(tolerance=TOLERANCE, jobs=jobs, directory=directory, is_resumed=True)
            started, cpu_s = time.perf_counter(), time.process_time()
            found = describe(certify(make_problem(model, network), options))
            found["command_wall_s"] = time.perf_counter() - started
            found["cpu_s"] = time.process_time() - cpu_s
            found["peak_mb_so_far"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found["load_average"] = os.getloadavg()[0]
            put(f"{setting}.{model}", "certificate", found)


def check_zoo(models: list[str], work_dir: Path) -> None:
    """Check the recorded certificates of models."""
    for key, entry in read()["results"].items():
        if key.partition(".")[2] not in models:
            continue
        directory = work_dir / "phaze-opt-certificates" / entry["certificate"]["directory"]
        started = time.perf_counter()
        report = check_certificate(directory)
        put(key, "check", {"claim": asdict(report.claim), "wall_s": time.perf_counter() - started})


def study_zoo(models: list[str], work_dir: Path, *, jobs: int) -> None:
    """Run the study, or go on with it, on some of its models."""
    workloads = f"workloads = {json.dumps(models)}"
    text, count = re.subn(r"workloads = \[.*?\]", workloads, STUDY.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert count == 1
    own = work_dir / "zoo.toml"
    own.write_text(text, encoding="utf-8")
    options = ["--jobs", str(jobs), "--resume", "--no-tracking", "--work-dir", str(work_dir)]
    subprocess.run([sys.executable, "-m", "phaze_opt", "study", "run", str(own), *options], check=True)


def compare_zoo(work_dir: Path) -> None:
    """Add the regret of every strategy of the study."""
    summary = summarise(load_study(find_study("zoo", work_dir=work_dir).path))
    for score in summary.by_condition:
        regret = {"mean": score.mean_regret, "median": score.median_regret, "searches": score.num_cells}
        put(score.condition, f"regret of {score.contender}", regret)


def read() -> dict[str, Any]:
    """What is recorded so far."""
    return json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {"results": {}}


def put(key: str, part: str, value: object) -> None:
    """Record one figure of one model and network."""
    record = read()
    record["_meta"] = {
        "command": "python experiments/certified/zoo.py certify | check | study | compare --work-dir DIR",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("phaze-opt", "numpy", "numba", "scipy", "highspy")},
        "devices": DEVICES,
        "global_batch": GLOBAL_BATCH,
        "tolerance": TOLERANCE,
    }
    record["results"].setdefault(key, {})[part] = value
    OUT.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    print(key, part, json.dumps(value, default=str)[:300], file=sys.stderr, flush=True)


def main() -> None:
    """Run the part asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("certify", "check", "study", "compare"))
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(list_models()))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.part == "certify":
        certify_zoo(arguments.models, arguments.work_dir, jobs=arguments.jobs)
    elif arguments.part == "check":
        check_zoo(arguments.models, arguments.work_dir)
    elif arguments.part == "study":
        study_zoo(arguments.models, arguments.work_dir, jobs=arguments.jobs)
    else:
        compare_zoo(arguments.work_dir)


if __name__ == "__main__":
    main()
