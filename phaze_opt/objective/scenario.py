"""A scenario: everything about an evaluation except the design itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import FittedEstimator
from phaze_opt.graph.build import sharding_obstacle
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.training import MAX_SAMPLES, AttentionForm, Optimizer, TrainingSpec

MAX_DEFAULT_SEQUENCE_LENGTH = 4096
"""A model that admits longer sequences is still evaluated at this length unless told otherwise."""


DEFAULT_ESTIMATOR = "analytic"
"""The estimator of designed chips with ideal operators; it has no constants beside the package's."""


class CommonMean(StrEnum):
    """How one design's throughputs on several models become one figure.

    ARITHMETIC is Phaze's; GEOMETRIC weighs ratios; WORST is the lowest rate of model FLOPs that any model reaches,
    turned back into samples/s by the geometric mean of the models' samples per FLOP.
    """

    ARITHMETIC = "arithmetic"
    GEOMETRIC = "geometric"
    WORST = "worst"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Workload, cluster, training choices and budgets; a design point completes it to an evaluation.

    Attributes:
        models: one, or several for a common design.
        cluster: devices and network.
        global_batch: samples an iteration, over all replicas.
        sequence_length: tokens; None means each model's own maximum, at most 4096.
        optimizer, attention, exclusivity, recompute, is_sequence_parallel: training and scheduling choices.
        tensor_parallel: degrees that placement may choose from; those a model cannot be sharded by are left out.
        common: the mean over models.
        max_area_mm2, max_tdp_w: budgets; None is no budget beyond the space's own.
        estimator: name of the estimator plug-in.
        schedule_gap: relative gap of a block of operators up to which its ILP is not solved; bounds and searches in
            compiled code still aim at closing it, and what remains is stated.
        schedule_nodes: branch-and-bound nodes that each such ILP may take. A number of nodes, not of seconds, so that
            the same scenario gives the same evaluation on every machine; 0 is no limit.
    """

    models: tuple[ModelSpec, ...]
    cluster: Cluster
    global_batch: int
    sequence_length: int | None = None
    optimizer: Optimizer = Optimizer.ADAM
    attention: AttentionForm = AttentionForm.FUSED
    exclusivity: Exclusivity = Exclusivity.CHIP
    recompute: RecomputePolicy = RecomputePolicy.AUTO
    is_sequence_parallel: bool = True
    tensor_parallel: tuple[int, ...] = (1, 2, 4, 8)
    common: CommonMean = CommonMean.ARITHMETIC
    max_area_mm2: float | None = None
    max_tdp_w: float | None = None
    estimator: str = DEFAULT_ESTIMATOR
    schedule_gap: float = 0.01
    schedule_nodes: int = 200

    def __post_init__(self) -> None:
        """Check that there is something to train and somewhere to train it."""
        if not self.models:
            message = "no model is given; name at least one"
            raise InputError(message, key="models")
        if not 1 <= self.global_batch <= MAX_SAMPLES:
            message = f"{self.global_batch} must be a positive integer up to {MAX_SAMPLES}"
            raise InputError(message, key="global_batch")
        if self.sequence_length is not None and self.sequence_length < 1:
            message = f"{self.sequence_length} must be a positive integer"
            raise InputError(message, key="sequence_length")
        if not 0 <= self.schedule_gap < 1:
            message = f"{self.schedule_gap} must be at least 0 and below 1"
            raise InputError(message, key="schedule_gap")
        if self.schedule_nodes < 0:
            message = f"{self.schedule_nodes} must not be negative"
            raise InputError(message, key="schedule_nodes")
        if not self.tensor_parallel or min(self.tensor_parallel) < 1:
            message = f"{self.tensor_parallel} must be positive integers, at least one"
            raise InputError(message, key="tensor_parallel")
        for model in self.models:
            self.sequence_length_of(model)
            self.tensor_degrees_of(model)

    def sequence_length_of(self, model: ModelSpec) -> int:
        """Tokens a sample of one model.

        Raises:
            InputError: the length asked for exceeds what the model's position embedding holds.
        """
        if self.sequence_length is None:
            return min(model.max_sequence_length, MAX_DEFAULT_SEQUENCE_LENGTH)
        if self.sequence_length > model.max_sequence_length:
            message = (
                f"{self.sequence_length} exceeds the {model.max_sequence_length} positions of {model.name}; "
                f"give at most {model.max_sequence_length}"
            )
            raise InputError(message, key="sequence_length")
        return self.sequence_length

    def tensor_degrees_of(self, model: ModelSpec) -> tuple[int, ...]:
        """Degrees that the cluster holds and the model can be sharded by.

        Raises:
            InputError: none of the degrees works; the message says what hinders the first.
        """
        fitting = [degree for degree in sorted(set(self.tensor_parallel)) if degree <= self.cluster.num_devices]
        degrees = tuple(degree for degree in fitting if sharding_obstacle(model, degree) is None)
        if not degrees:
            obstacle = sharding_obstacle(model, fitting[0]) if fitting else "every degree exceeds the devices given"
            message = f"none of {self.tensor_parallel} works for {model.name}: {obstacle}"
            raise InputError(message, key="tensor_parallel")
        return degrees

    def training_of(self, model: ModelSpec, micro_batch: int) -> TrainingSpec:
        """The training set-up of one model at one micro-batch."""
        return TrainingSpec(
            micro_batch=micro_batch,
            sequence_length=self.sequence_length_of(model),
            global_batch=self.global_batch,
            optimizer=self.optimizer,
            attention=self.attention,
            is_sequence_parallel=self.is_sequence_parallel,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the resolved scenario and the package's constants; equal on every machine for equal scenarios.

        Constants that the estimator was fitted with count too.

        Raises:
            PluginError: the estimator is unknown or fails to load.
        """
        values = asdict(self)
        for model in values["models"]:
            if not model["has_relu"]:
                del model["has_relu"]
        parts = [values, load_constants().digest, *_fitted_digests(self.estimator)]
        canonical = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()


def _fitted_digests(estimator: str) -> tuple[str, ...]:
    """Digest of the fitted constants of an estimator; none if it has none."""
    if estimator == DEFAULT_ESTIMATOR:
        return ()
    plugin = load_plugin(PluginGroup.ESTIMATORS, estimator)
    return (plugin.fitted_digest,) if isinstance(plugin, FittedEstimator) else ()
