"""Layers of a sharded model, three operator graphs and the sizes that placement needs, and parts of layers in a row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phaze_opt.graph.operator import NO_BORDER, OperatorGraph, PhaseBorder


@dataclass(frozen=True, slots=True)
class BorderTensor:
    """A tensor that crosses a layer's border: its bytes, and what the layer keeps of it without recomputation."""

    num_bytes: float
    kept_bytes: float


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """One distinct layer, sharded for one tensor-parallel degree; all sizes are per device and micro-batch.

    Attributes:
        name: ``embedding``, ``block``, ``head`` ... unique within its model graph.
        forward, backward, update: the three problems that are scheduled apart.
        num_parameters: parameters held by one device.
        num_tied_parameters: those of ``num_parameters`` that are a copy of the front's (a tied head): counted once
            when front and back share a stage.
        num_expert_parameters: those of ``num_parameters`` that belong to experts.
        stash_bytes: activations kept for backward when nothing is recomputed.
        selective_bytes: those kept when the attention core is recomputed (`attention_core`).
        input_bytes: activations kept when the layer is recomputed (its input).
        kept_input_bytes, kept_output_bytes: those of ``stash_bytes`` that are the layer's own input, and its output: a
            tensor that two neighbours keep is held once where they share a stage (`shared_bytes`).
        kept_passing_bytes: those that it has in common with a neighbour and neither made, such as an encoder's output.
        working_set_bytes: activations live while one recomputed layer runs backward (at least its stash).
        output_bytes: boundary transfer to the next layer, one direction.
        compressed_weights: working weights that take as much memory as the compressed copies of those that are N:M
            sparse: 0.5625 of a weight for 2:4, and as much again where input gradients are sparse too.
        compressed_expert_weights: those of them that are of experts.
        reads, makes: tensors that it takes of other layers, and that it gives them, of models with branches
            (`workload.branches`).
        forward_border, backward_border: what both phases move of tensors that neighbours make or read.
    """

    name: str
    forward: OperatorGraph
    backward: OperatorGraph
    update: OperatorGraph
    num_parameters: int
    num_tied_parameters: int
    num_expert_parameters: int
    stash_bytes: float
    selective_bytes: float
    input_bytes: float
    working_set_bytes: float
    output_bytes: float
    kept_input_bytes: float = 0.0
    kept_output_bytes: float = 0.0
    kept_passing_bytes: float = 0.0
    compressed_weights: float = 0.0
    compressed_expert_weights: float = 0.0
    reads: tuple[BorderTensor, ...] = ()
    makes: tuple[BorderTensor, ...] = ()
    forward_border: PhaseBorder = NO_BORDER
    backward_border: PhaseBorder = NO_BORDER

    @property
    def phases(self) -> tuple[OperatorGraph, OperatorGraph, OperatorGraph]:
        """Forward, backward and update graphs, in that order."""
        return (self.forward, self.backward, self.update)

    def written_bytes(self, names: Sequence[str]) -> float:
        """What its forward operators of some names write; of a name that is listed twice, twice."""
        written = (each for each in self.forward.operators if each.name in names) if names else ()
        return sum((names.count(each.name) * each.bytes_written for each in written), start=0.0)


def shared_bytes(before: LayerGraph, behind: LayerGraph) -> float:
    """What both of two neighbours keep without recomputation: one's output is the other's input, or both read it."""
    passing = min(before.kept_passing_bytes, behind.kept_passing_bytes)
    return min(before.kept_output_bytes, behind.kept_input_bytes) + passing


NUM_PLAIN_PARTS = 3
"""Front, unit and back, where all units are equal."""


@dataclass(frozen=True, slots=True)
class PartGraph:
    """Layers that always are in one stage together; all sizes are per device and micro-batch.

    A part takes what its layers take one after the other. It holds what they hold together, but recomputes them one by
    one, so that only the largest of what one layer makes anew is alive at a time.

    Attributes:
        layers: in order, with repetitions; there may be none.
        num_first, num_last: of them, those that are never recomputed: the first layer of the model, the last.
        before: the layer that it is joined to, where that is one: what both keep is held once.
        is_apart: whether it is joined to none, as what several blocks keep is looked up tensor by tensor.
    """

    layers: tuple[LayerGraph, ...]
    num_first: int = 0
    num_last: int = 0
    before: LayerGraph | None = None
    is_apart: bool = False

    @property
    def inner(self) -> tuple[LayerGraph, ...]:
        """The layers that may be recomputed."""
        return self.layers[self.num_first : len(self.layers) - self.num_last]

    @property
    def num_parameters(self) -> int:
        """Parameters held by one device."""
        return sum(layer.num_parameters for layer in self.layers)

    @property
    def num_expert_parameters(self) -> int:
        """Those of them that belong to experts."""
        return sum(layer.num_expert_parameters for layer in self.layers)

    @property
    def compressed_weights(self) -> float:
        """Compressed copies of sparse weights, as so many working weights."""
        return _added(layer.compressed_weights for layer in self.layers)

    @property
    def compressed_expert_weights(self) -> float:
        """Those of them that are of experts."""
        return _added(layer.compressed_expert_weights for layer in self.layers)

    @property
    def num_tied_parameters(self) -> int:
        """Those of them that are a copy of what earlier layers hold."""
        return sum(layer.num_tied_parameters for layer in self.layers)

    @property
    def stash_bytes(self) -> float:
        """Activations kept for backward when nothing is recomputed; what two neighbours keep counts once."""
        return _added(layer.stash_bytes for layer in self.layers) - self.inner_bytes

    @property
    def selective_bytes(self) -> float:
        """Those kept when attention cores are recomputed."""
        return self.stash_bytes - _added(layer.stash_bytes - layer.selective_bytes for layer in self.inner)

    @property
    def inner_bytes(self) -> float:
        """What two neighbours keep, counted once."""
        return _added(shared_bytes(before, behind) for before, behind in pairwise(self.layers))

    @property
    def joint_bytes(self) -> float:
        """What the first layer keeps of this part, and the last of what is before it: of an equal part, if of none."""
        if self.is_apart or not self.layers:
            return 0.0
        return shared_bytes(self.before or self.layers[-1], self.layers[0])

    @property
    def input_bytes(self) -> float:
        """Those kept when every layer is recomputed from its input."""
        once = (*self.layers[: self.num_first], *self.layers[len(self.layers) - self.num_last :])
        return _added(layer.input_bytes for layer in self.inner) + _added(layer.stash_bytes for layer in once)

    def keeps_any(self, names: Sequence[str]) -> bool:
        """Whether selective recomputation that keeps what operators of some names write finds such here."""
        return any(layer.written_bytes(names) for layer in self.inner)

    @property
    def attention_bytes(self) -> float:
        """Activations made anew while its largest attention core runs again."""
        return max((layer.stash_bytes - layer.selective_bytes for layer in self.inner), default=0.0)

    @property
    def working_set_bytes(self) -> float:
        """Activations live while its largest recomputed layer runs backward."""
        return max((layer.working_set_bytes for layer in self.inner), default=0.0)

    @property
    def output_bytes(self) -> float:
        """Boundary transfer to the part behind, one direction: all tensors that cross it."""
        return self.layers[-1].output_bytes if self.layers else 0.0

    @property
    def update_traffic_bytes(self) -> float:
        """Bytes that the optimizer moves."""
        return _added(operator.traffic_bytes for layer in self.layers for operator in layer.update.operators)


def tied_parameters(parts: Sequence[PartGraph]) -> tuple[int, ...]:
    """Of each part the parameters that are a copy of an earlier part's; those of equal units do not count."""
    has_units_apart = len(parts) > NUM_PLAIN_PARTS
    last = len(parts) - 1
    return tuple(part.num_tied_parameters * (has_units_apart or at == last) for at, part in enumerate(parts))


def _added(sizes: Iterable[float]) -> float:
    """The sum, in order."""
    return sum(sizes, start=0.0)
