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

    def gather(self, name: str, tensor: Tensor, whole: Shape) -> Tensor:
        """All tokens of a tensor on every device, for a layer of which nothing is split."""
        return ops.gather_columns(self.tape, name, tensor, elements=prod(whole))

    def keep_share(self, name: str, tensor: Tensor, own: Shape) -> Tensor:
        """A device's tokens of a tensor that every device has."""
        return ops.view(self.tape, name, tensor, elements=prod(own), adjoint=CollectiveKind.ALL_GATHER)

    def exchange_statistics(self, name: str, probabilities: Tensor, tokens: int) -> None:
        """What a loss needs of all shares of the vocabulary."""
        ops.statistics(self.tape, f"{name}_statistics", probabilities, payload_bytes=float(STATISTICS_BYTES * tokens))
