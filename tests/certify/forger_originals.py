"""Small problems whose certificates take a second to make: every kind of row is in them."""

from dataclasses import replace
from pathlib import Path

from phaze_opt.certify.certificate import CERTIFICATE_FILE
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace, phaze_area_budget_um2
from phaze_opt.units import GIBI, MEBI
from phaze_opt.workload.config import load_model

TYPED, COMMON, HOPELESS = "typed", "common", "hopeless"


def small_space() -> SearchSpace:
    """A few hundred points; the smallest HBM holds nothing, the next only pipelines of four stages and more."""
    axes = Axes(
        vc_width=(),
        num_tc=(1, 4, 16, 64),
        num_vc=(4, 16, 64),
        tc_width=(64, 128),
        tc_depth=(64, 128),
        glb_bytes=(8 * MEBI, 32 * MEBI),
        hbm_bytes=(16 * MEBI, 64 * MEBI, 8 * GIBI),
        micro_batch=(1, 4),
    )
    return SearchSpace("small", axes, area_budget_um2=phaze_area_budget_um2(), min_area_fraction=0.1)


def small_problem(kind: str) -> CertifyProblem:
    """TYPED: one model, budgets, type exclusivity; COMMON: two models, throughput per TDP; HOPELESS: nothing fits."""
    constants = load_constants()
    cluster = Cluster(16, load_network("two-level", num_devices=16, constants=constants))
    tiny = load_model("tiny")
    models = (tiny, replace(tiny, name="tinier", num_layers=2)) if kind == COMMON else (tiny,)
    scenario = Scenario(models=models, cluster=cluster, global_batch=64, tensor_parallel=(1, 2))
    if kind == TYPED:
        typed = replace(scenario, exclusivity=Exclusivity.TYPE, max_area_mm2=230.0, max_tdp_w=280.0)
        return CertifyProblem(typed, small_space(), constants)
    if kind == COMMON:
        common = replace(scenario, common=CommonMean.WORST)
        return CertifyProblem(common, small_space(), constants, Goal.THROUGHPUT_PER_TDP)
    axes = replace(small_space().axes, hbm_bytes=(MEBI // 4,))
    return CertifyProblem(scenario, replace(small_space(), axes=axes), constants)


def write_small_certificate(kind: str, directory: Path) -> Path:
    """Prove it; where the certificate lies."""
    options = CertifyOptions(tolerance=1e-3, num_best=4, directory=directory)
    result = certify(small_problem(kind), options)
    assert (result.directory / CERTIFICATE_FILE).is_file()
    return result.directory
