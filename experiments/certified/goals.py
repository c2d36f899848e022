"""Times of whole `phaze-opt certify` commands, started as a user starts them; writes goals.json beside this file.

    python experiments/certified/goals.py [CASE ...]        (in the root of the repository)

``cold`` has an empty cache of compiled kernels; the other cases run once unmeasured before they are measured, with
the cache of the environment. Peak memory is that of the largest process.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

OUT = Path(__file__).with_name("goals.json")
BERT = "--model bert-large --devices 64 --global-batch 512 --micro-batch 8 --hbm 80"
EIGHT = [
    "bert-large",
    "gpt2-xl",
    "gpt3-175b",
    "llama-2-7b",
    "llama-3-8b",
    "mixtral-8x7b",
    "opt-1.3b",
    "megatron-gpt2-72",
]
DENSE = "--space experiments/certified/dense-space.toml"
CASES = {
    "cold": [BERT],
    "warm": [BERT],
    "warm, unfused attention": [f"{BERT} --attention unfused"],
    "warm, unfused attention, exclusivity type": [f"{BERT} --attention unfused --exclusivity type"],
    "gpt3-175b, 4 tensor widths": [
        "--model gpt3-175b --devices 1024 --global-batch 1536 --micro-batch 1 --hbm 80 --tensor-parallel 1,2,4,8"
    ],
    "8 models x 3 HBM x 4 micro-batches": [f"--model {name} --devices 1024 --global-batch 4096" for name in EIGHT],
    "one common design for 8 models": [
        f"--models {','.join(EIGHT)} --common geometric --devices 1024 --global-batch 4096"
    ],
    "dense space": [f"--model bert-large --devices 1024 --global-batch 4096 {DENSE}"],
}


def run(options: str, environment: dict[str, str]) -> dict[str, Any]:
    """One command in a fresh directory."""
    with tempfile.TemporaryDirectory() as directory:
        command = [
            sys.executable,
            "-m",
            "phaze_opt",
            "certify",
            "--as",
            "phaze",
            *options.split(),
            "--json",
            "--no-tracking",
        ]
        started = time.perf_counter()
        done = subprocess.run(
            [*command, "--work-dir", directory], capture_output=True, text=True, check=True, env=environment
        )
        wall_s = time.perf_counter() - started
    answer = json.loads(done.stdout)
    kept = ("throughput_samples_per_s", "gap", "is_proved", "points", "num_solved", "ilp_solves", "placements")
    return {"options": options, "wall_s": wall_s, "proof_s": answer["wall_s"], **{key: answer[key] for key in kept}}


def measure(case: str) -> dict[str, Any]:
    """One case: its commands, one after the other."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if case == "cold" else {})
        if case != "cold":
            run(BERT, environment)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = [run(options, environment) for options in CASES[case]]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": sum(row["wall_s"] for row in rows),
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb_so_far": after.ru_maxrss / 1024,
        "load_average": os.getloadavg()[0],
        "commands": rows,
    }


def main() -> None:
    """Measure the cases asked for, writing after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    record = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    for case in parser.parse_args().cases:
        record[case] = measure(case)
        record["_meta"] = {
            "command": "python experiments/certified/goals.py",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("phaze-opt", "numpy", "numba", "scipy", "highspy")},
        }
        OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(case, json.dumps({k: v for k, v in record[case].items() if k != "commands"}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
