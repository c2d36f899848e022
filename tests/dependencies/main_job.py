"""The main job of the environment that runs this file: search, evaluate, schedule, certify with its check, a study.

All of a command's standard output must be its answer, and one answer must be the other's.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("phaze-opt")
INSTANCES = Path(__file__).parents[1] / "schedule" / "data" / "schedule_instances.json"
JOB = ("--model", "bert-large", "--devices", "1024", "--global-batch", "4096")
SMALL = ("--model", "tiny", "--devices", "8", "--global-batch", "32", "--as", "phaze", "--tensor-parallel", "1,2")
SPACE = """
[axes]
num_tc = [1, 4, 16, 64]
num_vc = [4, 64, 256]
tc_width = [32, 128]
tc_depth = [32, 128]
glb_mb = [8, 32]
micro_batch = [1, 4]
"""
STUDY = """
[study]
name = "small"
workloads = ["tiny"]
strategies = ["random", "tpe"]
seeds = 2
budget = { evaluations = 6 }

[cluster]
devices = 8
global_batch = 32

[training]
as = "phaze"
tensor_parallel = [1, 2]

[space]
file = "space.toml"

[statistics]
truth = "certify"
"""


def answer(folder: Path, *words: str) -> Any:
    """What a command prints: JSON and nothing else."""
    sys.stdout.write(f"  phaze-opt {' '.join(words)}\n")
    sys.stdout.flush()
    printed = subprocess.run(
        [str(COMMAND), *words, "--json"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(printed.stdout)


def same(first: float, second: float) -> bool:
    """Whether two numbers are one but for their last digits."""
    return math.isclose(first, second, rel_tol=1e-9)


def run(folder: Path) -> None:
    (folder / "space.toml").write_text(SPACE)
    (folder / "study.toml").write_text(STUDY)

    search = answer(folder, "search", *JOB, "--trials", "8", "--jobs", "2")
    (folder / "search.json").write_text(json.dumps(search))
    micro_batch = str(search["best"]["micro_batch"])
    again = answer(folder, "evaluate", *JOB, "--arch", "search.json", "--micro-batch", micro_batch)
    assert same(again["throughput_samples_per_s"], search["best"]["throughput_samples_per_s"])
    assert again["placement"]["plan"] == search["best"]["placement"]["plan"]

    for instance in json.loads(INSTANCES.read_text(encoding="utf-8"))["instances"]:
        (folder / "instance.json").write_text(json.dumps(instance))
        scheduled = answer(folder, "schedule", "instance.json")
        assert scheduled["status"] == "optimal"
        assert same(scheduled["makespan"], instance["optimal_makespan"])

    proof = answer(folder, "certify", *SMALL, "--space", "space.toml", "--jobs", "2")
    assert proof["is_proved"]
    assert answer(folder, "certify", "--check", proof["file"])["valid"]
    study = answer(folder, "study", "run", "study.toml", "--jobs", "2")
    assert study["is_complete"]
    assert study["best"]["throughput_samples_per_s"] <= proof["upper_bound"]
    assert answer(folder, "report", "small")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="phaze-opt-") as directory:
        run(Path(directory))
