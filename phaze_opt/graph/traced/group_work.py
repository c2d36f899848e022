"""What a tensor-parallel group exchanges around the products of a traced layer that it splits."""

from dataclasses import dataclass, field
from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.device_sizes import DeviceSizes
from phaze_opt.graph.traced.operator_rule import Shape

STATISTICS_BYTES = 12
"""Maximum, sum of exponentials and the label's logit of a token, 32-bit each, cross the group."""
SQUARES_BYTES = 4
"""A sum of squares of a token, 32-bit."""


@dataclass(slots=True)
class GroupWork:
    """The exchanges of one layer, on its tape; each tensor enters once.

    Attributes:
        tape: what records them.
        sizes: on one device.
        has_regathers: whether backward's second gather of token shares is an operator.
    """

    tape: Tape
    sizes: DeviceSizes
    has_regathers: bool
    entered: dict[str, Tensor] = field(default_factory=dict)

    def enter(self, tensor: Tensor, whole: Shape) -> Tensor:
        """Before columns: all tokens are gathered, or the gradient is summed over the group."""
        if tensor.name not in self.entered:
            name = f"enter{len(self.entered)}"
            self.entered[tensor.name] = self._entered(name, tensor, prod(whole))
        return self.entered[tensor.name]

    def _entered(self, name: str, tensor: Tensor, elements: int) -> Tensor:
        if self.sizes.has_token_shares:
            kind, regather = CollectiveKind.ALL_GATHER, self.has_regathers
            return ops.collective(self.tape, name, tensor, kind=kind, elements=elements, has_regather=regather)
        return ops.view(self.tape, name, tensor, adjoint=CollectiveKind.ALL_REDUCE)

    def leave(self, name: str, tensor: Tensor, own: Shape) -> Tensor:
        """Behind rows: sums over the group, of which every device keeps its tokens."""
        if self.sizes.has_token_shares:
            kind = CollectiveKind.REDUCE_SCATTER
            return ops.collective(self.tape, f"{name}_leave", tensor, kind=kind, elements=prod(own))
        return ops.all_reduce(self.tape, f"{name}_leave", tensor)

    def scatter(self, name: str, tensor: Tensor, own: Shape) -> Tensor:
        """Behind a table whose rows products of rows read: sums over the group, of which a device keeps channels."""
        kind = CollectiveKind.REDUCE_SCATTER
        return ops.collective(self.tape, f"{name}_scatter", tensor, kind=kind, elements=prod(own))

    def gather_columns(self, name: str, tensor: Tensor, whole: Shape, *, is_direct: bool) -> Tensor:
        """All columns on every device, for a product that is split; ``is_direct`` if it alone reads them.

        What is between them works on all tokens, and its gradient is summed over the group behind it.
        """
        if is_direct:
            kind, elements = CollectiveKind.ALL_GATHER, prod(whole)
            return ops.collective(self.tape, f"{name}_gather", tensor, kind=kind, elements=elements)
        return ops.gather_columns(self.tape, f"{name}_gather", tensor, elements=prod(whole))

    def enter_columns(self, name: str, tensor: Tensor) -> Tensor:
        """Before a split product of what every device has made whole."""
        return ops.view(self.tape, f"{name}_enter", tensor, adjoint=CollectiveKind.ALL_REDUCE)

    def exchange_squares(self, name: str, tensor: Tensor, tokens: int) -> None:
        """What a norm of channels that are split needs of all of them."""
        ops.statistics(self.tape, f"{name}_statistics", tensor, payload_bytes=float(SQUARES_BYTES * tokens))

    def gather(self, name: str, tensor: Tensor, whole: Shape) -> Tensor:
        """All tokens of a tensor on every device, for a layer of which nothing is split."""
        return ops.gather_columns(self.tape, name, tensor, elements=prod(whole))

    def keep_share(self, name: str, tensor: Tensor, own: Shape) -> Tensor:
        """A device's tokens of a tensor that every device has."""
        return ops.view(self.tape, name, tensor, elements=prod(own), adjoint=CollectiveKind.ALL_GATHER)

    def exchange_statistics(self, name: str, probabilities: Tensor, tokens: int) -> None:
        """What a loss needs of all shares of the vocabulary."""
        ops.statistics(self.tape, f"{name}_statistics", probabilities, payload_bytes=float(STATISTICS_BYTES * tokens))
