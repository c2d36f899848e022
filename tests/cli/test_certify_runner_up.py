"""The runner-up of a proof, also where the best designs of its table all tie."""

from dataclasses import replace

from kits.toy_proof import ToyProver

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.cli import certify_run
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.search_space import load_space
from phaze_opt.workload.config import load_model

SPACE = """\
area_budget_mm2 = 279
min_area_fraction = 0.0
[axes]
num_tc = [4, 16]
num_vc = [16]
tc_width = [64, 128]
tc_depth = [64]
glb_mb = [8, 16]
hbm_gb = [80]
micro_batch = [1, 4]
"""


def small_problem(tmp_path):
    constants = load_constants()
    (tmp_path / "space.toml").write_text(SPACE)
    cluster = Cluster(16, load_network("two-level", num_devices=16, constants=constants))
    scenario = Scenario((load_model("tiny"),), cluster, 64)
    return CertifyProblem(scenario, load_space(tmp_path / "space.toml"), constants)


def test_the_runner_up_is_found_beyond_designs_that_tie(tmp_path):
    """As if the table ended before it: the same one is found by evaluating from the highest bound down."""
    problem = small_problem(tmp_path)
    result = ToyProver(looseness=0.01)(problem, CertifyOptions(directory=tmp_path))
    num_tied = sum(design.rank == 1 for design in result.best)
    whole = certify_run.find_runner_up(result, problem)
    cut = certify_run.find_runner_up(replace(result, best=result.best[:num_tied]), problem)
    assert cut.is_certain
    assert cut.design.value == whole.design.value
    assert cut.design.rank == whole.design.rank == num_tied + 1
    assert cut.falls_short == whole.falls_short
    assert certify_run.find_runner_up(replace(result, best=()), problem) is None


def test_a_search_for_the_runner_up_that_is_cut_short_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(certify_run, "MAX_EVALUATIONS", 1)
    problem = small_problem(tmp_path)
    result = ToyProver(looseness=0.9)(problem, CertifyOptions(directory=tmp_path))
    cut = certify_run.find_runner_up(replace(result, best=result.best[:2]), problem)
    assert cut is None or not cut.is_certain
