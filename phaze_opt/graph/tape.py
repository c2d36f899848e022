"""`Tape`: records a layer's forward nodes and derives its backward nodes in reverse (semantics 1, "Backward").

Every matmul yields two products, the input gradient (needs dY and W) and the weight gradient (needs dY and X), which do
not depend on each other; every non-linear operation yields its derivative; a tensor used several times gets its
gradients added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phaze_opt.graph.operator import Collective, CollectiveKind, Matmul, OperatorKind, Phase, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Node, Tensor, TensorRole

MASK_BYTES = 1
"""Bytes of one element of a dropout mask (Korthikanti et al. 2022, section 4.1)."""
_ADJOINT_COLLECTIVE = {
    CollectiveKind.ALL_GATHER: CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.REDUCE_SCATTER: CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL: CollectiveKind.ALL_TO_ALL,
}


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Vector work of an operation in both directions, and which of its tensors backward reads."""

    forward: tuple[VectorWork, ...]
    backward: tuple[VectorWork, ...]
    needs_input: bool = False
    needs_output: bool = False
    fusibility: Fusibility = Fusibility.ELEMENTWISE


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

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes recorded so far."""
        return tuple(self._nodes)

    @property
    def num_parameters(self) -> int:
        """Parameters declared so far."""
        return self._num_parameters

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
        self._vector(f"{tensor.name}.gradient_sum", parts, (total,), works)
        self._gradients[tensor.name] = [total]
        return total

    def matmul(self, name: str, left: Tensor, right: Tensor, *, shape: Matmul, output: str) -> Tensor:
        """``left`` [batch, m, k] x ``right`` [batch, k, n] into one tensor."""
        elements = shape.batch * shape.m * shape.n
        return self.split_matmul(name, left, right, shape=shape, outputs={output: elements})[0]

    def split_matmul(
        self, name: str, left: Tensor, right: Tensor, *, shape: Matmul, outputs: dict[str, int]
    ) -> list[Tensor]:
        """``left`` [batch, m, k] x ``right`` [batch, k, n] into tensors of the given elements, side by side."""
        results = [self.tensor(output, elements) for output, elements in outputs.items()]
        self._matmul(name, (left, right), tuple(results), shape)
        to_left = Matmul(shape.batch, m=shape.m, n=shape.k, k=shape.n)
        to_right = Matmul(shape.batch, m=shape.k, n=shape.n, k=shape.m)

        def differentiate() -> None:
            given = tuple(self.gradient(result) for result in results)
            self._matmul(f"{name}.input_gradient", (*given, right), (self._add_gradient(left, name),), to_left)
            self._matmul(f"{name}.weight_gradient", (left, *given), (self._add_gradient(right, name),), to_right)

        self._rules.append(differentiate)
        return results

    def bias(self, name: str, tensors: Sequence[Tensor], *, size: int, num_read: int | None = None) -> list[Tensor]:
        """Add a vector, or rows of a table, of ``size`` parameters to tensors that lie side by side.

        Backward passes the gradient on unchanged and sums it up into the vector or table.
        """
        vector = self.weight(f"{name}.vector", size, num_read=num_read)
        results = [self.tensor(f"{tensor.name}.biased", tensor.elements) for tensor in tensors]
        works = (VectorWork(VectorKind.ADD, sum(tensor.elements for tensor in tensors)),)
        self._vector(name, (*tensors, vector), tuple(results), works)

        def differentiate() -> None:
            given = [self.gradient(result) for result in results]
            for tensor, gradient in zip(tensors, given, strict=True):
                self._gradients.setdefault(tensor.name, []).append(gradient)
            total = (self._add_gradient(vector, name),)
            self._vector(f"{name}.gradient", given, total, works, fusibility=Fusibility.OPAQUE)

        self._rules.append(differentiate)
        return results

    def add(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        """Residual addition; its gradient goes to both sides unchanged."""
        result = self.tensor(name, left.elements)
        self._vector(name, (left, right), (result,), (VectorWork(VectorKind.ADD, left.elements),))

        def differentiate() -> None:
            gradient = self.gradient(result)
            for tensor in (left, right):
                self._gradients.setdefault(tensor.name, []).append(gradient)

        self._rules.append(differentiate)
        return result

    def elementwise(
        self,
        name: str,
        inputs: Sequence[Tensor],
        *,
        elements: int,
        rule: Elementwise,
        weights: Sequence[Tensor] = (),
        is_differentiable: bool = True,
    ) -> Tensor:
        """Vector work from ``inputs`` and ``weights`` to one tensor, with the derivative that ``rule`` states."""
        result = self.tensor(name, elements)
        self._vector(name, (*inputs, *weights), (result,), rule.forward, fusibility=rule.fusibility)

        def differentiate() -> None:
            kept = (*inputs, *weights) if rule.needs_input else tuple(weights)
            kept = (*kept, result) if rule.needs_output else kept
            given = (self.gradient(result), *kept)
            targets = inputs if is_differentiable else ()
            results = tuple(self._add_gradient(tensor, name) for tensor in (*targets, *weights))
            self._vector(f"{name}.gradient", given, results, rule.backward, fusibility=rule.fusibility)

        self._rules.append(differentiate)
        return result

    def dropout(self, name: str, tensor: Tensor) -> Tensor:
        """Zero elements at random; the mask is kept."""
        result = self.tensor(name, tensor.elements)
        mask = self.tensor(f"{name}.mask", tensor.elements, element_bytes=MASK_BYTES)
        works = (VectorWork(VectorKind.ADD, tensor.elements),)
        self._vector(name, (tensor,), (result, mask), works)

        def differentiate() -> None:
            given = (self.gradient(result), mask)
            self._vector(f"{name}.gradient", given, (self._add_gradient(tensor, name),), works)

        self._rules.append(differentiate)
        return result

    def attention(
        self,
        name: str,
        inputs: Sequence[Tensor],
        *,
        elements: int,
        forward: tuple[tuple[Matmul, ...], tuple[VectorWork, ...]],
        backward: tuple[tuple[Matmul, ...], tuple[VectorWork, ...]],
    ) -> Tensor:
        """Fused attention: query, key, value in; output out; nothing of the s x s scores reaches memory."""
        result = self.tensor(name, elements)
        kind = OperatorKind.ATTENTION
        self._emit(name, kind, Fusibility.OPAQUE, inputs, (result,), matmuls=forward[0], vector_works=forward[1])

        def differentiate() -> None:
            given = (*inputs, result, self.gradient(result))
            results = tuple(self._add_gradient(tensor, name) for tensor in inputs)
            matmuls, works = backward
            self._emit(f"{name}.gradient", kind, Fusibility.OPAQUE, given, results, matmuls=matmuls, vector_works=works)

        self._rules.append(differentiate)
        return result

    def collective(self, name: str, tensor: Tensor, *, kind: CollectiveKind, elements: int) -> Tensor:
        """All-gather, reduce-scatter or all-to-all to ``elements`` elements; backward is the adjoint collective.

        Of an all-gathered tensor only the shard is kept: it is gathered again during backward, behind the matmuls
        (Korthikanti et al. 2022, section 4.2.2), which is why that gather is no operator here.
        """
        result = self.tensor(name, elements)
        if kind is CollectiveKind.ALL_GATHER:
            result = Tensor(name, elements, self._dtype_bytes, result.role, tensor.name, tensor.num_bytes)
        payload = float(max(tensor.num_bytes, result.num_bytes))
        self._collective(name, tensor, result, Collective(kind, payload))

        def differentiate() -> None:
            gradient = self.gradient(result)
            target = self._add_gradient(tensor, name)
            self._collective(f"{name}.gradient", gradient, target, Collective(_ADJOINT_COLLECTIVE[kind], payload))

        self._rules.append(differentiate)
        return result

    def all_reduce(self, name: str, tensor: Tensor) -> Tensor:
        """Sum over the group; the gradient of the sum is every member's gradient (Megatron's g)."""
        result = self.tensor(name, tensor.elements)
        self._collective(name, tensor, result, Collective(CollectiveKind.ALL_REDUCE, float(tensor.num_bytes)))
        self._rules.append(lambda: self._gradients.setdefault(tensor.name, []).append(self.gradient(result)))
        return result

    def view(self, name: str, tensor: Tensor, *, elements: int | None = None, adjoint: CollectiveKind | None) -> Tensor:
        """A part, or all, of a tensor at no cost; backward is the ``adjoint`` collective, or a view if None.

        An all-reduce as adjoint makes it Megatron's f, an all-gather makes it the split of replicated tokens.
        """
        count = tensor.elements if elements is None else elements
        kept_as, kept_bytes = tensor.kept_as or tensor.name, tensor.kept_bytes or tensor.num_bytes
        result = Tensor(name, count, tensor.element_bytes, tensor.role, kept_as, kept_bytes)
        self._emit(name, OperatorKind.VIEW, Fusibility.OPAQUE, (tensor,), (result,))

        def differentiate() -> None:
            gradient = self.gradient(result)
            if adjoint is None:
                part = Tensor(f"d_{name}.view", count, tensor.element_bytes, TensorRole.GRADIENT)
                self._emit(f"{name}.gradient", OperatorKind.VIEW, Fusibility.OPAQUE, (gradient,), (part,))
                self._gradients.setdefault(tensor.name, []).append(part)
                return
            target = self._add_gradient(tensor, name)
            self._collective(f"{name}.gradient", gradient, target, Collective(adjoint, float(tensor.num_bytes)))

        self._rules.append(differentiate)
        return result

    def gather_columns(self, name: str, tensor: Tensor, *, elements: int) -> Tensor:
        """All-gather of a tensor whose users are replicated: backward only takes this device's part."""
        result = self.tensor(name, elements)
        payload = Collective(CollectiveKind.ALL_GATHER, float(result.num_bytes))
        self._collective(name, tensor, result, payload)

        def differentiate() -> None:
            gradient = self.gradient(result)
            self._emit(
                f"{name}.gradient",
                OperatorKind.VIEW,
                Fusibility.OPAQUE,
                (gradient,),
                (self._add_gradient(tensor, name),),
            )

        self._rules.append(differentiate)
        return result

    def loss(self, name: str, logits: Tensor) -> Tensor:
        """Cross-entropy of logits: forward keeps the probabilities, backward subtracts the labels from them."""
        probabilities = self.tensor(f"{name}.probabilities", logits.elements)
        works = (VectorWork(VectorKind.CROSS_ENTROPY, logits.elements),)
        self._vector(name, (logits,), (probabilities,), works, fusibility=Fusibility.OPAQUE)

        def differentiate() -> None:
            subtract = (VectorWork(VectorKind.ADD, logits.elements),)
            target = (self._add_gradient(logits, name),)
            self._vector(f"{name}.gradient", (probabilities,), target, subtract, fusibility=Fusibility.OPAQUE)

        self._rules.append(differentiate)
        return probabilities

    def statistics(self, name: str, tensor: Tensor, *, payload_bytes: float) -> None:
        """All-reduce of small per-token statistics that the loss needs over all vocabulary shards."""
        result = Tensor(name, 0, self._dtype_bytes, TensorRole.ACTIVATION)
        self._collective(name, tensor, result, Collective(CollectiveKind.ALL_REDUCE, payload_bytes))

    def _gradient_of(self, tensor: Tensor, *, by: str = "") -> Tensor:
        is_weight = tensor.role is TensorRole.WEIGHT
        role = TensorRole.WEIGHT_GRADIENT if is_weight else TensorRole.GRADIENT
        suffix = f".by_{by}" if by else ""
        return Tensor(f"d_{tensor.name}{suffix}", tensor.elements, tensor.element_bytes, role)

    def _add_gradient(self, tensor: Tensor, by: str) -> Tensor:
        """A new gradient of ``tensor`` that the operation ``by`` contributes."""
        gradient = self._gradient_of(tensor, by=by)
        self._gradients.setdefault(tensor.name, []).append(gradient)
        return gradient

    def _matmul(self, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], shape: Matmul) -> None:
        self._emit(name, OperatorKind.MATMUL, Fusibility.MATMUL, inputs, outputs, matmuls=(shape,))

    def _vector(
        self,
        name: str,
        inputs: Sequence[Tensor],
        outputs: tuple[Tensor, ...],
        works: tuple[VectorWork, ...],
        *,
        fusibility: Fusibility = Fusibility.ELEMENTWISE,
    ) -> None:
        self._emit(name, OperatorKind.VECTOR, fusibility, inputs, outputs, vector_works=works)

    def _collective(self, name: str, given: Tensor, result: Tensor, collective: Collective) -> None:
        kind = OperatorKind.COLLECTIVE
        self._emit(name, kind, Fusibility.OPAQUE, (given,), (result,), collective=collective)

    def _emit(
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
        node = Node(name, self._phase, kind, fusibility, tuple(inputs), outputs, matmuls, vector_works, collective)
        self._nodes.append(node)
