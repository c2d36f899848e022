"""Small problems whose certificates take a second to make: every kind of row is in them."""

from dataclasses import replace
from pathlib import Path

from small_problems import small_model, small_problem, small_scenario

from phaze_opt.certify.certificate import CERTIFICATE_FILE
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.axes import Axes
from phaze_opt.space.known_spaces import phaze_area_budget_um2
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI

TYPED, COMMON, HOPELESS = "typed", "common", "hopeless"


SPACE = SearchSpace(
    "small",
    Axes(
        num_tc=(1, 4, 16, 64),
        num_vc=(4, 16, 64),
        tc_width=(64, 128),
        vc_width=(),
        tc_depth=(64, 128),
        glb_bytes=(8 * MEBI, 32 * MEBI),
        hbm_bytes=(16 * MEBI, 64 * MEBI, 8 * GIBI),
        micro_batch=(1, 4),
    ),
    area_budget_um2=phaze_area_budget_um2(),
    min_area_fraction=0.1,
)
"""A few hundred points; the smallest HBM holds nothing, the next only pipelines of four stages and more."""


def original(kind: str) -> CertifyProblem:
    """TYPED: one model, budgets, type exclusivity; COMMON: two models, throughput per TDP; HOPELESS: nothing fits."""
    same = {"devices": 16, "global_batch": 64, "sequence_length": None, "schedule_gap": 0.01}
    if kind == TYPED:
        typed = small_scenario(exclusivity=Exclusivity.TYPE, max_area_mm2=230.0, max_tdp_w=280.0, **same)
        return small_problem(typed, SPACE)
    if kind == COMMON:
        common = small_scenario(small_model(), small_model("tinier", num_layers=2), common=CommonMean.WORST, **same)
        return small_problem(common, SPACE, goal=Goal.THROUGHPUT_PER_TDP)
    return small_problem(small_scenario(**same), replace(SPACE, axes=replace(SPACE.axes, hbm_bytes=(MEBI // 4,))))


def write_small_certificate(kind: str, directory: Path) -> Path:
    """Prove it; where the certificate lies."""
    options = CertifyOptions(tolerance=1e-3, num_best=4, directory=directory)
    result = certify(original(kind), options)
    assert (result.directory / CERTIFICATE_FILE).is_file()
    return result.directory
