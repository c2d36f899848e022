"""What a model was priced as: class, parameters, layers and FLOPs, and the keys of its config that were not read."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phaze_opt.graph.flops import model_flops
from phaze_opt.units import GIGA
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.workload import Workload, sequence_length_of


@dataclass(frozen=True, slots=True)
class PricedAs:
    """One model as it was priced.

    Attributes:
        model: its name.
        architecture: its class of transformers; empty of what is none.
        num_parameters: tied ones once.
        num_layers: blocks, an encoder's with them; all layers of a chain of which equal ones are the lesser part.
        sequence_length: positions of one sample; the decoder's beside an encoder.
        flops_per_token: matmul FLOPs of forward and backward over these positions.
        unread_keys: keys of its config that were not read and are not known to change nothing.
    """

    model: str
    architecture: str
    num_parameters: int
    num_layers: int
    sequence_length: int
    flops_per_token: float
    unread_keys: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For a person."""
        kind = f"{self.architecture}, " if self.architecture else ""
        layers = "layers" if self.num_layers > 1 else "layer"
        return (
            f"{self.model} is priced as {kind}{self.num_parameters:,} parameters, {self.num_layers} {layers}, "
            f"{self.flops_per_token / GIGA:.4g} GFLOP a {self._sample}."
        )

    @property
    def _sample(self) -> str:
        """What FLOPs are counted for: a position of a sequence, or a sample that is none."""
        return f"token of {self.sequence_length:,}" if self.sequence_length > 1 else "sample"

    @property
    def warning(self) -> str:
        """What may be missing of it; empty if nothing is known to be."""
        if not self.unread_keys:
            return ""
        return (
            f"of the config of {self.model} these keys were not read, and may change it: {', '.join(self.unread_keys)}"
        )


def priced_as(models: Sequence[Workload], sequence_length: int | None) -> tuple[PricedAs, ...]:
    """What each model is priced as at a sequence length, or at its own."""
    return tuple(_priced(model, sequence_length_of(model, sequence_length)) for model in models)


def priced_to_json(priced: Sequence[PricedAs]) -> list[dict[str, Any]]:
    """As JSON."""
    return [{**asdict(each), "unread_keys": list(each.unread_keys)} for each in priced]


def _priced(model: Workload, length: int) -> PricedAs:
    spec = transformer_of(model)
    chain = model.cut.chain
    return PricedAs(
        model=model.name,
        architecture="" if spec is None else spec.architecture,
        num_parameters=model.num_parameters,
        num_layers=model.num_layers if 2 * model.num_layers >= len(chain) else len(chain),
        sequence_length=length,
        flops_per_token=model_flops(model, length) / length,
        unread_keys=() if spec is None else spec.unread_keys,
    )
