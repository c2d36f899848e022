"""What holding tensors in the buffer is worth, and what it costs to price, by size of the buffer.

A chip of 16 arrays of 128x128 and 2,048 lanes with a buffer of 4,096 bytes a cycle, HBM stacks as given, 1,024 devices,
full plans. Times are of the processor: medians of evaluations of chips never seen before, residency off and on in turn.

Run: python experiments/residency/effect.py [--write]
"""

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plans"))

from records import finish, parser_of  # noqa: E402

from phaze_opt.estimate.analytic import AnalyticEstimator  # noqa: E402
from phaze_opt.graph.build import build_model_graph  # noqa: E402
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable  # noqa: E402
from phaze_opt.hardware.constants import Constants, load_constants  # noqa: E402
from phaze_opt.hardware.presets import load_architecture  # noqa: E402
from phaze_opt.objective.evaluate import Objective  # noqa: E402
from phaze_opt.objective.scenario import make_scenario  # noqa: E402
from phaze_opt.testing.problems import random_accelerators  # noqa: E402
from phaze_opt.units import MEBI  # noqa: E402
from phaze_opt.workload.config import load_model  # noqa: E402
from phaze_opt.workload.training import TrainingSpec  # noqa: E402

NONE = load_constants().with_options({"residency": "none"})
PLANNED = NONE.with_options({"residency": "planned"})
SIZES_MIB = (4, 8, 16, 32, 64, 128, 192, 256)
MODELS = ("bert-large", "gpt2-xl", "llama-2-7b", "gpt3-175b")


def chip(glb_mib: int, *, hbm_gb: int, lanes: int = 128) -> Accelerator:
    """The chip with a buffer of so many MiB; 16 GB a stack."""
    text = f"num_tc=16,num_vc=16,tc_width=128,tc_depth=128,vc_width={lanes},glb_mb={glb_mib},hbm_gb={hbm_gb}"
    built = load_architecture(text, constants=NONE)
    return replace(built, glb_bandwidth_bytes_per_s=4096 * built.clock_hz)


def throughputs(model: str, estimator: str, stacks: int) -> dict[str, Any]:
    """Samples/s by size of the buffer, residency off and on."""
    scenario = make_scenario(model, devices=1024, global_batch=4096, estimator=estimator, silicon="phaze")
    row: dict[str, Any] = {"model": model, "estimator": estimator, "stacks": stacks}
    for name, constants in (("none", NONE), ("planned", PLANNED)):
        objective = Objective(scenario, constants=constants)
        found = [objective.evaluate_accelerator(chip(size, hbm_gb=16 * stacks)) for size in SIZES_MIB]
        values = [each.throughput_samples_per_s for each in found]
        row[name] = [round(value, 2) for value in values]
        row[f"{name}_8_to_256"] = round(values[-1] / values[1] - 1.0, 4)
    return row


def evaluation_ms(model: str) -> dict[str, Any]:
    """Median time of an evaluation of a chip never seen, off and on in turn."""
    objectives = {
        name: Objective(make_scenario(model, devices=1024, global_batch=4096, silicon="phaze"), constants=constants)
        for name, constants in (("none", NONE), ("planned", PLANNED))
    }
    chips = [chip(24 + 8 * (number % 20), hbm_gb=64, lanes=64 + number) for number in range(41)]
    seconds: dict[str, list[float]] = {name: [] for name in objectives}
    for one in chips:
        for name, objective in objectives.items():
            begun = time.process_time()
            objective.evaluate_accelerator(one)
            seconds[name].append(time.process_time() - begun)
    medians = {f"{name}_cpu_ms": round(1e3 * statistics.median(each[1:]), 1) for name, each in seconds.items()}
    return {"model": model} | medians


def table_s(num_chips: int, constants: Constants) -> float:
    """Least time of three to price all operators of a model at four degrees on a table of chips, s."""
    model = load_model("gpt3-175b")
    graphs = [build_model_graph(model, TrainingSpec(1, 2048, 8), tensor_parallel=degree) for degree in (1, 2, 4, 8)]
    operators = [each for graph in graphs for layer in graph.layers for one in layer.phases for each in one.operators]
    table = AcceleratorTable.from_accelerators(random_accelerators(1, count=num_chips))
    rng = np.random.default_rng(1)
    table = replace(table, glb_bytes=rng.choice(np.array(SIZES_MIB) * MEBI, num_chips))
    estimator = AnalyticEstimator(constants)
    compiled = estimator.compile(operators)
    seconds = []
    for _ in range(4):
        begun = time.process_time()
        estimator.estimate(compiled, table)
        seconds.append(time.process_time() - begun)
    return min(seconds[1:])


def monotone() -> dict[str, Any]:
    """Ten thousand chips, each beside one with more of one thing: how many operators get slower or move more."""
    model = load_model("llama-2-7b")
    graph = build_model_graph(model, TrainingSpec(2, 2048, 8), tensor_parallel=2)
    operators = [each for layer in graph.layers for one in layer.phases for each in one.operators]
    table = AcceleratorTable.from_accelerators(random_accelerators(7, count=10_000))
    rng = np.random.default_rng(7)
    sizes = np.exp(rng.uniform(np.log(MEBI), np.log(600 * MEBI), len(table))).astype(np.int64)
    table = replace(table, glb_bytes=sizes)
    estimator = AnalyticEstimator(PLANNED)
    before = estimator.estimate(operators, table)
    found: dict[str, Any] = {"chips": len(table), "operators": len(operators)}
    columns = {"size": "glb_bytes", "rate": "glb_bandwidth_bytes_per_s", "hbm_rate": "hbm_bandwidth_bytes_per_s"}
    for what, column in columns.items():
        values = getattr(table, column)
        more = (values * np.exp(rng.uniform(0.0, 1.0, len(table)))).astype(values.dtype)
        after = estimator.estimate(operators, replace(table, **{column: more}))
        names = ("one_core_s", "spread_s", "traffic_bytes")
        found[what] = int(sum((getattr(after, name) > getattr(before, name)).sum() for name in names))
    return found


def main() -> None:
    """Measure, print, and maybe write the record."""
    options = parser_of(__doc__).parse_args()
    cases = [(model, kind, 4) for model in MODELS for kind in ("calibrated", "analytic")]
    cases += [(model, "calibrated", 2) for model in MODELS]
    figures = {
        "glb_mib": SIZES_MIB,
        "throughput": [throughputs(*case) for case in cases],
        "evaluations": [evaluation_ms(model) for model in ("bert-large", "gpt3-175b")],
        "table_of_30000_chips": {
            f"{name}_table_cpu_s": round(table_s(30_000, constants), 3)
            for name, constants in (("none", NONE), ("planned", PLANNED))
        },
        "slower_with_more": monotone(),
    }
    finish(__file__, figures, write=options.write)


if __name__ == "__main__":
    main()
