"""Pooling over windows and over whole images, and sums and means over axes."""

from math import prod

from phaze_opt.graph.operations import Elementwise, elementwise
from phaze_opt.graph.operator import VectorKind
from phaze_opt.graph.pooling import average_pool, max_pool
from phaze_opt.graph.program import Fusibility, Tape, Tensor
from phaze_opt.graph.traced.operator_rule import OperatorCall

_MAXIMA = (
    "aten.max_pool1d",
    "aten.max_pool2d",
    "aten.max_pool3d",
    "aten.max_pool2d_with_indices",
    "aten.max_pool3d_with_indices",
    "aten.adaptive_max_pool1d",
    "aten.adaptive_max_pool2d",
    "aten.amax",
    "aten.amin",
)
_MEANS = (
    "aten.avg_pool1d",
    "aten.avg_pool2d",
    "aten.avg_pool3d",
    "aten.adaptive_avg_pool1d",
    "aten.adaptive_avg_pool2d",
    "aten.adaptive_avg_pool3d",
    "aten._adaptive_avg_pool2d",
    "aten.mean",
    "aten.sum",
)
_SPREADS = ("aten.var", "aten.std", "aten.linalg_vector_norm")
_SPREAD = Elementwise({VectorKind.ADD: 2}, {VectorKind.ADD: 2}, needs_input=True, fusibility=Fusibility.OPAQUE)
"""A sum of squares: forward multiplies and adds, backward reads the input again and multiplies."""


class PoolingRule:
    """The largest element or the mean of every window; a reduction over axes is one window a result."""

    operators = (*_MAXIMA, *_MEANS, *_SPREADS)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The pooled tensor; places that the operation gives besides are those that backward keeps."""
        given = call.operand(0)
        if call.op in _SPREADS:
            tensors = (call.tensor(0),)
            work = given.elements
            return (elementwise(tape, call.name, tensors, _SPREAD, elements=call.elements, work_elements=work),)
        pool = max_pool if call.op in _MAXIMA else average_pool
        result = pool(tape, call.name, call.tensor(0), elements=call.elements, window=_window(call, given.elements))
        others = [tape.tensor(f"{call.name}.place{number}", 0) for number in range(1, len(call.results))]
        return (result, *others)


def _window(call: OperatorCall, elements: int) -> int:
    """Elements of one window."""
    is_windowed = "pool" in call.op and "adaptive" not in call.op
    if is_windowed:
        rank = int(call.op.partition("pool")[2][0])
        return prod(call.numbers(1, "kernel_size", (1,) * rank))
    return max(1, elements // max(1, call.elements))
