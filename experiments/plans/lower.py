"""Does the bound below the price of a step ever fall, or exceed the price? Perturbations over all shipped software.

Layers take random times, log-uniform over four decades of compute against traffic. Each is raised alone, and the bound
is priced again. The price itself is counted beside it: where it falls, no search may prune by it.

Run: python experiments/plans/lower.py [--write]
"""

import time
from collections.abc import Iterator
from functools import cache

import numpy as np
from records import finish, parser_of

from phaze_opt.cost.compiled_step import NUM_PASSES, StepCompiler
from phaze_opt.cost.price_step import StackColumns, batch_loads, price_batch
from phaze_opt.cost.stacks import list_stacks, load_stack
from phaze_opt.cost.step_batch import StepBatch
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import lower_s
from phaze_opt.graph.layer import NUM_PLAIN_PARTS
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.training import TrainingSpec

DEVICES, BATCH, LENGTH = 64, 256, 1024
MODELS = ("gpt2-xl", "llama-2-7b", "mixtral-8x7b")
PLANS = 64
"""Plans of each software and model, drawn from all that are allowed."""
ROUNDING = 1e-12
CHOICES = PlanChoices(interleave=(1, 2, 4), zero=(0, 1, 2, 3), expert=(1, 2, 4), context=(1, 2), micro_batch=(1, 2, 4))


@cache
def plans_of(model_name: str) -> list[ParallelPlan]:
    """All plans of a model, whatever the software."""
    model, training = load_model(model_name), TrainingSpec(1, LENGTH, BATCH)
    return list(list_plans(model, training, num_devices=DEVICES, choices=CHOICES))


def batch_of(
    model_name: str, stack_name: str, rng: np.random.Generator, *, plans: int
) -> tuple[StepBatch, StackColumns]:
    """Some plans of a model under a software."""
    model, stack = load_model(model_name), load_stack(stack_name, load_fitted())
    training, every = TrainingSpec(1, LENGTH, BATCH), plans_of(model_name)
    chosen = rng.choice(len(every), size=min(plans, len(every)), replace=False)
    compiler, network = StepCompiler(), load_network("dgx-a100", num_devices=DEVICES)
    steps = [compiler.compile(model, training, every[index], stack=stack) for index in chosen]
    return build_batch(steps, [network] * len(steps)), StackColumns([stack] * len(steps))


def perturb(
    batch: StepBatch, stack: StackColumns, rng: np.random.Generator, *, rounds: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of every round and plan: rise of the bound, rise of the price, and bound over price; all relative."""
    count = len(batch)
    for _ in range(rounds):
        scale = 10.0 ** rng.uniform(-6, -2, size=(count, 1, 1, 1))
        classes_s = scale * 10.0 ** rng.uniform(-1, 1, size=(count, NUM_PLAIN_PARTS, NUM_PASSES, 3))
        attention_s = scale[:, :, 0, 0] * rng.uniform(0, 1, size=(count, NUM_PLAIN_PARTS))
        price = price_batch(batch, classes_s, attention_s, stack).seconds
        lower = lower_s(*batch_loads(batch, classes_s, attention_s, stack))
        raised = classes_s.copy()
        places = tuple(rng.integers(0, size, count) for size in (NUM_PLAIN_PARTS, NUM_PASSES, 3))
        raised[(np.arange(count), *places)] *= 10.0 ** rng.uniform(0, 1.5, count)
        price_after = price_batch(batch, raised, attention_s, stack).seconds
        lower_after = lower_s(*batch_loads(batch, raised, attention_s, stack))
        yield lower_after / lower - 1.0, price_after / price - 1.0, lower / price


def measure(rounds: int, seed: int = 0, *, plans: int = PLANS) -> dict[str, dict[str, float]]:
    """Falls and tightness by software."""
    rng = np.random.default_rng(seed)
    found = {}
    for stack_name in list_stacks():
        rises, prices, ratios = [], [], []
        for model_name in MODELS:
            batch, stack = batch_of(model_name, stack_name, rng, plans=plans)
            for rise, price, ratio in perturb(batch, stack, rng, rounds=rounds):
                rises.append(rise)
                prices.append(price)
                ratios.append(ratio)
        rise, price, ratio = (np.concatenate(each) for each in (rises, prices, ratios))
        found[stack_name] = {
            "perturbations": len(rise),
            "falls_of_the_bound": int((rise < -ROUNDING).sum()),
            "bound_above_price": int((ratio > 1 + ROUNDING).sum()),
            "falls_of_the_price": int((price < -ROUNDING).sum()),
            "largest_fall_of_the_price": float(max(0.0, -price.min())),
            "ratio_median": float(np.median(ratio)),
            "ratio_1_percent": float(np.quantile(ratio, 0.01)),
            "ratio_least": float(ratio.min()),
        }
    return found


def main() -> None:
    """Measure, print, and maybe write."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=700)
    given = parser.parse_args()
    started = time.perf_counter()
    found = measure(given.rounds)
    figures = {
        "wall_s": round(time.perf_counter() - started, 1),
        "perturbations": sum(each["perturbations"] for each in found.values()),
        "falls_of_the_bound": sum(each["falls_of_the_bound"] for each in found.values()),
        "bound_above_price": sum(each["bound_above_price"] for each in found.values()),
        "software": found,
    }
    finish(__file__, figures, write=given.write)


if __name__ == "__main__":
    main()
