"""Vector work of each non-linear operation, forward and backward, and what its backward reads."""

from __future__ import annotations

from phaze_opt.graph.operations import Elementwise
from phaze_opt.graph.operator import VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility


def norm_rule(elements: int) -> Elementwise:
    """Layer or RMS norm: backward reads the input (mean and deviation are small and not counted)."""
    forward = (VectorWork(VectorKind.NORM_FORWARD, elements),)
    backward = (VectorWork(VectorKind.NORM_BACKWARD, elements),)
    return Elementwise(forward, backward, needs_input=True)


def activation_rule(elements: int, *, is_relu: bool = False) -> Elementwise:
    """GELU, SiLU, tanh: backward reads the input. ReLU: backward reads the output, which the next product keeps too."""
    forward = (VectorWork(VectorKind.ACTIVATION_FORWARD, elements),)
    backward = (VectorWork(VectorKind.ACTIVATION_BACKWARD, elements),)
    return Elementwise(forward, backward, needs_input=not is_relu, needs_output=is_relu)


def gated_activation_rule(elements: int) -> Elementwise:
    """act(gate) * up: one product forward, two backward; backward reads gate and up."""
    forward = (VectorWork(VectorKind.ACTIVATION_FORWARD, elements), VectorWork(VectorKind.ADD, elements))
    backward = (VectorWork(VectorKind.ACTIVATION_BACKWARD, elements), VectorWork(VectorKind.ADD, 2 * elements))
    return Elementwise(forward, backward, needs_input=True)


def rotary_rule(elements: int) -> Elementwise:
    """Rotary positions: backward rotates back and needs nothing kept."""
    works = (VectorWork(VectorKind.ROTARY, elements),)
    return Elementwise(works, works)


def softmax_rule(elements: int) -> Elementwise:
    """Softmax over whole rows, scale and mask included: backward reads the probabilities. Never an epilogue."""
    forward = (VectorWork(VectorKind.SOFTMAX_FORWARD, elements),)
    backward = (VectorWork(VectorKind.SOFTMAX_BACKWARD, elements),)
    return Elementwise(forward, backward, needs_output=True, fusibility=Fusibility.OPAQUE)


def copy_rule(elements: int) -> Elementwise:
    """Moving rows (dispatch to experts): backward adds the rows back. Never fused."""
    works = (VectorWork(VectorKind.ADD, elements),)
    return Elementwise(works, works, fusibility=Fusibility.OPAQUE)


def weighted_sum_rule(elements: int) -> Elementwise:
    """Sum of expert outputs weighted by the router: backward scales them and takes one dot product each."""
    forward = (VectorWork(VectorKind.ADD, elements),)
    backward = (VectorWork(VectorKind.ADD, 2 * elements),)
    return Elementwise(forward, backward, needs_input=True, fusibility=Fusibility.OPAQUE)


def lookup_rule(elements: int) -> Elementwise:
    """Table lookup: backward adds rows up by the kept ids. Never fused."""
    works = (VectorWork(VectorKind.ADD, elements),)
    return Elementwise(works, works, needs_input=True, fusibility=Fusibility.OPAQUE)
