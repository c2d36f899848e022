"""`Tape`: records a layer's forward nodes and derives its backward nodes in reverse (semantics 1, "Backward").

Every matmul yields two products, the input gradient (needs dY and W) and the weight gradient (needs dY and X), which do
not depend on each other; every non-linear operation yields its derivative; a tensor used several times gets its
gradients added. The operations themselves, with their gradient rules, are in `graph.operations` and `graph.regions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phaze_opt.graph.operator import Collective, Matmul, OperatorKind, Phase, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Node, Tensor, TensorRole


class Tape:
    """Records one layer; single use."""

    def __init__(self, *, dtype_bytes: int) -> None:
        """An empty tape whose tensors have ``dtype_bytes`` an element."""
        self._dtype_bytes = dtype_bytes
        self._phase = Phase.FORWARD
        self._nodes: list[Node] = []
        self._rules: list[Callable[[], None]] = []
        self._gradients: dict[str, list[Tensor]] = {}
        self._num_parameters = 0
        self._num_expert_parameters = 0

    @property
    def dtype_bytes(self) -> int:
        """Bytes of an element."""
        return self._dtype_bytes

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes recorded so far."""
        return tuple(self._nodes)

    @property
    def num_parameters(self) -> int:
        """Parameters declared so far."""
        return self._num_parameters

    @property
    def num_expert_parameters(self) -> int:
        """Parameters of experts declared so far."""
        return self._num_expert_parameters

    def count_experts(self, num_parameters: int) -> None:
        """Say that ``num_parameters`` of those declared belong to experts."""
        self._num_expert_parameters += num_parameters

    def tensor(self, name: str, elements: int, *, element_bytes: int | None = None) -> Tensor:
        """An activation (or, during backward, a gradient)."""
        role = TensorRole.ACTIVATION if self._phase is Phase.FORWARD else TensorRole.GRADIENT
        return Tensor(name, elements, self._dtype_bytes if element_bytes is None else element_bytes, role)

    def weight(self, name: str, elements: int, *, num_read: int | None = None) -> Tensor:
        """A parameter tensor; ``num_read`` elements are read where that is not all (a table lookup)."""
        self._num_parameters += elements
        return Tensor(name, elements if num_read is None else num_read, self._dtype_bytes, TensorRole.WEIGHT)

    def run_backward(self, output: Tensor | None) -> None:
        """Append the backward nodes, given the layer's output (None where a loss ends the layer)."""
        self._phase = Phase.BACKWARD
        if output is not None:
            gradient = Tensor(f"d_{output.name}", output.elements, output.element_bytes, TensorRole.GRADIENT)
            self._gradients[output.name] = [gradient]
        for rule in reversed(self._rules):
            rule()

    def gradient(self, tensor: Tensor) -> Tensor:
        """Gradient of a tensor all of whose users have been differentiated; several are added by one node."""
        parts = self._gradients[tensor.name]
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
    ) -> None:
        """Append one node in the current phase."""
        node = Node(name, self._phase, kind, fusibility, tuple(inputs), outputs, matmuls, vector_works, collective)
        self._nodes.append(node)

    def _gradient_of(self, tensor: Tensor, *, by: str = "") -> Tensor:
        is_weight = tensor.role is TensorRole.WEIGHT
        role = TensorRole.WEIGHT_GRADIENT if is_weight else TensorRole.GRADIENT
        suffix = f".by_{by}" if by else ""
        return Tensor(f"d_{tensor.name}{suffix}", tensor.elements, tensor.element_bytes, role)
