"""Kernels that PyTorch launches for one operator of a graph, when nothing is compiled ("eager").

The graph counts an operator as one pass over its tensors. Eager PyTorch (with Hugging Face's models, as NeuSight
measured) adds biases inside the matmul, but scales and masks attention scores by kernels of their own, copies query,
key and value to where batched matmuls want them, and writes the tanh form of GELU as eight kernels. These are counts
of kernels and passes, none of them fitted.
"""

from dataclasses import dataclass

from phaze_opt.graph.operator import Operator, OperatorKind, Phase, VectorKind
from phaze_opt_lab.fp32.kernels import Kernel

SCORE_KERNELS = 2
"""Scaling and masking of attention scores, and the same backward; each reads and writes them once."""

GELU_KERNELS, GELU_PASSES = 8, 18
"""0.5 x (1 + tanh(c (x + d x^3))): power, product, sum, product, tanh, sum, product, product."""

GELU_BACKWARD_KERNELS, GELU_BACKWARD_PASSES = 12, 28
"""Backward of the same: three products have two gradients, and three gradients of x are summed."""


@dataclass(frozen=True, slots=True)
class EagerModel:
    """What of a model and its run decides the kernels.

    Attributes:
        sequence_length, hidden_size: lengths of rows of softmax and norms.
        has_tanh_gelu: whether the activation is GELU in the tanh form (GPT-2).
        is_training: whether dropout and loss run.
        is_compiled: whether a compiler fuses chains: scaling, masking and GELU; copies stay.
        element_bytes: of an activation.
    """

    sequence_length: int
    hidden_size: int
    has_tanh_gelu: bool
    is_training: bool
    is_compiled: bool = False
    element_bytes: int = 4


def eager_kernels(operator: Operator, model: EagerModel) -> tuple[Kernel, ...]:
    """Kernels of one operator, in no particular order; none for what does not run or runs inside another."""
    name = operator.name
    if not model.is_training and (_is_only(operator, "dropout") or name.startswith("loss")):
        return ()
    if operator.phase is Phase.FORWARD and not operator.matmuls and _is_only(operator, "_bias"):
        return ()
    if operator.matmuls:
        products = tuple(Kernel("matmul", (m.batch, m.m, m.n, m.k)) for m in operator.matmuls)
        return (*products, *_epilogue(operator, model))
    return (*_vector_kernels(operator, model), *_own_extras(operator, model))


def _is_only(operator: Operator, part: str) -> bool:
    """Whether an operator and all it was fused from is of a kind."""
    return all(part in piece for piece in operator.name.split("+"))


def _vector_kernels(operator: Operator, model: EagerModel) -> tuple[Kernel, ...]:
    """Softmax and norms by rows; everything else streams its tensors."""
    num_bytes = operator.bytes_read + operator.bytes_written
    kinds = {work.kind: work.elements for work in operator.vector_works}
    if VectorKind.SOFTMAX_FORWARD in kinds and operator.name.startswith("softmax"):
        rows = kinds[VectorKind.SOFTMAX_FORWARD] / model.sequence_length
        return (Kernel("softmax", (rows, model.sequence_length)),)
    if VectorKind.NORM_FORWARD in kinds and "+" not in operator.name:
        return (Kernel("norm", (kinds[VectorKind.NORM_FORWARD] / model.hidden_size, model.hidden_size)),)
    has_chain = model.has_tanh_gelu and not model.is_compiled
    if has_chain and operator.name == "mlp_activation":
        return _chain(kinds[VectorKind.ACTIVATION_FORWARD] * model.element_bytes, GELU_KERNELS, GELU_PASSES)
    if has_chain and operator.name == "mlp_activation.gradient":
        tensor = kinds[VectorKind.ACTIVATION_BACKWARD] * model.element_bytes
        return _chain(tensor, GELU_BACKWARD_KERNELS, GELU_BACKWARD_PASSES)
    return (Kernel("stream", (num_bytes,)),) if num_bytes else ()


def _chain(tensor_bytes: float, kernels: int, passes: int) -> tuple[Kernel, ...]:
    return (Kernel("stream", (tensor_bytes * passes / kernels,), kernels),)


def _epilogue(operator: Operator, model: EagerModel) -> tuple[Kernel, ...]:
    """What follows or precedes a matmul: scores are scaled and masked, heads are copied apart and together."""
    if operator.kind is OperatorKind.ATTENTION:
        return ()
    first = operator.matmuls[0]
    size = model.element_bytes
    name = operator.name.split("+")[0]
    scores, heads = 2.0 * size * first.batch * first.m * first.n, 2.0 * size * first.m
    if name == "scores" and not model.is_compiled:
        return (Kernel("stream", (scores,), SCORE_KERNELS),)
    if name == "query_key_value":
        return (Kernel("stream", (heads * first.n / 3.0,), 3),)
    if name in ("query", "key", "value"):
        return (Kernel("stream", (heads * first.n,)),)
    if name == "attention_output":
        return (Kernel("stream", (heads * first.k,)),)
    return ()


def _own_extras(operator: Operator, model: EagerModel) -> tuple[Kernel, ...]:
    """Backward of scaling and masking."""
    if operator.name != "softmax.gradient" or model.is_compiled:
        return ()
    elements = sum(work.elements for work in operator.vector_works)
    return (Kernel("stream", (2.0 * model.element_bytes * elements,), SCORE_KERNELS),)
