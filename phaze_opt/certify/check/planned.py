"""Models whose designs have full plans: their checkers, operators and slots, made once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.certify.certificate import CERTIFICATE_FILE
from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.certify.check.plans.grouped import Alternative
from phaze_opt.certify.check.problem_data import CheckedProblem
from phaze_opt.certify.check.report import refuse
from phaze_opt.estimate.protocol import CompilingEstimator, Estimates
from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import AcceleratorTable


@dataclass(frozen=True, slots=True)
class PlannedModels:
    """Every model of a problem with its plans.

    Attributes:
        problem: scenario, space and estimator.
        checks: plans of each model.
        operators: of all its sets, as the estimator likes them.
    """

    problem: CheckedProblem
    checks: tuple[CutCheck, ...]
    operators: tuple[Sequence[Operator], ...]
    _at_links: dict[float, "PlannedModels"] = field(default_factory=dict, repr=False)

    def at_links(self, link_bytes_per_s: float) -> "PlannedModels":
        """The models of chips with links of their own; see `CheckedProblem.at_links`."""
        problem = self.problem.at_links(link_bytes_per_s)
        if problem is self.problem:
            return self
        if link_bytes_per_s not in self._at_links:
            self._at_links[link_bytes_per_s] = planned_models(problem)
        return self._at_links[link_bytes_per_s]

    def slots(self, model: int) -> list[int]:
        """The model's columns of the multipliers."""
        return [number for number, slot in enumerate(self.problem.certificate.slots) if slot.model == model]

    def estimate(self, model: int, chips: AcceleratorTable) -> Estimates:
        """Latencies of all operators of a model on all chips."""
        return self.problem.estimator.estimate(self.operators[model], chips)

    def alternatives(self, model: int, chips: AcceleratorTable) -> list[Alternative]:
        """The same; where layers are fused all that units may run as, of which the least bounds."""
        estimates, grouped = self.estimate(model, chips), self.checks[model].even.grouped
        if grouped is None:
            return [((1.0, estimates),)]
        return grouped.alternatives(estimates, self.problem.estimator, chips)


def planned_models(problem: CheckedProblem) -> PlannedModels:
    """The plans of every model.

    Raises:
        CertificateError: a model has none, or the scenario has no plans or stages that are given.
    """
    scenario, estimator = problem.certificate.scenario, problem.estimator
    if scenario.plans is None:
        refuse("its scenario has no full plans", file=CERTIFICATE_FILE)
    if scenario.plans.blocks or scenario.plans.stage_recompute:
        refuse("its plans are of given stages, and a proof is over all of them", file=CERTIFICATE_FILE)
    checks = tuple(CutCheck(scenario, model, scenario.plans) for model in scenario.models)
    for check, model in zip(checks, scenario.models, strict=True):
        if not check.even.plans:
            refuse(f"its scenario admits no parallel plan of model {model.name:.60}", file=CERTIFICATE_FILE)
    operators: list[Sequence[Operator]] = [check.even.operators for check in checks]
    if isinstance(estimator, CompilingEstimator):
        operators = [estimator.compile(each) for each in operators]
    return PlannedModels(problem, checks, tuple(operators))
