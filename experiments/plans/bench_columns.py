"""Times what a search over plans does: list, table, hold against memory, price; writes bench_columns.json beside it.

Before and after in one run: before, every plan was compiled, held against memory and built alone in Python, which the
tests keep as their checker (tests/kits/plain_plans.py, plain_steps.py). Wall times are medians of repeats after warming
up, CPU times their least; the slow way is timed once, on a sample of the plans where it says so.
Run: python experiments/plans/bench_columns.py
"""

import argparse
import json
import os
import platform
import runpy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

import phaze_opt
from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.compiled_step import StepCompiler
from phaze_opt.cost.plan_memory import peak_bytes
from phaze_opt.cost.price_kernel import plan_bounds_s, plan_prices_s
from phaze_opt.cost.price_rows import layer_times, price_rows
from phaze_opt.cost.price_step import StackColumns, batch_loads, price_batch
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.stage_costs import list_stage_choices, stage_loads
from phaze_opt.cost.step_table import StepTable, build_table
from phaze_opt.cost.step_table_parts import list_layouts
from phaze_opt.cost.step_time import lower_s, shown_times
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_search import Machine, rank_plans
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import PlanChoices
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

TESTS = Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS))

from kits.plain_plans import plain_memory, plain_plans, plain_ranking  # noqa: E402
from kits.plain_steps import plain_batch  # noqa: E402

FITTED = load_fitted()
ZOO = ("bert-large", "gpt3-175b", "mixtral-8x7b")
SOFTWARE = ("ideal", "megatron-core", "llm-foundry")
DEVICES, BATCH, LENGTH = 1024, 4096, 512
CHIPS, SAMPLE = 200, 300


def measure(task: Callable[[], object], *, repeats: int) -> dict[str, float]:
    """Median wall time and least CPU time of a task, s."""
    task()
    wall, cpu = [], []
    for _ in range(repeats):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        task()
        wall.append(time.perf_counter() - wall_start)
        cpu.append(time.process_time() - cpu_start)
    return {"median_wall_s": statistics.median(wall), "min_cpu_s": min(cpu)}


def once(task: Callable[[], object]) -> dict[str, float]:
    """Times of one call, s."""
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def every_interleave(model: ModelSpec) -> tuple[int, ...]:
    """All that divide the blocks."""
    return tuple(chunks for chunks in range(1, model.num_layers + 1) if model.num_layers % chunks == 0)


def zoo_choices(model: ModelSpec) -> PlanChoices:
    """Every interleave and ZeRO stage; experts of models that have them."""
    return PlanChoices(
        interleave=every_interleave(model), zero=(0, 1, 2, 3), expert=(1, 2, 4, 8) if model.has_experts else (1,)
    )


def table_of(model: ModelSpec, plans: PlanColumns, network: Network, stack: TrainingStack) -> StepTable:
    """Graphs compiled too."""
    return build_table(list_layouts(model, TrainingSpec(1, LENGTH, BATCH), plans, network=network, stack=stack))


def of_model(name: str, software: str, *, repeats: int) -> dict[str, Any]:
    """A model of the zoo on 1,024 devices."""
    model, stack = load_model(name), load_stack(software, FITTED)
    training, network = TrainingSpec(1, LENGTH, BATCH), load_network("dgx-h100", num_devices=DEVICES, fitted=FITTED)
    choices = zoo_choices(model)

    def listed() -> PlanColumns:
        return list_plans(model, training, num_devices=DEVICES, choices=choices)

    plans = listed()
    table = table_of(model, plans, network, stack)
    rng, shape = np.random.default_rng(0), (CHIPS, len(table.graphs), 3)
    classes_s, attention_s = 10.0 ** rng.uniform(-5, -3, (*shape, 4, 3)), 10.0 ** rng.uniform(-6, -4, shape)
    rows, layer_s = price_rows(table, stack), layer_times(table, classes_s, attention_s, stack)
    found: dict[str, Any] = {
        "plans": len(plans),
        "runs_per_plan": len(table.runs.plan) / len(plans),
        "graphs": len(table.graphs),
        "list": measure(listed, repeats=repeats),
        "table_and_graphs": measure(lambda: table_of(model, plans, network, stack), repeats=repeats),
        "memory": measure(lambda: peak_bytes(table, optimizer=training.optimizer, stack=stack), repeats=repeats),
        "layer_times": measure(lambda: layer_times(table, classes_s, attention_s, stack), repeats=repeats),
        "price": measure(lambda: plan_prices_s(rows, layer_s), repeats=repeats),
        "lower": measure(lambda: plan_bounds_s(rows, layer_s), repeats=repeats),
    }
    pairs = CHIPS * len(plans)
    found["us_per_plan_to_table"] = 1e6 * found["table_and_graphs"]["median_wall_s"] / len(plans)
    found["us_per_plan_memory"] = 1e6 * found["memory"]["median_wall_s"] / len(plans)
    found["us_per_chip_layer_times"] = 1e6 * found["layer_times"]["median_wall_s"] / CHIPS
    for each in ("price", "lower"):
        found[f"ns_per_plan_and_chip_{each}"] = 1e9 * found[each]["median_wall_s"] / pairs
        found[f"ns_per_plan_and_chip_{each}_cpu"] = 1e9 * found[each]["min_cpu_s"] / pairs
    found["before"] = before(model, plans, network, stack)
    return found


def before(model: ModelSpec, plans: PlanColumns, network: Network, stack: TrainingStack) -> dict[str, float]:
    """The slow way on a sample of plans: us a plan to build, to hold against memory, to price and to bound."""
    training = TrainingSpec(1, LENGTH, BATCH)
    chosen = plans.take(np.random.default_rng(1).choice(len(plans), SAMPLE, replace=False))
    compiler = StepCompiler()
    steps = [compiler.compile(model, training, plan, stack=stack) for plan in chosen]
    batch = plain_batch(steps, [network] * SAMPLE)
    classes_s, attention_s, stacks = np.full((SAMPLE, 3, 4, 3), 1e-4), np.full((SAMPLE, 3), 1e-5), [stack] * SAMPLE

    def memory() -> None:
        for step in steps:
            graphs = [layer.graph for layer in step.layers]
            plain_memory(graphs, step.plan, blocks=step.blocks, num_micro_batches=step.num_micro_batches, stack=stack)

    tasks: dict[str, Callable[[], object]] = {
        "us_per_plan_to_build": lambda: plain_batch(steps, [network] * SAMPLE),
        "us_per_plan_memory": memory,
        "us_per_plan_and_chip_price": lambda: price_batch(batch, classes_s, attention_s, StackColumns(stacks)),
        "us_per_plan_and_chip_lower": lambda: lower_s(
            *batch_loads(batch, classes_s, attention_s, StackColumns(stacks))
        ),
    }
    return {name: 1e6 * once(task)["wall_s"] / SAMPLE for name, task in tasks.items()}


def best_of_405b(num_devices: int, *, repeats: int) -> dict[str, Any]:
    """The best plan of Llama 3 405B on H100s: sequences of 8,192, batch 2,048, context 1 to 16, every interleave."""
    model = runpy.run_path(str(TESTS / "plan" / "test_llama3_405b.py"))["MODEL"]
    training, stack = TrainingSpec(1, 8192, 2048), load_stack("megatron-core", FITTED)
    network = load_network("dgx-h100", num_devices=num_devices, fitted=FITTED)
    device = load_device("h100")
    machine = Machine(MachineClock(device, ComputePath.BF16, FITTED), device.hbm_bytes, network, stack)
    choices = PlanChoices(context=(1, 2, 4, 8, 16), zero=(0, 1, 2, 3), interleave=every_interleave(model))

    def best() -> Any:
        plans = list_plans(model, training, num_devices=num_devices, choices=choices)
        ranking = rank_plans(model, training, plans, machine=machine)
        return plans, ranking, ranking.ranked[0]

    plans, ranking, first = best()
    slow: list[Any] = []

    def plain() -> None:
        listed = list(plain_plans(model, training, num_devices=num_devices, choices=choices))
        slow.append(plain_ranking(model, training, listed, machine=machine))

    found = {"after": measure(best, repeats=repeats), "before": once(plain)}
    return {
        "plans": len(plans),
        "fit": len(ranking.ranked),
        "best": str(first.plan),
        "predicted_s": first.time.seconds,
        "is_the_same_ranking": list(ranking.ranked.plans) == slow[0].plans,
        **found,
    }


def of_stages(*, repeats: int) -> dict[str, Any]:
    """All choices of the stages of one plan of GPT-3, and their times on a chip."""
    model, stack = load_model("gpt3-175b"), load_stack("megatron-core", FITTED)
    found: dict[str, Any] = {}
    for pipeline in (8, 64):
        plans = PlanChoices(tensor=(2,), pipeline=(pipeline,), micro_batch=(1,), zero=(2,))
        training, devices = TrainingSpec(1, LENGTH, BATCH), 8 * pipeline
        plan = list_plans(model, training, num_devices=devices, choices=plans).plan(0)
        step = StepCompiler().compile(model, training, plan, stack=stack)
        network = load_network("dgx-h100", num_devices=devices, fitted=FITTED)
        times = MachineClock(load_device("h100"), ComputePath.BF16, FITTED).times(step)
        choices = list_stage_choices(step, network)
        found[f"{pipeline} stages"] = {
            "choices": measure(lambda step=step, network=network: list_stage_choices(step, network), repeats=repeats),
            "costs": measure(
                lambda choices=choices, times=times: shown_times(*stage_loads(choices, times)), repeats=repeats
            ),
        }
    return found


def run(*, repeats: int) -> dict[str, Any]:
    """All measurements with the machine and versions they were taken on."""
    return {
        "_meta": {
            "version": phaze_opt.__version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "load_average": os.getloadavg()[0],
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
            "repeats": repeats,
            "devices": DEVICES,
            "global_batch": BATCH,
            "chips": CHIPS,
        },
        "zoo": {name: {each: of_model(name, each, repeats=repeats) for each in SOFTWARE} for name in ZOO},
        "llama-3-405b": {str(number): best_of_405b(number, repeats=min(3, repeats)) for number in (1024, 16384)},
        "stages_of_gpt3-175b": of_stages(repeats=repeats),
    }


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    text = json.dumps(run(repeats=arguments.repeats), indent=1)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
