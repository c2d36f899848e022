"""What remains of the papers' claims: over Phaze's TPUv4 and the published one, in the published form and as dies.

``published`` and ``published-common``: the proofs of ../certified/zoo.json (352,320 points, tolerance 0.1 %), the
machines beside them, and one design for all eight models by certified geometric mean, on 1,024 devices, batch 4,096.
``die-...``: proofs over dies at 7 nm of at most the area that either TPUv4 has as a die, the best of these for all
models, and wham in 60 evaluations of the space at the area of the TPUv4 that was built. ``search``: what
../studies/wham-vs-spotlight.json recorded.
A part given anew replaces what claims.json holds of it; tables.py then writes the tables of docs/claims.md.

Run: python experiments/claims/claims.py [PART ...]
"""

import argparse
import json
import math
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze_opt import __version__
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.reference_machines import EXPERT_PREFIX, evaluate_references
from phaze_opt.objective.scenario import Scenario, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions
from phaze_opt.record.whole_file import replace_file
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.space.search_space import SearchSpace

FILE = Path(__file__).with_suffix(".json")
EXPERIMENTS = FILE.parents[1]
ZOO = EXPERIMENTS / "certified" / "zoo.json"
STUDY = EXPERIMENTS / "studies" / "wham-vs-spotlight.json"
NETWORKS = {"flat": "phaze", "two-level": "two-level"}
"""Phaze's setting, one ring of 4 GiB/s links, and the package's own."""
MODELS = (
    "bert-large", "gpt2-xl", "gpt3-175b", "llama-2-7b", "megatron-bert", "megatron-gpt2-54", "megatron-gpt2-72",
    "opt-1.3b",
)  # fmt: skip
"""Those that Phaze has hand placements of."""
OF_DIES = ("bert-large", "gpt2-xl", "llama-2-7b", "gpt3-175b")
MODELS_OF_STUDY = ("bert-large", "gpt2-xl", "llama-2-7b")
MACHINES = ("phaze-tpu-v4", "modelled tpu-v4")
BASES = (*MACHINES, f"{EXPERT_PREFIX}phaze-tpu-v4")
"""What the published form's designs are held against: machines at their best placements, and hand placements."""
MICRO_BATCHES = (1, 2, 4, 8)
TOLERANCE, JOBS, TRIALS = 1e-3, 2, 60
DEVICES, GLOBAL_BATCH = 1024, 4096


def geometric(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def over(rates: Mapping[str, float], base: Mapping[str, float]) -> dict[str, float]:
    """Ratios by model, and their geometric mean as ``mean``."""
    ratios = {model: rates[model] / base[model] for model in rates if model in base}
    return {**ratios, "mean": geometric(list(ratios.values()))}


def prove(scenario: Scenario, space: SearchSpace) -> dict[str, Any]:
    """The certified optimum of a space."""
    problem = CertifyProblem(scenario, space, scenario.constants_of())
    with tempfile.TemporaryDirectory() as folder:
        options = CertifyOptions(tolerance=TOLERANCE, jobs=JOBS, directory=Path(folder))
        result = certify(problem, options)
        claim, best = result.certificate.claim, result.best[0].evaluation
    return {
        "throughput_samples_per_s": claim.value,
        "gap": claim.gap,
        "is_proved": claim.is_proved,
        "chip": claim.point.inline(),
        "micro_batch": claim.point.micro_batch,
        "area_mm2": best.area_mm2,
        "power_w": best.tdp_w,
    }


def published_scenario(models: Sequence[str], network: str) -> Scenario:
    """The published form's job; of several models by their geometric mean."""
    return make_scenario(
        list(models), devices=DEVICES, global_batch=GLOBAL_BATCH, network=network, common="geometric",
        published_form="phaze",
    )  # fmt: skip


def best_rate(scenario: Scenario, chip: Accelerator) -> float:
    """Samples/s at the best micro-batch."""
    objective = Objective(scenario)
    found = [objective.evaluate_accelerator(chip, size) for size in MICRO_BATCHES]
    return max(each.throughput_samples_per_s for each in found)


def published(network: str) -> dict[str, Any]:
    """One network: every model's own certified design over the machines and the hand placements."""
    zoo = json.loads(ZOO.read_text(encoding="utf-8"))["results"]
    own, machines = {}, {}
    for model in MODELS:
        certified = zoo[f"{network}.{model}"]["certificate"]
        assert certified["is_proved"]
        own[model] = certified["samples_per_s"]
        found = evaluate_references(
            published_scenario([model], NETWORKS[network]), MICRO_BATCHES, constants=load_constants()
        )
        machines[model] = {each: evaluation.throughput_samples_per_s for each, evaluation in found.items()}
    bases = {each: {model: machines[model][each] for model in MODELS} for each in BASES}
    return {"own": own, "bases": bases, "own_over": {each: over(own, base) for each, base in bases.items()}}


def published_common(network: str) -> dict[str, Any]:
    """One design for all eight models, at the micro-batch that suits each; the certified mean has one for all."""
    known, name = recorded()["published"][network], NETWORKS[network]
    common = prove(published_scenario(MODELS, name), phaze_space())
    chip = load_architecture(common["chip"])
    rates = {model: best_rate(published_scenario([model], name), chip) for model in MODELS}
    return {
        **common,
        "by_model": rates,
        "over": {each: over(rates, base) for each, base in known["bases"].items()},
        "price": 1.0 - over(rates, known["own"])["mean"],
    }


def die_scenario(models: Sequence[str], **limits: float) -> Scenario:
    """The job over dies at 7 nm, full plans, the package's own network."""
    return make_scenario(
        list(models), devices=DEVICES, global_batch=GLOBAL_BATCH, common="geometric", silicon="die", **limits
    )


def die_space(scenario: Scenario) -> SearchSpace:
    """The default space, within the scenario's area."""
    assert scenario.max_area_mm2 is not None
    return build_space(SpaceOptions(), silicon=scenario.silicon).restrict(max_area_mm2=scenario.max_area_mm2)


def machine_die(machine: str) -> dict[str, Any]:
    """A machine as a die: its area, power, and samples/s of every model."""
    found = {}
    for model in OF_DIES:
        objective = Objective(die_scenario([model]))
        found[model] = objective.evaluate_accelerator(load_architecture(machine, constants=objective.constants))
    first = found[OF_DIES[0]]
    rates = {model: each.throughput_samples_per_s for model, each in found.items()}
    return {"area_mm2": first.area_mm2, "power_w": first.tdp_w, "rates": rates}


def die_own(machine: str, model: str) -> dict[str, Any]:
    """A model's own die of at most a machine's area."""
    base = machine_die(machine)
    scenario = die_scenario([model], max_area_mm2=base["area_mm2"])
    found = prove(scenario, die_space(scenario))
    return {**found, "over": found["throughput_samples_per_s"] / base["rates"][model]}


def die_wham(machine: str, model: str) -> dict[str, float]:
    """Best of wham in so many evaluations of the same space."""
    base = machine_die(machine)
    scenario = die_scenario([model], max_area_mm2=base["area_mm2"])
    with tempfile.TemporaryDirectory() as folder:
        config = SearchConfig(strategy="wham", num_trials=TRIALS, work_dir=Path(folder))
        best = run_search(config, scenario=scenario, space=die_space(scenario)).best
    rate = best.throughput_samples_per_s
    return {"throughput_samples_per_s": rate, "over": rate / base["rates"][model]}


def die_shared(machine: str) -> dict[str, Any]:
    """The best for all models of the dies that are certified as one model's own: exact among these, no proof."""
    base, own = machine_die(machine), recorded()["die-own"][machine]
    candidates = {}
    for name, each in own.items():
        rates = {}
        for model in OF_DIES:
            objective = Objective(die_scenario([model]))
            chip = load_architecture(each["chip"], constants=objective.constants)
            rates[model] = objective.evaluate_accelerator(chip).throughput_samples_per_s
        candidates[name] = rates
    means = {name: over(rates, base["rates"])["mean"] for name, rates in candidates.items()}
    best = max(sorted(means), key=means.__getitem__)
    own_rates = {model: each["throughput_samples_per_s"] for model, each in own.items()}
    price = 1.0 - over(candidates[best], own_rates)["mean"]
    return {"own_of": best, "over": over(candidates[best], base["rates"]), "price": price}


def search(model: str) -> dict[str, Any]:
    """WHAM and Spotlight in the published form: regret after 200 evaluations, evaluations until within 1 %."""
    study = json.loads(STUDY.read_text(encoding="utf-8"))
    return {
        row["contender"]: {
            "mean_regret": row["mean_regret"],
            "median_evaluations_to_1_percent": row["median_evaluations_to"]["0.01"],
        }
        for row in study["by_condition"]
        if row["condition"] == f"default.{model}"
    }


def recorded() -> dict[str, Any]:
    """What the record holds."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def put(part: str, key: str, figures: Any) -> None:
    """Keep one figure of a part as soon as it is there."""
    record = recorded()
    record["machine"] = {
        "cpu": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "version": __version__,
    }
    where = record.setdefault(part, {})
    *outer, last = key.split("/")
    for name in outer:
        where = where.setdefault(name, {})
    where[last] = figures
    replace_file(FILE, json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(part, key, flush=True)


def main() -> None:
    """Measure the parts asked for, in the order in which they build on one another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; all unless given")
    wanted = parser.parse_args().part or list(PARTS)
    for part in PARTS:
        if part in wanted:
            of_part, keys = PARTS[part]
            for key in keys:
                put(part, key, of_part(*key.split("/")))


_OF_DIES = tuple(f"{machine}/{model}" for machine in reversed(MACHINES) for model in OF_DIES)
PARTS: Mapping[str, tuple[Callable[..., Any], Sequence[str]]] = {
    "search": (search, MODELS_OF_STUDY),
    "published": (published, tuple(NETWORKS)),
    "die-machines": (machine_die, MACHINES),
    "die-own": (die_own, _OF_DIES),
    "die-shared": (die_shared, MACHINES),
    "published-common": (published_common, tuple(NETWORKS)),
    "die-wham": (die_wham, tuple(f"modelled tpu-v4/{model}" for model in OF_DIES)),
}
"""What is measured, by what, and for which networks, machines or models."""


if __name__ == "__main__":
    main()
