"""Robust certificates over the space of dies: how long they take, and what survives.

For every model: `analyse_robustness` over the default space (826 mm2, 1,024 devices, batch 4,096, full plans, tolerance
0.1 %), with 16 samples of constants, caches cold.

Run: python experiments/silicon/robust.py [--model NAME] [--write]
"""

import argparse
import json
import platform
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from optima import JOBS, scenario_of, space_of

from phaze_opt import __version__
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.analyse import analyse_robustness
from phaze_opt.certify.robust.result import RobustOptions, RobustResult
from phaze_opt.record.progress import Progress

FILE = Path(__file__).with_suffix(".json")
MODELS = ("bert-large", "gpt3-175b")
SAMPLES = 16


def analyse(model: str, folder: Path) -> dict[str, Any]:
    """The analysis in figures, with the time at the end of each stage."""
    scenario = scenario_of(model, {})
    problem = CertifyProblem(scenario, space_of(scenario), scenario.constants_of())
    stages: dict[str, float] = {}

    def on_progress(moved: Progress) -> None:
        stages[moved.phase] = round(time.perf_counter() - started_s, 1)
        print(model, moved, flush=True)

    started_s = time.perf_counter()
    options = CertifyOptions(tolerance=1e-3, jobs=JOBS, directory=folder)
    result = analyse_robustness(problem, options, RobustOptions(num_samples=SAMPLES), on_progress=on_progress)
    return {"wall_s": round(time.perf_counter() - started_s, 1), "stages_until_s": stages, **described(result)}


def described(result: RobustResult) -> dict[str, Any]:
    """What is found."""
    minimax = result.minimax
    nominal = next(design for design in result.designs if design.index == result.optima[0].index)
    worlds = zip(result.worlds, result.optima, nominal.regrets, strict=True)
    return {
        "worlds": dict(Counter(world.kind.value for world in result.worlds)),
        "distinct_worlds": result.num_distinct_worlds,
        "evaluations": minimax.num_evaluations,
        "minimax": {
            "chip": None if minimax.point is None else minimax.point.inline(),
            "regret": minimax.regret,
            "regret_lower": minimax.regret_lower,
            "is_proved": minimax.is_proved,
            "worst_world": result.worlds[minimax.worst_world].name,
        },
        "optima": {
            world.name: {
                "chip": None if optimum.point is None else optimum.point.inline(),
                "throughput_samples_per_s": optimum.value,
                "gap": optimum.gap,
                "nominal_best_forgoes": regret,
            }
            for world, optimum, regret in worlds
        },
        "conclusions": {each.statement: f"{sum(each.holds)}/{len(each.holds)}" for each in result.conclusions},
    }


def main() -> None:
    """Analyse and print; with ``--write`` also into `FILE`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["models"] if FILE.exists() else {}
    for model in chosen.model or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            found[model] = analyse(model, Path(folder))
        machine = {"processor": platform.machine(), "python": platform.python_version(), "jobs": JOBS}
        written = {"version": __version__, "machine": machine, "models": found}
        print(json.dumps(written, indent=1))
        if chosen.write:
            FILE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
