"""One layer as a program over tensors, before and after fusion: the form the graph passes work on.

A program lists nodes in topological order; edges are implied by the tensors nodes share. Traffic, activation memory and
edges are all derived from it in `graph.lowering`, so no pass keeps books of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.graph.operator import Collective, Matmul, OperatorKind, Phase, VectorWork


class TensorRole(StrEnum):
    """What a tensor is; only activations and the layer's input can be kept for backward."""

    ACTIVATION = "activation"
    WEIGHT = "weight"
    GRADIENT = "gradient"
    WEIGHT_GRADIENT = "weight_gradient"


class Fusibility(StrEnum):
    """How a node may fuse (TVM's classes, reduced to those that occur)."""

    MATMUL = "matmul"
    ELEMENTWISE = "elementwise"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor on one device.

    Attributes:
        name: unique within its layer.
        elements: number of elements.
        element_bytes: bytes of one element.
        role: activation, weight, gradient or weight gradient.
        kept_as: name of the tensor that is kept for backward in its place (the shard of a gathered tensor,
            the storage behind a view); its own name if empty.
        kept_bytes: bytes of that tensor.
    """

    name: str
    elements: int
    element_bytes: int
    role: TensorRole
    kept_as: str = ""
    kept_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a program: tensors in, tensors out, and its work."""

    name: str
    phase: Phase
    kind: OperatorKind
    fusibility: Fusibility
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    matmuls: tuple[Matmul, ...] = ()
    vector_works: tuple[VectorWork, ...] = ()
    collective: Collective | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """One layer of one device: forward and backward nodes and its parameters.

    Attributes:
        name: name of the layer.
        nodes: forward nodes, then backward nodes, each in topological order.
        input: the layer's input (None only where a layer has no tensor input).
        outputs: tensors that leave the layer: its output and, in backward, the gradient of its input.
        output_bytes: boundary transfer to the next layer, one direction, bytes.
        num_parameters: parameters held by the device.
        num_tied_parameters: those of them that copy the first layer's.
        num_expert_parameters: those of them that belong to experts.
    """

    name: str
    nodes: tuple[Node, ...]
    input: Tensor
    outputs: tuple[Tensor, ...]
    output_bytes: int
    num_parameters: int
    num_tied_parameters: int
    num_expert_parameters: int = 0
