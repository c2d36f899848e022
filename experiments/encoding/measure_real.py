"""What the search encoding saves on the real objective: mean regret after 60 proposals, with and without it.

Every point that any run proposes is evaluated once and shared between the runs; regret is against the best of all of
them, a best known and not a proven optimum. Run: python experiments/encoding/measure_real.py --seeds 10
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from measure_encoding import NUM_TRIALS, OUTER_SAMPLERS, Encoded, Lifted, RawExponents, run_search

import phaze_opt
from phaze_opt import Cluster, Objective, Scenario, load_model, load_network
from phaze_opt.space.codec import Codec
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.space.search_space import SearchSpace

DEVICES = 1024
GLOBAL_BATCH = 4096


class LazyScores:
    """Throughput of points by index, evaluated when first asked for; 0 where nothing fits."""

    def __init__(self, space: SearchSpace, model: str) -> None:
        """Prepare the objective."""
        cluster = Cluster(DEVICES, load_network("two-level", num_devices=DEVICES))
        self.objective = Objective(Scenario((load_model(model),), cluster, GLOBAL_BATCH))
        self.space = space
        self.known: dict[int, float] = {}

    def __getitem__(self, index: int) -> float:
        """Samples a second."""
        if index not in self.known:
            self.known[index] = self.objective.evaluate(self.space.point(index)).throughput_samples_per_s
        return self.known[index]


def measure(model: str, space: SearchSpace, *, num_seeds: int) -> dict[str, Any]:
    """Regret of every encoding on one model."""
    codec, scores = Codec(space), LazyScores(space, model)
    cases: dict[str, tuple[Any, str]] = {
        "independent exponents, tpe": (RawExponents(space), "tpe"),
        "semantics 8 to the letter, tpe": (Lifted(codec), "tpe"),
        "codec, tpe": (Encoded(codec), "tpe"),
        "codec, random": (Encoded(codec), "random"),
    }
    runs = {
        name: np.array(
            [run_search(encoding, scores, sampler=OUTER_SAMPLERS[sampler](seed)) for seed in range(num_seeds)]
        )
        for name, (encoding, sampler) in cases.items()
    }
    best = max(scores.known.values())
    return {
        "best_known_samples_per_s": best,
        "points_evaluated": len(scores.known),
        "regret": {
            name: {
                "mean_30": float(1 - history[:, 29].mean() / best),
                "mean_60": float(1 - history[:, -1].mean() / best),
                "median_60": float(1 - np.median(history[:, -1]) / best),
                "worst_60": float(1 - history[:, -1].min() / best),
            }
            for name, history in runs.items()
        },
    }


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--models", default="bert-large,gpt2-xl,llama-2-7b")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("result_real.json"))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = phaze_space()
    result: dict[str, Any] = {
        "_meta": {
            "version": phaze_opt.__version__,
            "num_trials": NUM_TRIALS,
            "num_seeds": arguments.seeds,
            "devices": DEVICES,
            "global_batch": GLOBAL_BATCH,
            "optuna": optuna.__version__,
            "reference": "best known over all runs of the model, not proven",
        }
    }
    for model in arguments.models.split(","):
        result[model] = measure(model, space, num_seeds=arguments.seeds)
        print(model, json.dumps(result[model]["regret"]), file=sys.stderr)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
