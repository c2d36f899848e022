import pytest

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.events import TrialFinished
from phaze_opt.search.result import SearchResult, Trial
from phaze_opt.testing.events import example_evaluation, example_search
from phaze_opt.units import GIBI, MEBI

NUM_TRIALS = 40


@pytest.fixture(scope="session")
def trials() -> tuple[Trial[Evaluation], ...]:
    return tuple(event.trial for event in example_search(NUM_TRIALS) if isinstance(event, TrialFinished))


@pytest.fixture(scope="session")
def result(trials: tuple[Trial[Evaluation], ...]) -> SearchResult:
    finished = example_search(NUM_TRIALS)[-1]
    return SearchResult(
        search_id="tpe-0123456789abcdef",
        best=finished.best,
        best_number=finished.best_number,
        pareto_front=(),
        evaluations=NUM_TRIALS,
        distinct_evaluations=NUM_TRIALS,
        probes=0,
        ilp_solves=3,
        placements=120,
        pruned=0,
        wall_s=1.8,
        overhead_s=0.1,
        is_interrupted=False,
        is_exhausted=False,
        trials=trials,
    )


@pytest.fixture(scope="session")
def references() -> dict[str, Evaluation]:
    """Made-up figures of the two reference machines."""
    lean = DesignPoint(8, 2, 128, 128, 128, 128 * MEBI, 32 * GIBI, 8)
    rich = DesignPoint(8, 16, 128, 128, 128, 128 * MEBI, 32 * GIBI, 8)
    return {"phaze-tpu-v4": example_evaluation(lean), "tpu-v4": example_evaluation(rich)}
