"""Times the analytic estimator on the whole Phaze space and on one chip; writes bench.json beside this file.

Wall time is the median of repeats after warming up; CPU time is what the process spent, which other load on the machine
disturbs less. Run: python experiments/estimator/bench.py
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np

import phaze_opt
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.pricing import num_threads
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.flexibility import SWITCHES

BUDGET_UM2 = 278_826_676.31216
EDGES = (64, 128, 256, 1024)


def phaze_table() -> AcceleratorTable:
    """The 29,360 kept architectures of semantics 2 with 32 GB of stacked HBM."""
    cores, edges, buffers = 2 ** np.arange(13), 2 ** np.arange(1, 9), 2 ** np.arange(1, 8)
    grid = np.meshgrid(cores, cores, edges, edges, buffers, indexing="ij")
    num_tc, num_vc, width, depth, glb_mb = (axis.reshape(-1) for axis in grid)
    ones = np.ones(len(num_tc))
    table = AcceleratorTable(
        num_tc=num_tc,
        num_vc=num_vc,
        tc_width=width,
        tc_depth=depth,
        vc_width=width,
        glb_bytes=glb_mb << 20,
        glb_bandwidth_bytes_per_s=ones * 6144 * 1.05e9,
        l2_bytes=np.maximum(1024, 16 * width * depth),
        hbm_bytes=(ones * 32).astype(np.int64) << 30,
        hbm_bandwidth_bytes_per_s=ones * 800e9,
        clock_hz=ones * 1.05e9,
        dtype_bytes=(ones * 2).astype(np.int64),
        hbm_stacks=np.zeros_like(num_tc),
        vc_l2_bytes=np.zeros_like(num_tc),
        link_bytes_per_s=0.0 * ones,
        **{name: np.zeros_like(num_tc) for name in ("pipelining", "sparse_array", *SWITCHES, "chiplets")},
    )
    area = area_um2_table(table)
    fits = area <= BUDGET_UM2 * (1 + 1e-12)
    return table.take(np.flatnonzero(fits & ((area >= 0.3 * BUDGET_UM2) | (num_tc == 1) | (num_vc == 1))))


def distinct_matmuls(count: int) -> list[Operator]:
    """Matmuls with edges from 64 to 16,384, a third of them batched as attention heads are."""
    rng = np.random.default_rng(0)
    found: dict[Matmul, Operator] = {}
    while len(found) < count:
        batch = int(rng.choice([1, 1, 1, 1, 16, 64]))
        m, n, k = (int(edge) for edge in rng.integers(1, 17, 3) * rng.choice(EDGES, 3))
        shape = Matmul(batch, m, n, k)
        read = 2.0 * shape.operand_elements()
        name = f"{len(found)}"
        found[shape] = Operator(name, Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (shape,), bytes_read=read)
    return list(found.values())


def measure(task: Callable[[], object], *, repeats: int) -> dict[str, float]:
    """Median and least wall time and least CPU time of a task, s."""
    task()
    wall, cpu = [], []
    for _ in range(repeats):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        task()
        wall.append(time.perf_counter() - wall_start)
        cpu.append(time.process_time() - cpu_start)
    return {"median_wall_s": statistics.median(wall), "min_wall_s": min(wall), "min_cpu_s": min(cpu)}


def run(*, repeats: int) -> dict[str, object]:
    """All measurements with the machine and versions they were taken on."""
    table, matmuls = phaze_table(), distinct_matmuls(200)
    chip, operators = table.take(np.array([1234])), (matmuls * 2)[:250]
    fast = AnalyticEstimator()
    space, layer = fast.compile(matmuls), fast.compile(operators)
    return {
        "_meta": {
            "version": phaze_opt.__version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "load_average": os.getloadavg()[0],
            "threads_on_space": num_threads(len(table) * len(matmuls)),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
            "repeats": repeats,
        },
        "num_accelerators": len(table),
        "num_matmuls": len(matmuls),
        "space_29360_x_200": measure(lambda: fast.estimate(space, table), repeats=repeats),
        "one_chip_x_250_compiled": measure(lambda: fast.estimate(layer, chip), repeats=10 * repeats),
        "one_chip_x_250_from_operators": measure(lambda: fast.estimate(operators, chip), repeats=10 * repeats),
    }


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("bench.json"))
    arguments = parser.parse_args()
    text = json.dumps(run(repeats=arguments.repeats), indent=2)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
