"""Times of the placement solvers, warm, on one core; writes results.json beside this file.

    python experiments/placement/bench.py [OUTPUT]

Chains shaped like BERT-Large (26 layers) and GPT-3 175B (98 layers) at four tensor widths on 1024 devices, on both
built-in networks; as they are, and with every layer's costs scattered so that no two are alike. Every result is checked
by `verify_placement`. Targets: 98 layers 0.15 s alone and 5 ms each in a batch.
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np

from phaze_opt.hardware.network import Cluster, Network, NetworkDimension, Topology
from phaze_opt.placement.phaze_instance import load_phaze_instance
from phaze_opt.placement.phaze_solve import solve_phaze
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, RecomputePolicy
from phaze_opt.placement.solve import solve_placement
from phaze_opt.placement.verify import verify_placement

NUM_DEVICES = 1024
DEGREES = (1, 2, 4, 8)
PEAK_FLOPS_PER_S = 200e12
HBM_BYTES_PER_S = 1.2e12
INSTANCES = Path(__file__).parents[2] / "tests" / "placement" / "data"

MODELS = {"bert-large-like": (26, 1024, 512, 30522), "gpt3-175b-like": (98, 12288, 2048, 50257)}
"""Layers, hidden size, sequence length, vocabulary."""


def clusters() -> dict[str, Cluster]:
    """The two networks of semantics 6."""
    inner = NetworkDimension(Topology.SWITCH, 8, 450e9, 1e-6)
    outer = NetworkDimension(Topology.SWITCH, NUM_DEVICES // 8, 50e9, 5e-6)
    flat = NetworkDimension(Topology.RING, NUM_DEVICES, float(4 << 30), 0.0)
    networks = (Network("two-level", (inner, outer)), Network("phaze", (flat,)))
    return {network.name: Cluster(NUM_DEVICES, network) for network in networks}


def costs(model: str, *, micro_batch: int, is_scattered: bool, seed: int = 0) -> tuple[LayerCosts, ...]:
    """Layer costs of a transformer of that shape at every width."""
    num_layers, hidden, sequence, vocabulary = MODELS[model]
    rng = np.random.default_rng(seed)
    options = []
    for degree in DEGREES:
        parameters = np.full(num_layers, 12.0 * hidden**2 / degree)
        parameters[[0, -1]] = vocabulary * hidden / degree
        forward_s = 2 * parameters * micro_batch * sequence / PEAK_FLOPS_PER_S
        forward_s[0] *= 0.05
        forward_s *= 1 + 0.1 * np.log2(degree)
        if is_scattered:
            forward_s *= rng.uniform(0.5, 1.5, num_layers)
            parameters *= rng.uniform(0.5, 1.5, num_layers)
        activations = np.full(num_layers, 2.0 * micro_batch * sequence * hidden)
        options.append(
            LayerCosts(
                tensor_parallel=degree,
                forward_s=forward_s,
                backward_s=2 * forward_s,
                update_s=32 * parameters / HBM_BYTES_PER_S,
                state_bytes=16 * parameters,
                gradient_bytes=2 * parameters,
                stash_bytes=17 * activations / degree,
                input_bytes=activations,
                working_set_bytes=17 * activations / degree,
                output_bytes=activations,
                tied_state_bytes=16.0 * vocabulary * hidden / degree,
                tied_gradient_bytes=2.0 * vocabulary * hidden / degree,
            )
        )
    return tuple(options)


def milliseconds(run: Callable[[], object], *, repeats: int) -> dict[str, float]:
    """Median and minimum of warm runs, ms."""
    run()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return {"median_ms": 1e3 * statistics.median(seconds), "min_ms": 1e3 * min(seconds), "repeats": repeats}


def bench_single() -> list[dict[str, object]]:
    """One problem at a time."""
    rows = []
    for model in MODELS:
        for name, cluster in clusters().items():
            for is_scattered in (False, True):
                for hbm_gib in (32, 80):
                    layers = costs(model, micro_batch=1, is_scattered=is_scattered)
                    problem = PlacementProblem(layers, cluster, hbm_gib * 2.0**30, 4096, 1, RecomputePolicy.AUTO)
                    result = solve_placement(problem)
                    verify_placement(problem, result)
                    row = {"model": model, "network": name, "scattered": is_scattered, "hbm_gib": hbm_gib}
                    placed = f"{result.tensor_parallel} x {len(result.stages)} x {result.data_parallel}"
                    timing = milliseconds(lambda problem=problem: solve_placement(problem), repeats=30)
                    rows.append({**row, "placement": placed, "batch_time_s": result.batch_time_s, **timing})
    return rows


def bench_batch(num_problems: int) -> dict[str, object]:
    """Many architectures' placements of the 98-layer chain one after the other."""
    cluster = clusters()["two-level"]
    problems = [
        PlacementProblem(
            costs("gpt3-175b-like", micro_batch=1, is_scattered=True, seed=seed), cluster, 80 * 2.0**30, 4096, 1
        )
        for seed in range(num_problems)
    ]
    for problem in problems:
        verify_placement(problem, solve_placement(problem))
    timing = milliseconds(lambda: [solve_placement(problem) for problem in problems], repeats=5)
    return {"problems": num_problems, "median_ms_each": timing["median_ms"] / num_problems, **timing}


def bench_phaze() -> list[dict[str, object]]:
    """The original's instances, whole: solve only, and load with solve."""
    rows = []
    for path in sorted(INSTANCES.glob("*.json")):
        instance = load_phaze_instance(path)
        timing = milliseconds(lambda instance=instance: solve_phaze(instance), repeats=20)
        original_s = json.loads(path.read_text())["optimum"].get("wall_s_O2")
        rows.append({"instance": path.stem, **timing, "original_cpp_s": original_s})
    return rows


def main() -> None:
    """Measure everything and write it down."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results.json"
    document = {
        "_meta": {
            "what": "warm wall times on one core; other processes may have shared the machine",
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "numba": numba.__version__,
            "numpy": np.__version__,
        },
        "single": bench_single(),
        "batch": bench_batch(100),
        "phaze": bench_phaze(),
    }
    output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for row in document["single"]:
        print(f"{row['median_ms']:8.2f} ms  {row['model']} {row['network']} {row['placement']}")
    print(f"{document['batch']['median_ms_each']:8.2f} ms each in a batch of {document['batch']['problems']}")
    for row in document["phaze"]:
        print(f"{row['median_ms']:8.2f} ms  {row['instance']}")


if __name__ == "__main__":
    main()
