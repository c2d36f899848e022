"""Certified optima over the space of dies, what WHAM finds of them in 60 evaluations, and the chips beside them.

For every model and every limit: the optimum that `certify` proves (0.1 %, micro-batches 1 to 16, 1,024 devices, batch
4,096), the most memory that all its processes held together, what the checker says of it, the best of `wham` in 60
evaluations, and three chips as dies at 7 nm. Then the optima on the terms of `tpu-v4` modelled as a die: within its
area, its watts, and its area with its HBM rate and its buffer.

Run: python experiments/silicon/optima.py [--model NAME] [--part limits|chips|terms] [--write]
"""

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from phaze_opt import __version__
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.equal_terms import problems_on_terms_of
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.chip_limits import BindingLimit, binding_limits
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import Scenario, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIGA, bytes_to_mib

FILE = Path(__file__).with_suffix(".json")
MODELS = ("bert-large", "gpt2-xl", "llama-2-7b", "gpt3-175b")
LIMITS: dict[str, dict[str, float]] = {
    "826 mm2": {},
    "826 mm2, 350 W": {"max_tdp_w": 350.0},
    "574 mm2": {"max_area_mm2": 574.0},
}
CHIPS = {
    "phaze-tpu-v4": "phaze-tpu-v4",
    "modelled tpu-v4": "tpu-v4",
    "demo's optimum of the published form, with 16 MB": (
        "num_tc=32,num_vc=64,tc_width=128,tc_depth=64,vc_width=128,glb_mb=16,glb_bytes_per_cycle=6144,hbm_gb=80"
    ),
}
MACHINE = "tpu-v4"
TRIALS, JOBS = 60, 2


class MemoryWatch(threading.Thread):
    """Watches what this process and all below it hold, shared pages by their share (PSS), five times a second."""

    def __init__(self) -> None:
        """Nothing is held yet."""
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._is_over = threading.Event()

    def run(self) -> None:
        """Look until told to end."""
        while not self._is_over.wait(0.2):
            self.peak_bytes = max(self.peak_bytes, self._held_bytes())

    def __enter__(self) -> "MemoryWatch":
        """Begin."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._is_over.set()
        self.join()

    @staticmethod
    def _held_bytes() -> int:
        held, waiting = 0, [os.getpid()]
        while waiting:
            process = Path("/proc", str(waiting.pop()))
            with suppress(OSError):  # it has ended
                rollup = (process / "smaps_rollup").read_text(encoding="ascii")
                held += 1024 * int(rollup.split("Pss:")[1].split()[0])
                for task in (process / "task").iterdir():
                    waiting += map(int, (task / "children").read_text(encoding="ascii").split())
        return held


def scenario_of(model: str, limits: dict[str, float]) -> Scenario:
    """The job, over dies at 7 nm."""
    return make_scenario(model, devices=1024, global_batch=4096, silicon="die", **limits)


def space_of(scenario: Scenario) -> SearchSpace:
    """The default space, within the scenario's area."""
    space = build_space(SpaceOptions(), silicon=scenario.silicon)
    return space if scenario.max_area_mm2 is None else space.restrict(max_area_mm2=scenario.max_area_mm2)


def problem_of(scenario: Scenario) -> CertifyProblem:
    """The proof of a job."""
    return CertifyProblem(scenario, space_of(scenario), scenario.constants_of())


def prove(problem: CertifyProblem, folder: Path) -> dict[str, Any]:
    """The certificate in figures."""
    started_s = time.perf_counter()
    with MemoryWatch() as memory:
        result = certify(problem, CertifyOptions(tolerance=1e-3, jobs=JOBS, directory=folder))
    wall_s, claim, best = time.perf_counter() - started_s, result.certificate.claim, result.best[0].evaluation
    started_s = time.perf_counter()
    try:
        is_valid = check_certificate(result.directory).claim == claim
    except CertificateError as error:
        is_valid = str(error)
    return {
        "is_proved": claim.is_proved,
        "is_valid": is_valid,
        "throughput_samples_per_s": claim.value,
        "gap": claim.gap,
        "chip": claim.point.inline(),
        "area_mm2": best.area_mm2,
        "power_w": best.tdp_w,
        "held_by": {limit.name: list(limit.keys) for limit in limits_of(problem, claim.point)},
        "points": claim.num_points,
        "rows": claim.num_rows,
        "solved": claim.num_solved,
        "certificate_bytes": sum(file.stat().st_size for file in result.directory.iterdir()),
        "wall_s": wall_s,
        "peak_memory_bytes": memory.peak_bytes,
        "check_s": time.perf_counter() - started_s,
    }


def limits_of(problem: CertifyProblem, point: DesignPoint) -> tuple[BindingLimit, ...]:
    """What one step more of each parameter would break."""
    scenario = problem.scenario
    return binding_limits(
        point,
        problem.space,
        scenario.cluster.network,
        problem.constants,
        max_area_mm2=scenario.max_area_mm2,
        max_tdp_w=scenario.max_tdp_w,
    )


def search(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """What WHAM finds."""
    started_s = time.perf_counter()
    config = SearchConfig(strategy="wham", num_trials=TRIALS, work_dir=folder)
    result = run_search(config, scenario=scenario, space=space_of(scenario))
    best = result.best
    return {
        "throughput_samples_per_s": best.throughput_samples_per_s,
        "evaluations": result.distinct_evaluations,
        "wall_s": time.perf_counter() - started_s,
    }


def beside(scenario: Scenario) -> dict[str, dict[str, float]]:
    """Throughput, area and power of chips beside the optima."""
    objective, found = Objective(scenario), {}
    for name, text in CHIPS.items():
        evaluation = objective.evaluate_accelerator(load_architecture(text, constants=objective.constants))
        found[name] = {
            "throughput_samples_per_s": evaluation.throughput_samples_per_s,
            "area_mm2": evaluation.area_mm2,
            "power_w": evaluation.tdp_w,
        }
    return found


def on_terms(model: str) -> dict[str, Any]:
    """Optima on the terms of one machine, and their throughput over it."""
    problem = problem_of(scenario_of(model, {}))
    objective = Objective(problem.scenario)
    machine = load_architecture(MACHINE, constants=problem.constants)
    evaluation = objective.evaluate_accelerator(machine)
    found: dict[str, Any] = {
        "machine": MACHINE,
        "throughput_samples_per_s": evaluation.throughput_samples_per_s,
        "area_mm2": evaluation.area_mm2,
        "power_w": evaluation.tdp_w,
        "gb_per_s": machine.hbm_bandwidth_bytes_per_s / GIGA,
        "glb_mib": bytes_to_mib(machine.glb_bytes),
    }
    for each in problems_on_terms_of(problem, machine).problems:
        with tempfile.TemporaryDirectory() as folder:
            certified = prove(each.problem, Path(folder))
        ratio = certified["throughput_samples_per_s"] / evaluation.throughput_samples_per_s
        found[each.terms.value] = {"ratio": ratio, **certified}
        print(json.dumps({model: {each.terms.value: found[each.terms.value]}}), flush=True)
    return found


def within_limits(model: str) -> dict[str, Any]:
    """Optima and what WHAM finds of them, for each limit."""
    limits = {}
    for name, given in LIMITS.items():
        scenario = scenario_of(model, given)
        with tempfile.TemporaryDirectory() as folder:
            certified = prove(problem_of(scenario), Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            wham = search(scenario, Path(folder))
        wham["share_of_optimum"] = wham["throughput_samples_per_s"] / certified["throughput_samples_per_s"]
        limits[name] = {"certified": certified, "wham": wham}
        print(json.dumps({model: {name: limits[name]}}), flush=True)
    return limits


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "limits": within_limits,
    "chips": lambda model: beside(scenario_of(model, {})),
    "terms": on_terms,
}
"""What is measured of a model."""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    for model in arguments.model or MODELS:
        measured = {part: PARTS[part](model) for part in arguments.part or PARTS}
        print(json.dumps({model: measured}), flush=True)
        if arguments.write:
            write(model, measured)


def write(model: str, measured: dict[str, Any]) -> None:
    """Put what was measured of a model into the file; its other parts stay."""
    models = json.loads(FILE.read_text(encoding="utf-8"))["models"] if FILE.exists() else {}
    models[model] = models.get(model, {}) | measured
    machine = {"cpu": platform.machine(), "python": platform.python_version(), "version": __version__, "jobs": JOBS}
    FILE.write_text(json.dumps({"machine": machine, "models": models}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
