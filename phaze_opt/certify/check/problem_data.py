"""The problem of a certificate: what is known of it before any row is looked at, and its throughput and goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import CERTIFICATE_FILE, Certificate, Slot
from phaze_opt.certify.check.report import refuse
from phaze_opt.certify.check.sharded import ModelData, build_model_data
from phaze_opt.errors import PluginError
from phaze_opt.estimate.protocol import CompilingEstimator, Estimates, Estimator
from phaze_opt.graph.flops import model_flops
from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.network import MAX_DEVICES
from phaze_opt.objective.goals import Goal, goal_directions
from phaze_opt.objective.problem_digest import problem_digest
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.plugins import PluginGroup, load_plugin

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model at one micro-batch, its operators as the estimator likes them, and its columns of the multipliers."""

    data: ModelData
    operators: Sequence[Operator]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckedProblem:
    """A problem whose digests are right.

    Attributes:
        certificate: the claim, scenario, space and goal.
        constants: of this package.
        estimator: the scenario's.
    """

    certificate: Certificate
    constants: Constants
    estimator: Estimator

    def models(self, micro_batch: int) -> tuple[ModelData, ...]:
        """All models at one micro-batch."""
        scenario = self.certificate.scenario
        return tuple(
            build_model_data(scenario, model, micro_batch=micro_batch) for model in range(len(scenario.models))
        )

    def prepare(self, models: Sequence[ModelData]) -> tuple[PreparedModel, ...]:
        """Operators ready for estimating."""
        return tuple(
            PreparedModel(data, self._compile(data.operators), slots_of(self.certificate.slots, model))
            for model, data in enumerate(models)
        )

    def estimate(self, model: PreparedModel, chips: AcceleratorTable) -> Estimates:
        """Latencies of all operators of a model on all chips."""
        return self.estimator.estimate(model.operators, chips)

    def _compile(self, operators: Sequence[Operator]) -> Sequence[Operator]:
        return self.estimator.compile(operators) if isinstance(self.estimator, CompilingEstimator) else operators


def slots_of(slots: Sequence[Slot], model: int) -> tuple[int, ...]:
    """Columns of the multipliers that belong to one model."""
    return tuple(number for number, slot in enumerate(slots) if slot.model == model)


def check_problem(certificate: Certificate) -> CheckedProblem:
    """Constants and digests are those of this package and of what the certificate states.

    Raises:
        CertificateError: one is not.
    """
    constants = load_constants()
    if certificate.constants_digest != constants.digest:
        refuse("constants_digest is not that of this package's constants", file=CERTIFICATE_FILE)
    if len(goal_directions(certificate.goal)) > 1:
        refuse(f"goal '{certificate.goal}' has no single best value", file=CERTIFICATE_FILE)
    scenario, space = certificate.scenario, certificate.space
    if scenario.cluster.num_devices > MAX_DEVICES:
        refuse(f"{scenario.cluster.num_devices} devices are more than {MAX_DEVICES}", file=CERTIFICATE_FILE)
    try:
        estimator = load_plugin(PluginGroup.ESTIMATORS, scenario.estimator)
    except PluginError as error:
        refuse(f"its estimator cannot be had: {error}", file=CERTIFICATE_FILE, cause=error)
    if not isinstance(estimator, Estimator):
        refuse(f"'{scenario.estimator}' is no estimator", file=CERTIFICATE_FILE)
    # What an estimator was fitted with counts in the digest, so it is loaded first.
    if certificate.problem_digest != problem_digest(scenario, constants, space=space, goal=certificate.goal):
        refuse("problem_digest is not that of its scenario, space, goal and constants", file=CERTIFICATE_FILE)
    return CheckedProblem(certificate, constants, estimator.with_constants(constants))


def throughput(scenario: Scenario, batch_s: Floats) -> Floats:
    """Samples/s of every row, shape (rows,); 0 where any model has no placement.

    Args:
        scenario: global batch, models and their mean.
        batch_s: of every model and row, shape (models, rows), s; infinite where nothing fits.
    """
    rates = scenario.global_batch / batch_s
    if len(rates) == 1:
        mean: Floats = rates[0]
        return mean
    is_feasible = np.isfinite(batch_s).all(axis=0)
    safe = np.where(is_feasible, rates, 1.0)
    return np.where(is_feasible, _mean(scenario, safe), 0.0)


def _mean(scenario: Scenario, rates: Floats) -> Floats:
    """The scenario's mean of rates, shape (models, rows) to (rows,).

    WORST is the lowest rate of model FLOPs, turned back into samples/s by the geometric mean of samples per FLOP.
    """
    if scenario.common is CommonMean.ARITHMETIC:
        mean: Floats = rates.mean(axis=0)
        return mean
    if scenario.common is CommonMean.GEOMETRIC:
        geometric: Floats = np.exp(np.log(rates).mean(axis=0))
        return geometric
    flops = np.array([model_flops(model, scenario.sequence_length_of(model)) for model in scenario.models])
    lowest: Floats = (rates * flops[:, None]).min(axis=0)
    return lowest * float(np.exp(-np.log(flops).mean()))


def goal_value(goal: Goal, rate: Floats, tdp_w: Floats, *, num_devices: int) -> Floats:
    """Samples/s, or samples/s/W of all devices given; shape (rows,)."""
    return rate / (tdp_w * num_devices) if goal is Goal.THROUGHPUT_PER_TDP else rate
