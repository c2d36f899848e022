"""One layer as a program over tensors, before and after fusion: the form the graph passes work on.

A program lists nodes in topological order; edges are implied by the tensors nodes share. Traffic, activation memory and
edges are all derived from it in `graph.lowering`, so no pass keeps books of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.graph.operator import Collective, Matmul, OperatorKind, Phase, VectorKind, VectorWork


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
        is_of_experts: whether it is a weight of experts.
    """

    name: str
    elements: int
    element_bytes: int
    role: TensorRole
    kept_as: str = ""
    kept_bytes: int = 0
    is_of_experts: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a program: tensors in, tensors out, and its work.

    ``left`` and ``right`` are those of its inputs that are the operands of its matmul, if it has one alone. Of a
    recurrence ``matmuls`` are done in each of its ``serial_steps``; ``vector_works`` are those of all.
    """

    name: str
    phase: Phase
    kind: OperatorKind
    fusibility: Fusibility
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    matmuls: tuple[Matmul, ...] = ()
    vector_works: tuple[VectorWork, ...] = ()
    collective: Collective | None = None
    left: tuple[Tensor, ...] = ()
    right: tuple[Tensor, ...] = ()
    serial_steps: int = 1


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
        num_tied_parameters: those of them that copy the front's.
        num_expert_parameters: those of them that belong to experts.
        passing: tensors that the layer reads and hands on, such as an encoder's output: its neighbours of the same kind
            hold the same.
        reads, makes: tensors that it takes of other layers, and that it gives them, each listed as its model does.
    """

    name: str
    nodes: tuple[Node, ...]
    input: Tensor
    outputs: tuple[Tensor, ...]
    output_bytes: int
    num_parameters: int
    num_tied_parameters: int
    num_expert_parameters: int = 0
    passing: tuple[Tensor, ...] = ()
    reads: tuple[Tensor, ...] = ()
    makes: tuple[Tensor, ...] = ()


class Tape:
    """Records a layer's forward nodes and derives its backward nodes in reverse (semantics 1, "Backward"); single use.

    Every matmul yields two products, the input gradient (needs dY and W) and the weight gradient (needs dY and X),
    which do not depend on each other; every non-linear operation yields its derivative; a tensor used several times
    gets its gradients added. The operations, with their gradient rules, are in `graph.operations`.

    Attributes:
        dtype_bytes: bytes of an element.
        num_parameters: parameters declared so far.
        num_expert_parameters: those of them that belong to experts.
        is_in_experts: whether what is recorded now belongs to experts.
    """

    def __init__(self, *, dtype_bytes: int) -> None:
        """An empty tape whose tensors have ``dtype_bytes`` an element."""
        self.dtype_bytes = dtype_bytes
        self.num_parameters = 0
        self.num_expert_parameters = 0
        self.is_in_experts = False
        self._phase = Phase.FORWARD
        self._nodes: list[Node] = []
        self._rules: list[Callable[[], None]] = []
        self._gradients: dict[str, list[Tensor]] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes recorded so far."""
        return tuple(self._nodes)

    def tensor(self, name: str, elements: int, *, element_bytes: int | None = None) -> Tensor:
        """An activation (or, during backward, a gradient)."""
        role = TensorRole.ACTIVATION if self._phase is Phase.FORWARD else TensorRole.GRADIENT
        return Tensor(name, elements, self.dtype_bytes if element_bytes is None else element_bytes, role)

    def weight(self, name: str, elements: int, *, num_read: int | None = None) -> Tensor:
        """A parameter tensor; ``num_read`` elements are read where that is not all (a table lookup)."""
        self.num_parameters += elements
        self.num_expert_parameters += elements * self.is_in_experts
        read = elements if num_read is None else num_read
        return Tensor(name, read, self.dtype_bytes, TensorRole.WEIGHT, is_of_experts=self.is_in_experts)

    def constant(self, name: str, elements: int) -> Tensor:
        """A tensor that is read as a parameter is, and is not trained."""
        return Tensor(name, elements, self.dtype_bytes, TensorRole.WEIGHT)

    def run_backward(self, output: Tensor | None) -> None:
        """Append the backward nodes, given the layer's output (None where a loss ends the layer)."""
        self._phase = Phase.BACKWARD
        if output is not None:
            gradient = Tensor(f"d_{output.name}", output.elements, output.element_bytes, TensorRole.GRADIENT)
            self._gradients[output.name] = [gradient]
        for rule in reversed(self._rules):
            rule()

    def gradient(self, tensor: Tensor) -> Tensor:
        """Gradient of a tensor all of whose users have been differentiated; several are added by one node.

        Where no user gives one it has no elements; `graph.traced.gradients` removes what would be done with it.
        """
        parts = self._gradients.get(tensor.name)
        if parts is None:
            return Tensor(f"d_{tensor.name}", 0, tensor.element_bytes, TensorRole.GRADIENT)
        if len(parts) == 1:
            return parts[0]
        total = self._gradient_of(tensor)
        largest = max(part.elements for part in parts)
        added = sum(part.elements for part in parts) - largest
        works = (VectorWork(VectorKind.ADD, added),)
        name = f"{tensor.name}.gradient_sum"
        self.emit(name, OperatorKind.VECTOR, Fusibility.ELEMENTWISE, parts, (total,), vector_works=works)
        self._gradients[tensor.name] = [total]
        return total

    def on_backward(self, rule: Callable[[], None]) -> None:
        """Run ``rule`` during backward, after the rules of everything recorded later."""
        self._rules.append(rule)

    def pass_gradient(self, tensor: Tensor, gradient: Tensor) -> None:
        """Contribute an existing gradient tensor to ``tensor``."""
        self._gradients.setdefault(tensor.name, []).append(gradient)

    def add_gradient(self, tensor: Tensor, by: str) -> Tensor:
        """A new gradient of ``tensor`` that the operation ``by`` contributes."""
        gradient = self._gradient_of(tensor, by=by)
        self.pass_gradient(tensor, gradient)
        return gradient

    def emit(
        self,
        name: str,
        kind: OperatorKind,
        fusibility: Fusibility,
        inputs: Sequence[Tensor],
        outputs: tuple[Tensor, ...],
        *,
        matmuls: tuple[Matmul, ...] = (),
        vector_works: tuple[VectorWork, ...] = (),
        collective: Collective | None = None,
        left: tuple[Tensor, ...] = (),
        right: tuple[Tensor, ...] = (),
        serial_steps: int = 1,
    ) -> None:
        """Append one node in the current phase."""
        work = (matmuls, vector_works, collective, left, right, serial_steps)
        self._nodes.append(Node(name, self._phase, kind, fusibility, tuple(inputs), outputs, *work))

    def _gradient_of(self, tensor: Tensor, *, by: str = "") -> Tensor:
        is_weight = tensor.role is TensorRole.WEIGHT
        role = TensorRole.WEIGHT_GRADIENT if is_weight else TensorRole.GRADIENT
        suffix = f".by_{by}" if by else ""
        return Tensor(f"d_{tensor.name}{suffix}", tensor.elements, tensor.element_bytes, role)
