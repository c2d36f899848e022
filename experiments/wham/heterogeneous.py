"""What one design for every stage gains over one design for all, among the designs of one search by `wham`.

python experiments/wham/heterogeneous.py > experiments/wham/heterogeneous.json
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from truth import joined_space, scenario_of

from phaze_opt.jobs.search_answer import heterogeneous_of_search
from phaze_opt.objective.evaluate import Objective
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search

CASES = (("gpt3-175b", "phaze"), ("gpt3-175b", "two-level"), ("llama-2-7b", "phaze"), ("bert-large", "phaze"))


def main() -> None:
    """Print one row a case."""
    rows = []
    for model, network in CASES:
        scenario = scenario_of(model, network)
        with tempfile.TemporaryDirectory() as folder:
            config = SearchConfig(strategy="wham", num_starts=1, work_dir=Path(folder))
            result = run_search(config, scenario=scenario, space=joined_space())
        started = time.perf_counter()
        found = heterogeneous_of_search(result, Objective(scenario))
        assert found is not None
        rows.append(
            {
                "model": model,
                "network": network,
                "stages": len(found.stages),
                "designs": found.num_designs,
                "candidates": found.num_candidates,
                "gain": found.gain,
                "gain_per_tdp": found.gain_per_tdp,
                "mean_area_mm2": found.mean_area_mm2,
                "largest_area_mm2": found.largest_area_mm2,
                "seconds": round(time.perf_counter() - started, 2),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    meta = {"version": 1, "date": time.strftime("%Y-%m-%d"), "goal": "throughput", "num_trials": 60, "seed": 0}
    print(json.dumps({"_meta": meta, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
