"""True optima of both objectives for the models of `measure.py`; writes optima.json beside this file, model by model.

    python experiments/samplers/optima.py --work-dir DIR

The whole space is bounded, and evaluated where bounds leave a doubt; DIR keeps what is finished.
"""

import argparse
import json
from pathlib import Path

from measure import DEVICES, GLOBAL_BATCH, GOALS, MODELS

from phaze_opt import Cluster, Objective, Scenario, load_model, load_network
from phaze_opt.hardware.constants import load_constants
from phaze_opt.search.objective_bounder import ObjectiveBounder
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.study.config import Condition, Setting, StudyWorkload
from phaze_opt.study.truth import find_truth

OUT = Path(__file__).with_name("optima.json")


def optima_of(model: str, work_dir: Path) -> dict[str, float]:
    """The best value of the whole space by objective."""
    cluster = Cluster(DEVICES, load_network("two-level", num_devices=DEVICES))
    scenario = Scenario((load_model(model),), cluster, GLOBAL_BATCH)
    objective = Objective(scenario)
    bounder = ObjectiveBounder(objective)
    found = {}
    for goal in GOALS:
        setting, workload = Setting(goal=goal), StudyWorkload(model, (model,))
        condition = Condition(setting, workload, scenario, phaze_space(), load_constants())
        truth = find_truth(condition, cache_dir=work_dir, objective=objective, bounder=bounder)
        assert truth is not None, f"{model}: nothing fits"
        found[goal.value] = truth.value
    return found


def main() -> None:
    """Write the optima of every model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work-dir", type=Path, required=True)
    arguments = parser.parse_args()
    found = {}
    for model in MODELS:
        found[model] = optima_of(model, arguments.work_dir)
        print(model, found[model], flush=True)
        OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
