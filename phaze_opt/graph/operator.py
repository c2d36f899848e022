"""Operators and operator graphs: what the estimator prices and the scheduler orders.

What operators share through the chip's buffer: tensors that may be held between them, and where these lie.

Sizes and addresses are whole bytes, and none depends on a chip: addresses lie in a buffer without end, of which a chip
has the first so many bytes (`graph.residency`).

`ShardingOptions`: what sharding does beyond plain tensor parallelism.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from phaze_opt.errors import InputError
from phaze_opt.hardware.network import CollectiveKind as CollectiveKind  # noqa: PLC0414 (graphs name kinds too)
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.sparsity import Pattern


class Operand(StrEnum):
    """What a tensor is to the product of an operator: its left or right operand, or anything else, its result too."""

    LEFT = "left"
    RIGHT = "right"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes that one operator of a graph need not move to or from HBM where a tensor is held."""

    operator: int
    num_bytes: int
    operand: Operand


@dataclass(frozen=True, slots=True)
class Hold:
    """A tensor that may be held from one operator of a graph to a later one, both included.

    A hold of one operator alone is no tensor but room that its tiles can use.

    Attributes:
        tensor: its name; holds of one tensor may follow one another.
        first, last: the operators, by their places in the graph.
        num_bytes: its size.
        savings: what holding all of it saves.
    """

    tensor: str
    first: int
    last: int
    num_bytes: int
    savings: tuple[Saving, ...]

    @property
    def is_room(self) -> bool:
        """Whether it is room for tiles."""
        return self.first == self.last


@dataclass(frozen=True, slots=True)
class PhaseBorder:
    """What operators of a phase move of the tensors at their layer's border, and of its weights.

    Attributes:
        entering: every read of the tensor that comes from the layer run before; None where none is one tensor alone.
        leaving: the write of the one that goes to the layer run after.
        weights: the first read of every weight: later ones may be held anyway.
    """

    entering: Hold | None = None
    leaving: Hold | None = None
    weights: tuple[Saving, ...] = ()


NO_BORDER = PhaseBorder()
"""Of phases that have nothing to do with neighbours."""


@dataclass(frozen=True, slots=True)
class HeldOperand:
    """Bytes that an operator need not move where a hold is on chip; in part where only a part of it is.

    Attributes:
        address: of the hold's first byte.
        size: bytes of the hold.
        num_bytes: that the operator moves of it otherwise.
        operand: what it is to the operator.
    """

    address: int
    size: int
    num_bytes: int
    operand: Operand


@dataclass(frozen=True, slots=True)
class BufferUse:
    """What an operator has to do with the buffer.

    Attributes:
        left_bytes, right_bytes: of the operands of its matmul; 0 without one.
        held: what it need not move.
        taken: addresses that held tensors have while it runs: ranges (start, stop), apart and increasing.
    """

    left_bytes: int = 0
    right_bytes: int = 0
    held: tuple[HeldOperand, ...] = ()
    taken: tuple[tuple[int, int], ...] = ()


NO_BUFFER_USE = BufferUse()
"""Of operators that hold nothing."""


@dataclass(frozen=True, slots=True)
class ShardingOptions:
    """What sharding does beyond plain tensor parallelism; the defaults leave graphs of design searches as they are.

    Attributes:
        context: shards of every sequence c. A device has 1/c of the tokens; queries meet all keys, which ring attention
            passes round (Liu et al. 2023), forward and again backward with their gradients, beside the attention. The
            shards are of equal work: with a causal mask each takes an early and a late part of the sequence.
        expert: shards of the experts e over the devices of a stage; None for whole experts over the tensor group.
        expert_tensor: devices of a tensor group that split each of these experts by channels, which divides the tensor
            degree; None for all of them.
        has_kv_replicas: whether a tensor degree above the number of key-value heads, a multiple of it, is allowed:
            devices that share a head then each hold a copy of it (Megatron-LM does so for grouped queries).
        has_regathers: whether backward's second gather of sequence shards is an operator.
        is_published: whether work is that of Phaze's published form, which its placements keep to: a ReLU takes the
            cycles of a smooth activation, and gate and values of an expert are two products.
    """

    context: int = 1
    expert: int | None = None
    has_kv_replicas: bool = False
    has_regathers: bool = False
    expert_tensor: int | None = None
    is_published: bool = False

    @classmethod
    def of_plan(cls, plan: ParallelPlan) -> "ShardingOptions":
        """How a plan shards: copies of key-value heads where it must; groups of experts once the plan asks."""
        return cls(
            context=plan.context,
            expert=plan.expert if plan.has_expert_groups else None,
            has_kv_replicas=True,
            has_regathers=plan.is_sequence_parallel,
            expert_tensor=plan.expert_tensor or None,
        )

    def __post_init__(self) -> None:
        """Refuse degrees below 1."""
        degrees = (("context", self.context), ("expert", self.expert), ("expert_tensor", self.expert_tensor))
        for name, value in degrees:
            if value is not None and value < 1:
                message = f"{name} parallel degree {value} must be at least 1"
                raise InputError(message, key=name)


PLAIN_SHARDING = ShardingOptions()
"""Tensor parallelism alone, every head on one device."""
PUBLISHED_SHARDING = ShardingOptions(is_published=True)
"""The same with the work of Phaze's published form."""


class Phase(StrEnum):
    """Which of the three separately scheduled problems of a layer an operator belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class CoreType(StrEnum):
    """The cores an operator occupies; ``NETWORK`` and ``NONE`` occupy no core."""

    TC = "tc"
    VC = "vc"
    TC_AND_VC = "tc_and_vc"
    NETWORK = "network"
    NONE = "none"


class OperatorKind(StrEnum):
    """What an operator computes; decides how its HBM traffic is counted."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    VECTOR = "vector"
    COLLECTIVE = "collective"
    VIEW = "view"


class VectorKind(StrEnum):
    """Elementwise work, each kind with its cycles per element in hardware/constants.toml."""

    ADD = "add"
    ROTARY = "rotary"
    ACTIVATION_FORWARD = "activation_forward"
    ACTIVATION_BACKWARD = "activation_backward"
    SOFTMAX_FORWARD = "softmax_forward"
    SOFTMAX_BACKWARD = "softmax_backward"
    NORM_FORWARD = "norm_forward"
    NORM_BACKWARD = "norm_backward"
    CROSS_ENTROPY = "cross_entropy"
    SGD = "sgd"
    ADAM = "adam"


class CollectiveGroup(StrEnum):
    """Which devices take part.

    A tensor-parallel group, the shards of a sequence, those that share the experts, or those of a tensor group that
    split each expert where not all of it do.
    """

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    EXPERT_TENSOR = "expert_tensor"


@dataclass(frozen=True, slots=True)
class Matmul:
    """``batch`` independent products of an m x k by a k x n matrix.

    The rows of a convolution's left operand are patches of a tensor that overlap (implicit im2col): fewer elements
    than m x k lie in memory.

    Attributes:
        batch, m, n, k: the shape.
        left_elements: elements in memory behind one left operand, where they are fewer than m x k; else 0.
        left_overlap: at most so many of them belong both to rows before and to rows from any one row on.
        is_grouped: whether the products are the groups of one convolution, which may share an array block-diagonally
            or run on vector lanes.
        pattern: of the right operand along k, where it is N:M sparse; the shape stays that of the dense product.
    """

    batch: int
    m: int
    n: int
    k: int
    left_elements: int = field(default=0, kw_only=True)
    left_overlap: int = field(default=0, kw_only=True)
    is_grouped: bool = field(default=False, kw_only=True)
    pattern: Pattern | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse empty or negative shapes, and more elements than the operand has."""
        for edge in ("batch", "m", "n", "k"):
            value = getattr(self, edge)
            if value < 1:
                message = f"matmul {edge} = {value} must be a positive integer"
                raise InputError(message)
        if not (0 <= self.left_elements < self.m * self.k and 0 <= self.left_overlap <= self.left_elements):
            message = (
                f"matmul left_elements = {self.left_elements} with left_overlap = {self.left_overlap} must be below "
                f"m x k = {self.m * self.k}, and the overlap at most the elements; give 0 where the operand lies in "
                "memory as it is"
            )
            raise InputError(message)

    @property
    def macs(self) -> int:
        """Multiply-accumulates: batch * m * n * k."""
        return self.batch * self.m * self.n * self.k

    @property
    def distinct_left(self) -> int:
        """Elements in memory behind one left operand."""
        return self.left_elements or self.m * self.k

    def operand_elements(self) -> int:
        """Elements of both operands and the result in memory, each once: b (mk + kn + mn) of a plain product."""
        return self.batch * (self.distinct_left + self.k * self.n + self.m * self.n)


@dataclass(frozen=True, slots=True)
class VectorWork:
    """``elements`` elements of vector work of one kind."""

    kind: VectorKind
    elements: int

    def __post_init__(self) -> None:
        """Refuse negative counts."""
        if self.elements < 0:
            message = f"vector work of {self.elements} elements must not be negative"
            raise InputError(message)


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective over a group of devices.

    Attributes:
        kind: what is exchanged.
        payload_bytes: the whole tensor S of semantics 6.
        group: over which devices.
        is_overlapped: whether software runs it beside the compute of its phase, so that only what exceeds that
            compute shows; else it stands between operators.
    """

    kind: CollectiveKind
    payload_bytes: float
    group: CollectiveGroup = CollectiveGroup.TENSOR
    is_overlapped: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a layer, already sharded: every figure is for one device and one micro-batch.

    Attributes:
        name: unique within its graph.
        phase: forward, backward or update.
        kind: decides how HBM traffic is counted. MATMUL: tiled traffic of ``matmuls`` plus what
            ``bytes_read + bytes_written`` exceeds their compulsory bytes by (a fused epilogue's operands).
            ATTENTION and VECTOR: exactly ``bytes_read + bytes_written``. RECURRENT: these, and in every step but the
            first what the buffer does not hold of the right operands.
        core_type: TC, VC, TC_AND_VC, NETWORK or NONE.
        matmuls: tensor-core work (more than one only for fused attention); of RECURRENT, that of one step.
        vector_works: vector-core work (a fused epilogue, softmax, normalisation, optimizer ...); of all steps.
        bytes_read: compulsory bytes read from HBM.
        bytes_written: compulsory bytes written to HBM.
        parameter_bytes: bytes of parameters it reads.
        stash_bytes: bytes of its output, or inputs, kept for the backward phase.
        collective: set if and only if ``kind`` is COLLECTIVE.
        buffer: what of the bytes above the chip's buffer may hold between operators.
        serial_steps: steps of a recurrence, each of which waits for all of the one before.
    """

    name: str
    phase: Phase
    kind: OperatorKind
    core_type: CoreType
    matmuls: tuple[Matmul, ...] = ()
    vector_works: tuple[VectorWork, ...] = ()
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    parameter_bytes: float = 0.0
    stash_bytes: float = 0.0
    collective: Collective | None = None
    buffer: BufferUse = NO_BUFFER_USE
    serial_steps: int = 1

    def __post_init__(self) -> None:
        """Check that core type, work and sizes agree."""
        sizes = (self.bytes_read, self.bytes_written, self.parameter_bytes, self.stash_bytes)
        if not all(math.isfinite(size) and size >= 0 for size in sizes):
            message = f"operator '{self.name}': byte counts {sizes} must be finite and not negative"
            raise InputError(message)
        if (self.collective is not None) != (self.core_type is CoreType.NETWORK):
            message = f"operator '{self.name}': a collective and core type NETWORK go together"
            raise InputError(message)
        needs_tc = self.core_type in (CoreType.TC, CoreType.TC_AND_VC)
        if bool(self.matmuls) != needs_tc:
            message = f"operator '{self.name}': core type {self.core_type} and matmuls disagree"
            raise InputError(message)
        may_repeat = self.kind in (OperatorKind.RECURRENT, OperatorKind.VECTOR)
        if self.serial_steps < 1 or (self.serial_steps > 1 and not may_repeat):
            message = (
                f"operator '{self.name}': serial_steps = {self.serial_steps} must be positive, and above 1 only where "
                f"its kind ({self.kind}) is recurrent or vector"
            )
            raise InputError(message)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all its matmuls in all its steps."""
        return self.serial_steps * sum(matmul.macs for matmul in self.matmuls)

    @property
    def matmul_flops(self) -> int:
        """Two FLOPs a multiply-accumulate."""
        return 2 * self.macs

    @property
    def traffic_bytes(self) -> float:
        """Compulsory HBM traffic: bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """A directed acyclic graph of operators; ``edges`` are (producer, consumer) indices into ``operators``.

    ``holds`` are the tensors that the chip's buffer may hold between them, in the order of the operators.
    """

    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]
    holds: tuple[Hold, ...] = ()

    def __post_init__(self) -> None:
        """Check that edges point at operators, forward in the given (topological) order."""
        count = len(self.operators)
        for source, target in self.edges:
            if not (0 <= source < target < count):
                message = (
                    f"edge ({source}, {target}) must point forward inside 0..{count - 1}: operators are listed in "
                    "topological order"
                )
                raise InputError(message)

    def __len__(self) -> int:
        """Number of operators."""
        return len(self.operators)


Edge = tuple[int, int]


def edges_among(shown: Collection[int], edges: Iterable[Edge], *, count: int) -> tuple[Edge, ...]:
    """Edges between operators that are shown, ascending: direct ones, and paths that only others lie on.

    Args:
        shown: operators that stay.
        edges: of the whole graph, forward in its numbering.
        count: operators of the whole graph.
    """
    kept = frozenset(shown)
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        before[target].append(source)
    nearest: list[frozenset[int]] = []
    for sources in before:
        reached = (frozenset((source,)) if source in kept else nearest[source] for source in sources)
        nearest.append(frozenset().union(*reached))
    return tuple((source, target) for target in range(count) if target in kept for source in sorted(nearest[target]))
