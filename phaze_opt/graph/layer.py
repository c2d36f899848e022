"""A layer of a sharded model: three operator graphs and the sizes that placement needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.graph.buffer_use import NO_BORDER, PhaseBorder
from phaze_opt.graph.operator import OperatorGraph


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
        return sum((names.count(each.name) * each.bytes_written for each in self.forward.operators), start=0.0)


def shared_bytes(before: LayerGraph, behind: LayerGraph) -> float:
    """What both of two neighbours keep without recomputation: one's output is the other's input, or both read it."""
    passing = min(before.kept_passing_bytes, behind.kept_passing_bytes)
    return min(before.kept_output_bytes, behind.kept_input_bytes) + passing
