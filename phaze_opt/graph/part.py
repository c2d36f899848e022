"""A part of a model: the layers of its front, of a unit or of its back, one after the other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phaze_opt.graph.layer import LayerGraph, shared_bytes

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
