"""How the time of a proof grows with points, layers, operators and devices; writes growth.json and growth.svg.

    python experiments/certified/growth.py points layers operators devices
    python experiments/certified/growth.py plot

Each part varies one size and keeps the others: ``points`` thins a dense space (`dense-space.toml`) value by value,
``layers`` and ``devices`` certify GPT-2 XL with 6 to 96 layers and on 16 to 16,384 devices, ``operators`` schedules
random graphs of 8 to 64 operators. Exponents are slopes of least squares in log-log, over all sizes and over the upper
half of them, where constant costs no longer flatten the slope.
"""

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from phaze_opt import Cluster, Scenario, load_model, load_network
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.graph.operator import CoreType
from phaze_opt.hardware.constants import load_constants
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleOptions, ScheduleProblem
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.space.known_spaces import load_space, phaze_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI

HERE = Path(__file__).parent
OUT, PLOT = HERE / "growth.json", HERE / "growth.svg"
TOLERANCE = 1e-3
NUM_POINTS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
NUM_LAYERS = (6, 12, 24, 48, 96)
NUM_DEVICES = (16, 64, 256, 1024, 4096, 16_384)
NUM_OPERATORS = (8, 12, 16, 24, 32, 48, 64)
NUM_GRAPHS = 8
LIMIT_S = 5.0
ONE_HBM = phaze_space(hbm_bytes=(80 * GIBI,), micro_batches=(8,))


def prove(space: SearchSpace, *, model: str = "gpt2-xl", num_layers: int = 0, devices: int = 1024) -> dict[str, Any]:
    """Prove one optimum and say what it took."""
    spec = load_model(model)
    spec = replace(spec, num_layers=num_layers) if num_layers else spec
    cluster = Cluster(devices, load_network("two-level", num_devices=devices))
    problem = CertifyProblem(Scenario((spec,), cluster, 4096), space, load_constants())
    with tempfile.TemporaryDirectory() as directory:
        started, cpu_s = time.perf_counter(), time.process_time()
        result = certify(problem, CertifyOptions(tolerance=TOLERANCE, directory=Path(directory)))
        wall_s = time.perf_counter() - started
        size_bytes = sum(path.stat().st_size for path in result.directory.rglob("*") if path.is_file())
    claim = result.certificate.claim
    return {
        "points": claim.num_points,
        "wall_s": wall_s,
        "cpu_s": time.process_time() - cpu_s,
        "solved": claim.num_solved,
        "gap": claim.gap,
        "size_mb": size_bytes / 1e6,
        "ilp_solves": result.certificate.provenance.num_ilp_solves,
    }


def thin(space: SearchSpace, count: int) -> SearchSpace:
    """About ``count`` points of a space, the longest axis losing a value at a time.

    First what is no power of two, then the smallest: so that every space holds chips like the best ones, and the number
    of points is all that changes.
    """
    names = ("num_tc", "num_vc", "tc_width", "tc_depth", "glb_bytes")
    while space.size > 1.1 * count:
        name = max(names, key=lambda one: len(getattr(space.axes, one)))
        values = getattr(space.axes, name)
        dropped = next((value for value in values if value & (value - 1)), values[0])
        kept = tuple(value for value in values if value != dropped)
        space = replace(space, axes=replace(space.axes, **{name: kept}))
    return space


def measure_points() -> Iterator[dict[str, Any]]:
    """The dense space, thinned."""
    dense = load_space(HERE / "dense-space.toml", hbm_bytes=(80 * GIBI,), micro_batches=(8,))
    for count in NUM_POINTS:
        row = prove(thin(dense, count), model="bert-large")
        yield {"size": row["points"], **row}


def measure_layers() -> Iterator[dict[str, Any]]:
    """GPT-2 XL with more and fewer layers."""
    for count in NUM_LAYERS:
        yield {"size": count, **prove(ONE_HBM, num_layers=count)}


def measure_devices() -> Iterator[dict[str, Any]]:
    """GPT-2 XL on more and fewer devices."""
    for count in NUM_DEVICES:
        yield {"size": count, **prove(ONE_HBM, devices=count)}


def measure_operators() -> Iterator[dict[str, Any]]:
    """Schedules of random graphs, two cores of each type, under either rule: median time and share with a gap."""
    for count in NUM_OPERATORS:
        for rule in Exclusivity:
            times, gaps = [], []
            for seed in range(NUM_GRAPHS):
                problem = random_graph(count, np.random.default_rng(seed), rule)
                started = time.perf_counter()
                result = solve_schedule(problem, options=ScheduleOptions(time_limit_s=LIMIT_S))
                times.append(time.perf_counter() - started)
                gaps.append(result.gap)
            yield {
                "size": count,
                "exclusivity": rule.value,
                "wall_s": float(np.median(times)),
                "worst_wall_s": max(times),
                "share_within_1_percent": float(np.mean(np.array(gaps) <= 0.01)),
                "worst_gap": max(gaps),
            }


def random_graph(count: int, random: np.random.Generator, rule: Exclusivity) -> ScheduleProblem:
    """Operators in a random order, each pair of neighbours in it joined with a probability that gives width about 4."""
    kinds = random.choice([CoreType.TC, CoreType.VC, CoreType.TC_AND_VC], size=count, p=[0.45, 0.45, 0.1])
    one_core = np.exp(random.uniform(np.log(1e-6), np.log(1e-4), size=count))
    edges = [
        (before, after)
        for after in range(count)
        for before in range(max(0, after - 8), after)
        if random.random() < 0.25
    ]
    return ScheduleProblem(
        core_types=tuple(CoreType(kind) for kind in kinds),
        one_core_s=tuple(one_core.tolist()),
        spread_s=tuple((one_core * random.uniform(0.5, 1.0, size=count)).tolist()),
        edges=tuple(edges),
        cores=Cores(2, 2),
        exclusivity=rule,
    )


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "points": measure_points,
    "layers": measure_layers,
    "operators": measure_operators,
    "devices": measure_devices,
}


def seconds(row: dict[str, Any]) -> float:
    """Processor time of a proof, which other processes do not change; wall time of a schedule, whose limit it is."""
    return float(row.get("cpu_s", row["wall_s"]))


def fit(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Exponents of `seconds` over all sizes and over the upper half."""
    sizes = np.log([row["size"] for row in rows])
    times = np.log([seconds(row) for row in rows])
    half = len(rows) // 2
    return {
        "exponent": float(np.polyfit(sizes, times, 1)[0]),
        "exponent_upper_half": float(np.polyfit(sizes[half:], times[half:], 1)[0]),
    }


def record(part: str, rows: list[dict[str, Any]]) -> None:
    """Write one part with its fit."""
    result = read()
    result["_meta"] = {
        "command": "python experiments/certified/growth.py points layers operators devices",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("phaze-opt", "numpy", "numba", "scipy", "highspy")},
    }
    groups = sorted({row.get("exclusivity", "") for row in rows})
    fits = {group or "all": fit([row for row in rows if row.get("exclusivity", "") == group]) for group in groups}
    result[part] = {"rows": rows, "fit": fits, "load_average": os.getloadavg()[0]}
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read() -> dict[str, Any]:
    """What is recorded so far."""
    return json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}


def plot() -> None:
    """All parts side by side, log-log, with their exponents."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "growth"
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    result = read()
    parts = [part for part in PARTS if part in result]
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.4), constrained_layout=True)
    for axis, part in zip(axes.flat, parts, strict=True):
        for group, fitted in result[part]["fit"].items():
            rows = [row for row in result[part]["rows"] if row.get("exclusivity", "all") == group]
            sizes, times = [row["size"] for row in rows], [seconds(row) for row in rows]
            label = f"{group}: " if group != "all" else ""
            axis.loglog(sizes, times, marker="o", label=f"{label}slope {fitted['exponent_upper_half']:.2f}")
        axis.set_xlabel(part)
        axis.set_ylabel("median time of a schedule, s" if part == "operators" else "processor time of the proof, s")
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.legend()
    figure.savefig(PLOT, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    # The document type names an address that no reader needs.
    PLOT.write_text(re.sub(r"<!DOCTYPE[^>]*>\n", "", PLOT.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Measure the parts asked for, writing after each; or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "plot"])
    for part in parser.parse_args().parts:
        if part == "plot":
            plot()
            continue
        prove(ONE_HBM)  # compiles what is not in the cache
        rows = []
        for row in PARTS[part]():
            rows.append(row)
            print(part, json.dumps(row), file=sys.stderr, flush=True)
        record(part, rows)


if __name__ == "__main__":
    main()
