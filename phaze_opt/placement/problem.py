"""The placement problem and its result (semantics 5)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Cluster
from phaze_opt.record.arrays import Floats
from phaze_opt.record.plain_data import omit_default
from phaze_opt.workload.plan import ParallelPlan


class RecomputePolicy(StrEnum):
    """Activation recomputation: per stage only where the stash does not fit, never, or everywhere."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


class PlacementStatus(StrEnum):
    """A placement is proven optimal, or none fits; FEASIBLE only for a given one that `evaluate_placement` priced."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    FEASIBLE = "feasible"


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Costs of the layers of a chain for one tensor-parallel degree; every array has shape (num_layers,).

    All are per device; times and activations are of one micro-batch.

    Attributes:
        tensor_parallel: degree t.
        forward_s: forward time with its tensor-parallel collectives, s.
        backward_s: backward time with its tensor-parallel collectives, s.
        update_s: optimizer update, once a batch, s.
        state_bytes: weight + gradient + optimizer state, with compressed copies of sparse weights, bytes.
        gradient_bytes: payload of the data-parallel gradient all-reduce, bytes.
        stash_bytes: activations kept for backward without recomputation, bytes.
        input_bytes: activations kept under recomputation (the layer's input), bytes.
        working_set_bytes: activations live while one recomputed layer runs backward, bytes.
        output_bytes: boundary transfer to the next layer, one direction, bytes.
        tied_state_bytes: state of the last layer's copy of the first layer's weights; counted once when both are in
            one stage (scalar, bytes).
        tied_gradient_bytes: gradient of that copy (scalar, bytes).
        tied_update_s: update of that copy, part of the last layer's ``update_s`` (scalar, s).
    """

    tensor_parallel: int
    forward_s: Floats
    backward_s: Floats
    update_s: Floats
    state_bytes: Floats
    gradient_bytes: Floats
    stash_bytes: Floats
    input_bytes: Floats
    working_set_bytes: Floats
    output_bytes: Floats
    tied_state_bytes: float = 0.0
    tied_gradient_bytes: float = 0.0
    tied_update_s: float = 0.0

    @property
    def num_layers(self) -> int:
        """Length of the chain."""
        return len(self.forward_s)


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Choose tensor, pipeline and data parallel degrees, stage cuts and recomputation per stage.

    Attributes:
        options: costs for each tensor-parallel degree that the model admits.
        cluster: devices and their network.
        memory_bytes: capacity of one device, bytes.
        global_batch: samples a batch, over all replicas.
        micro_batch: samples a micro-batch.
        recompute: policy.
    """

    options: tuple[LayerCosts, ...]
    cluster: Cluster
    memory_bytes: float
    global_batch: int
    micro_batch: int
    recompute: RecomputePolicy = RecomputePolicy.AUTO

    def __post_init__(self) -> None:
        """Check batch sizes and that every option covers the same chain."""
        if not self.options or len({option.num_layers for option in self.options}) != 1:
            message = "a placement needs at least one tensor-parallel option, all over the same layers"
            raise InputError(message)
        if self.global_batch < 1 or self.micro_batch < 1:
            message = f"global_batch = {self.global_batch} and micro_batch = {self.micro_batch} must be at least 1"
            raise InputError(message)


@dataclass(frozen=True, slots=True)
class LayerSpan:
    """Layers ``first`` to ``last`` of a chain, inclusive."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage: layers ``first`` to ``last`` inclusive, its time a micro-batch and its peak memory.

    Attributes:
        is_recomputed: whether any activations are computed anew for backward.
        sync_s: gradient collectives and update, once a batch.
        chunks: its model chunks where stages interleave; between them lie layers of other stages.
    """

    first: int
    last: int
    is_recomputed: bool
    time_s: float
    memory_bytes: float
    sync_s: float
    chunks: Annotated[tuple[LayerSpan, ...], omit_default(())] = ()


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why nothing fits: the layer that needs most, what it needs, what there is, and the remedy in words."""

    layer: int
    tensor_parallel: int
    needed_bytes: float
    available_bytes: float
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """The optimal placement, or why there is none.

    Attributes:
        status: OPTIMAL or INFEASIBLE (then every other field but ``shortfall`` is zero or empty).
        batch_time_s: max stage time x (micro-batches + stages - 1) + max over stages of synchronisation, s; of a plan
            the time of its step (`cost.step_time`).
        tensor_parallel, data_parallel: degrees.
        num_micro_batches: micro-batches per replica.
        stages: first pipeline stage first.
        shortfall: set if and only if infeasible.
        plan: the whole parallel plan, where one was priced; then OPTIMAL means the fastest of those that options leave.
    """

    status: PlacementStatus
    batch_time_s: float
    tensor_parallel: int
    data_parallel: int
    num_micro_batches: int
    stages: tuple[Stage, ...]
    shortfall: Shortfall | None = None
    plan: Annotated[ParallelPlan | None, omit_default(None)] = None

    @property
    def devices_used(self) -> int:
        """Devices of all replicas: t x stages x d, with context shards of a plan that has them."""
        if self.plan is not None:
            return self.plan.num_devices
        return self.tensor_parallel * len(self.stages) * self.data_parallel

    @property
    def bottleneck_s(self) -> float:
        """Largest stage time, s."""
        return max((stage.time_s for stage in self.stages), default=0.0)

    @property
    def sync_s(self) -> float:
        """Largest synchronisation (gradient all-reduce + update) of any stage, s."""
        return max((stage.sync_s for stage in self.stages), default=0.0)
