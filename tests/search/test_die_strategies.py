"""Every strategy searches a space of dies: its proposals are dies that could be built, and it ends with the space."""

from dataclasses import replace

import pytest

from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plugins import PluginGroup, list_plugins
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import MEBI
from phaze_opt.workload.config import load_model

NETWORK = load_network("two-level", num_devices=8)
SILICON = silicon_of(7, NETWORK)
WIDE = replace(
    load_model("tiny"), name="wide", hidden_size=1024, num_heads=16, num_kv_heads=16, ffn_size=4096, embedding_size=1024
)
SCENARIO = Scenario(
    models=(WIDE,), cluster=Cluster(8, NETWORK), global_batch=32, sequence_length=256, tensor_parallel=(1, 2),
    silicon=SILICON,
)  # fmt: skip
AXES = Axes(
    num_tc=(8, 12), num_vc=(8, 16), tc_width=(64, 128), tc_depth=(128,), vc_width=(),
    glb_bytes=(4 * MEBI, 16 * MEBI), glb_bytes_per_cycle=(2048, 4096, 6144), hbm_bytes=(),
    hbm_stacks=(2, 6), micro_batch=(1, 2),
)  # fmt: skip
SPACE = SearchSpace("dies", AXES, area_budget_um2=560e6, min_area_fraction=0.0, silicon=SILICON)
STRATEGIES = [entry.name for entry in list_plugins(PluginGroup.STRATEGIES) if entry.name != "gp"]
"""All but the one that needs torch."""


@pytest.fixture(name="best", scope="module")
def _best() -> float:
    objective = Objective(SCENARIO)
    return max(objective.evaluate(point).throughput_samples_per_s for point in SPACE.points())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_proposals_are_dies(tmp_path, best, strategy):
    config = SearchConfig(strategy=strategy, num_trials=8, work_dir=tmp_path, num_starts=1)
    result = run_search(config, scenario=SCENARIO, space=SPACE)
    assert result.trials
    assert all(SPACE.contains(trial.point) for trial in result.trials)
    assert 0.0 < result.best.throughput_samples_per_s <= best * (1.0 + 1e-9)


@pytest.mark.parametrize("max_tdp_w", [None, 190.0])
def test_wham_finds_the_best_die(tmp_path, max_tdp_w):
    scenario = replace(SCENARIO, max_tdp_w=max_tdp_w)
    objective = Objective(scenario)
    best = max(objective.evaluate(point).throughput_samples_per_s for point in SPACE.points())
    config = SearchConfig(strategy="wham", num_trials=12, work_dir=tmp_path)
    found = run_search(config, scenario=scenario, space=SPACE).best
    assert found.throughput_samples_per_s == pytest.approx(best, rel=1e-9)
