"""Certified optima over the space of dies, what WHAM finds of them in 60 evaluations, and the chips beside them.

For every model and every limit: the optimum that `certify` proves (0.1 %, micro-batches 1 to 16, 1,024 devices, batch
4,096), the most memory that all its processes held together, what the checker says of it, the best of `wham` in 60
evaluations, and three chips as dies at 7 nm.

Run: python experiments/silicon/optima.py [--model NAME] [--limit NAME] [--write]
"""

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from phaze_opt import __version__
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import Scenario, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.space.search_space import SearchSpace

FILE = Path(__file__).with_suffix(".json")
MODELS = ("bert-large", "gpt2-xl", "llama-2-7b", "gpt3-175b")
LIMITS: dict[str, dict[str, float]] = {
    "826 mm2": {},
    "826 mm2, 350 W": {"max_tdp_w": 350.0},
    "574 mm2": {"max_area_mm2": 574.0},
}
CHIPS = {
    "Phaze's tpu-v4": "tpu-v4",
    "tpu-v4-published": "tpu-v4-published",
    "demo's optimum of the published form, with 16 MB": (
        "num_tc=32,num_vc=64,tc_width=128,tc_depth=64,vc_width=128,glb_mb=16,glb_bytes_per_cycle=6144,hbm_gb=80"
    ),
}
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


def prove(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """The certificate in figures."""
    problem = CertifyProblem(scenario, space_of(scenario), scenario.constants_of())
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
        "points": claim.num_points,
        "rows": claim.num_rows,
        "solved": claim.num_solved,
        "certificate_bytes": sum(file.stat().st_size for file in result.directory.iterdir()),
        "wall_s": wall_s,
        "peak_memory_bytes": memory.peak_bytes,
        "check_s": time.perf_counter() - started_s,
    }


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


def measure(model: str, names: Sequence[str]) -> dict[str, Any]:
    """Everything of one model under some limits."""
    limits = {}
    for name in names:
        given = LIMITS[name]
        scenario = scenario_of(model, given)
        with tempfile.TemporaryDirectory() as folder:
            certified = prove(scenario, Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            wham = search(scenario, Path(folder))
        wham["share_of_optimum"] = wham["throughput_samples_per_s"] / certified["throughput_samples_per_s"]
        limits[name] = {"certified": certified, "wham": wham}
        print(json.dumps({model: {name: limits[name]}}), flush=True)
    return {"limits": limits, "chips": beside(scenario_of(model, {}))}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--limit", choices=LIMITS, action="append")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    models = {model: measure(model, arguments.limit or tuple(LIMITS)) for model in arguments.model or MODELS}
    if arguments.write:
        old = json.loads(FILE.read_text(encoding="utf-8"))["models"] if FILE.exists() else {}
        for model, found in models.items():
            found["limits"] = old.get(model, {}).get("limits", {}) | found["limits"]
        machine = {"cpu": platform.machine(), "python": platform.python_version(), "version": __version__, "jobs": JOBS}
        FILE.write_text(json.dumps({"machine": machine, "models": old | models}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
