"""Claims of WHAM, Spotlight, DiGamma, Themis and LIBRA beside what this package finds; writes papers.json.

``searches``: by the ten seeds of ../studies/strategies-bert.json (the published form, 60 evaluations each, regret
against the true optimum), what each method's best design attains over another's, and what any method could.
``per_tdp``: the enumerated best throughput/TDP of ../samplers/optima.json over both TPUv4, in the published form.
``all_reduce`` and ``allocation``: of ../network/paper_gains.json, what Themis's orders gain for one all-reduce and what
the best allocation gains over an equal one. ``steps``: what these orders gain for whole training steps, by the best
plan each time, on Themis's six topologies of 1,024 devices: `tpu-v4` modelled as a die, global batch 4,096. The models
are the nearest that are here to Themis's ResNet-152, GNMT, DLRM and Transformer-1T.

Run: python experiments/claims/papers.py
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claims import DEVICES, EXPERIMENTS, GLOBAL_BATCH, MACHINES, MICRO_BATCHES, geometric, published_scenario

from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.reference_machines import evaluate_references
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.record.whole_file import replace_file

sys.path.append(str(EXPERIMENTS / "network"))
from paper_gains import LATENCY_S, THEMIS  # noqa: E402 -- of the directory above

FILE = Path(__file__).with_suffix(".json")
ROOT = EXPERIMENTS.parent
STRATEGIES = EXPERIMENTS / "studies" / "strategies-bert.json"
OPTIMA = EXPERIMENTS / "samplers" / "optima.json"
GAINS = EXPERIMENTS / "network" / "paper_gains.json"
PAIRS = (
    ("spotlight", "confuciux"), ("wham", "spotlight"), ("wham", "confuciux"), ("digamma", "tpe"),
    ("digamma", "random"), ("digamma", "cma-es"),
)  # fmt: skip
"""A method, and the one that it is held against."""
STEPS = {
    "resnet-50": str(ROOT / "studies" / "models" / "resnet50.json"),
    "gnmt-4": str(ROOT / "tests" / "traced_models" / "gnmt4.json"),
    "ncf": str(ROOT / "tests" / "traced_models" / "ncf.json"),
    "gpt3-175b": "gpt3-175b",
}
MACHINE = "tpu-v4"


def read(path: Path) -> Any:
    """A record."""
    return json.loads(path.read_text(encoding="utf-8"))


def searches() -> dict[str, Any]:
    """Mean shares of the optimum, and their ratios."""
    rows = {row["contender"]: row for row in read(STRATEGIES)["by_condition"]}
    share = {name: 1.0 - row["mean_regret"] for name, row in rows.items()}
    return {
        "share_of_optimum": share,
        "over": {f"{name} over {other}": share[name] / share[other] for name, other in PAIRS},
        "optimum_over": {name: 1.0 / share[name] for name in ("random", "tpe", "confuciux", "digamma")},
        "median_evaluations_to_1_percent": {
            name: row["median_evaluations_to"].get("0.01") for name, row in rows.items()
        },
    }


def per_tdp() -> dict[str, dict[str, float]]:
    """The best throughput/TDP of any design over that of each machine."""
    found = {}
    for model, optima in read(OPTIMA).items():
        machines = evaluate_references(
            published_scenario([model], "two-level"), MICRO_BATCHES, constants=load_constants()
        )
        found[model] = {name: optima["throughput_per_tdp"] / machines[name].throughput_per_tdp for name in MACHINES}
    return found


def network_file(folder: Path, name: str, chunking: str) -> Path:
    """A topology of Themis with one order of chunks."""
    lines = [f'name = "{name}"', f'chunking = "{chunking}"']
    for size, rate in THEMIS[name]:
        lines += ["[[dimensions]]", 'topology = "switch"', f"size = {size}", f"bandwidth_gb_per_s = {rate}"]
        lines += [f"latency_us = {1e6 * LATENCY_S:g}"]
    path = folder / f"{chunking}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def step(model: str, network: Path) -> tuple[float, float]:
    """Samples/s of the best plan, and the share of its step in which exchanges are exposed."""
    objective = Objective(
        make_scenario(model, devices=DEVICES, global_batch=GLOBAL_BATCH, network=str(network), silicon="die")
    )
    found = objective.evaluate_accelerator(load_architecture(MACHINE, constants=objective.constants))
    parts = found.breakdown.parts
    exposed = ("tensor_parallel_collectives_s", "gradient_all_reduce_s", "parameter_s", "boundary_transfers_s")
    return found.throughput_samples_per_s, sum(parts.get(name, 0.0) for name in exposed) / sum(parts.values())


def steps() -> dict[str, Any]:
    """Themis's order over the fixed one, by model and topology."""
    found: dict[str, Any] = {}
    for name, model in STEPS.items():
        rows = {}
        for topology in THEMIS:
            with tempfile.TemporaryDirectory() as folder:
                fixed, exposed = step(model, network_file(Path(folder), topology, "fixed"))
                themis, _ = step(model, network_file(Path(folder), topology, "themis"))
            rows[topology] = {"gain": themis / fixed, "exposed_share": exposed}
        gains = [row["gain"] for row in rows.values()]
        found[name] = {"topologies": rows, "mean_gain": geometric(gains), "largest_gain": max(gains)}
        print("steps", name, json.dumps(found[name]), flush=True)
    return found


def allocation(record: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Smallest and largest gain of the best allocation, by chunking and budget."""
    found: dict[str, list[float]] = {}
    for key, row in record.items():
        found.setdefault(key.split(", ", maxsplit=1)[1], []).append(row["gain"])
    return {key: {"least": min(gains), "most": max(gains)} for key, gains in found.items()}


def main() -> None:
    """Put all together and write."""
    gains = read(GAINS)
    record = {
        "_meta": {"command": "python experiments/claims/papers.py"},
        "searches": searches(),
        "per_tdp": per_tdp(),
        "all_reduce": {key: gains["themis"][key] for key in ("mean_gain", "largest_gain")},
        "allocation": allocation(gains["libra"]),
        "steps": steps(),
    }
    replace_file(FILE, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["searches"]["over"]), json.dumps(record["per_tdp"]), json.dumps(record["allocation"]))


if __name__ == "__main__":
    main()
