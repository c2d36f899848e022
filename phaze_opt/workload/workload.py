"""`Workload`: what rooms above `graph` ask of a model, however it was described."""

from collections.abc import Hashable
from typing import Protocol, Self

from phaze_opt.errors import InputError
from phaze_opt.workload.block_spec import ExpertRouting
from phaze_opt.workload.chain import ChainCut


class Workload(Protocol):
    """A model to train: facts, no graphs, which `graph.build` makes of it. Equal ones hash alike.

    A transformer by its sizes is `workload.model.ModelSpec`. Of any other kind is what states its layers, its sharding
    and its FLOPs itself: `graph.recorded.RecordedWorkload`.
    """

    def __hash__(self) -> int:
        """Equal for equal ones: graphs are kept by it."""
        ...

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def source(self) -> str:
        """Where its description is from."""
        ...

    @property
    def num_layers(self) -> int:
        """Layers as people count them: blocks, without embedding and head."""
        ...

    @property
    def cut(self) -> ChainCut:
        """Its chain of layers as front, equal units and back; pipelines are cut between units."""
        ...

    @property
    def num_units(self) -> int:
        """Units that pipeline stages share out."""
        ...

    @property
    def num_parameters(self) -> int:
        """Parameters, exact to the unit; tied ones once."""
        ...

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token meets."""
        ...

    @property
    def num_experts(self) -> int:
        """Experts of a layer that has some; 1 without any."""
        ...

    @property
    def num_active_experts(self) -> int:
        """Experts that a token meets; 1 without any."""
        ...

    @property
    def expert_routing(self) -> ExpertRouting | None:
        """Which experts of a layer a token meets; None without any."""
        ...

    @property
    def has_experts(self) -> bool:
        """Whether some layer is a mixture of experts."""
        ...

    @property
    def own_sequence_length(self) -> int:
        """The sequence that it is run on unless another is asked for."""
        ...

    @property
    def sizes_sentence(self) -> str:
        """Its layers and widths in words, such as ``24 layers, hidden size 1,024``."""
        ...

    @property
    def layers_key(self) -> Hashable:
        """Equal for models whose kinds of layers have the same graphs and make the same front, unit and back."""
        ...

    def length_obstacle(self, length: int) -> str | None:
        """Why it cannot be run on a sequence of ``length``, and what to give; None if it can."""
        ...

    def cut_by_layers(self) -> Self:
        """The same with pipelines cut between any two of its layers, where little repeats (`cut_between_layers`)."""
        ...

    def cut_by_branches(self) -> Self:
        """The same with pipelines cut between sets of blocks that stand beside one another, where some do.

        Else as `cut_by_layers`.
        """
        ...

    def with_combined_qkv(self) -> Self:
        """The same with query, key and value from one product, as some software runs it, where it has them."""
        ...


def sequence_length_of(model: Workload, asked: int | None) -> int:
    """Tokens of a sequence of a model: as asked, else its own.

    Raises:
        InputError: the model cannot be run on as many as are asked for.
    """
    if asked is None:
        return model.own_sequence_length
    obstacle = model.length_obstacle(asked)
    if obstacle is not None:
        raise InputError(obstacle, key="sequence_length")
    return asked
