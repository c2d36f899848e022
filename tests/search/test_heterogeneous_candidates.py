"""From a search to a heterogeneous pipeline: candidates and the tables about it."""

from pathlib import Path

from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.jobs.search_answer import candidate_points, heterogeneous_of_search
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import Scenario
from phaze_opt.report.search import heterogeneous_contents
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.result import rank
from phaze_opt.search.run import run_search
from phaze_opt.testing.problems import tiny_space
from phaze_opt.workload.config import load_model


def test_stages_choose_among_the_best_designs_and_the_tops_of_layers(tmp_path: Path) -> None:
    cluster = Cluster(16, load_network("two-level", num_devices=16))
    scenario = Scenario((load_model("tiny"),), cluster, global_batch=64, tensor_parallel=(1, 2))
    result = run_search(
        SearchConfig(strategy="random", num_trials=16, work_dir=tmp_path), scenario=scenario, space=tiny_space()
    )
    points = candidate_points(result.trials, top_k=3)
    feasible = sorted((record for record in result.trials if record.values), key=rank)
    assert set(points) <= {record.point for record in feasible}
    assert points[0] == feasible[0].point
    chips = [(p.num_tc, p.num_vc, p.tc_width, p.tc_depth, p.glb_bytes, p.hbm_bytes) for p in points]
    assert len(chips) == len(set(chips)) >= 3
    found = heterogeneous_of_search(result, Objective(scenario), top_k=3)
    assert found is not None
    assert result.best is not None
    assert found.throughput_samples_per_s >= result.best.throughput_samples_per_s
    summary, stages = heterogeneous_contents(found)
    assert dict(summary.rows)["against the best one design"].startswith("+")
    assert all(len(row) == len(stages.columns) for row in stages.rows)
    assert stages.rows[0][0].startswith("1")


def test_nothing_feasible_gives_no_pipeline() -> None:
    assert candidate_points(()) == ()
