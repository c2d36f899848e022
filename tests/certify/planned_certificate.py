"""A certificate of a few designs with full plans, as the prover writes it."""

from pathlib import Path

from small_problems import small_model, small_scenario, small_space

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.cost.stacks import load_stack
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.scenario import Scenario
from phaze_opt.units import gib_to_bytes, mib_to_bytes
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import PlanChoices

PLANS = PlanChoices(tensor=(1, 2), interleave=(), micro_batch=(1, 2), zero=(0, 1))
SPACE = small_space(
    num_tc=(8, 16, 32),
    num_vc=(16,),
    tc_width=(32, 64),
    tc_depth=(32, 64),
    micro_batch=(1,),
    hbm_bytes=(mib_to_bytes(1), gib_to_bytes(32)),
)
"""Twenty-four designs, half of them without the memory for any plan."""


def planned_scenario(software: str, *models: ModelSpec, **changes: object) -> Scenario:
    """A small chain on a few devices, or others."""
    stack = load_stack(software, load_fitted())
    defaults: dict[str, object] = {"devices": 8, "global_batch": 16, "plans": PLANS, "stack": stack}
    return small_scenario(*(models or (small_model(),)), **(defaults | changes))


def write_planned_certificate(software: str, directory: Path, *models: ModelSpec, **changes: object) -> Path:
    """Every file of it."""
    problem = CertifyProblem(planned_scenario(software, *models, **changes), SPACE, load_constants())
    return certify(problem, CertifyOptions(num_best=1, directory=directory)).directory
