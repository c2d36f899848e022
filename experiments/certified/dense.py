"""What powers of two cost: certified optima of Phaze's space and of a dense one; writes dense.json beside this file.

    python experiments/certified/dense.py [--models M ...]

Both at 64 GB and micro-batch 8 (`dense-space.toml`), the demonstration's cluster, tolerance 0.1 %. The dense space
holds every point of Phaze's, so its optimum is no worse; decision 0140 says why the gain is an upper estimate.
"""

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phaze_opt import Cluster, Scenario, load_model, load_network
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.hardware.constants import load_constants
from phaze_opt.space.known_spaces import load_space, phaze_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI

HERE = Path(__file__).parent
DEVICES, GLOBAL_BATCH, TOLERANCE = 1024, 4096, 1e-3
SPACES = {
    "phaze": phaze_space(hbm_bytes=(64 * GIBI,), micro_batches=(8,)),
    "dense": load_space(HERE / "dense-space.toml"),
}


def prove(model: str, space: SearchSpace) -> dict[str, Any]:
    """The certified optimum of one space."""
    cluster = Cluster(DEVICES, load_network("two-level", num_devices=DEVICES))
    problem = CertifyProblem(Scenario((load_model(model),), cluster, GLOBAL_BATCH), space, load_constants())
    with tempfile.TemporaryDirectory() as directory:
        started, cpu_s = time.perf_counter(), time.process_time()
        result = certify(problem, CertifyOptions(tolerance=TOLERANCE, directory=Path(directory)))
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
    claim = result.certificate.claim
    return {
        "points": claim.num_points,
        "samples_per_s": claim.value,
        "gap": claim.gap,
        "is_proved": claim.is_proved,
        "point": None if claim.point is None else asdict(claim.point),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "peak_mb_so_far": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Prove both optima of every model, writing after each; models that are not asked for keep what is recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["bert-large", "gpt2-xl", "llama-2-7b", "gpt3-175b"])
    out = HERE / "dense.json"
    results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["results"] if out.exists() else {}
    for model in parser.parse_args().models:
        found = {name: prove(model, space) for name, space in SPACES.items()}
        found["gain"] = found["dense"]["samples_per_s"] / found["phaze"]["samples_per_s"] - 1.0
        results[model] = found
        meta = {
            "command": "python experiments/certified/dense.py",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("phaze-opt", "numpy", "numba")},
            "devices": DEVICES,
            "global_batch": GLOBAL_BATCH,
            "load_average": os.getloadavg()[0],
        }
        out.write_text(json.dumps({"_meta": meta, "results": results}, indent=1) + "\n", encoding="utf-8")
        print(model, json.dumps(found), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
