"""Hand placements: what an expert would choose without a search, and how it is laid out on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from phaze_opt.errors import InputError
from phaze_opt.record.document import parse_toml
from phaze_opt.workload.model import ModelSpec


@dataclass(frozen=True, slots=True)
class ExpertPlacement:
    """A hand placement of one model.

    Attributes:
        num_layers: blocks of the model it was made for.
        pipeline: stages.
        data: replicas on the cluster it was made for.
        tensor: devices of a stage.
    """

    num_layers: int
    pipeline: int
    data: int
    tensor: int

    def __post_init__(self) -> None:
        """Check that every stage gets a block."""
        if min(self.data, self.tensor) < 1 or not 1 <= self.pipeline <= self.num_layers:
            message = f"hand placement {self} must have positive degrees and at most one stage a block"
            raise InputError(message)

    @property
    def devices_per_replica(self) -> int:
        """Devices that one replica takes."""
        return self.pipeline * self.tensor

    def data_parallel(self, *, num_devices: int, global_batch: int, micro_batch: int) -> int:
        """Replicas on a cluster: as many as its devices hold, but none without a micro-batch; 0 if not even one fits.

        With the 1,024 devices and the batches it was made for, this is ``data``.
        """
        return min(num_devices // self.devices_per_replica, -(-global_batch // micro_batch))

    def cuts(self) -> tuple[int, ...]:
        """First layer of every stage but the first, in a chain of embedding, blocks and head.

        Blocks are split as evenly as they can be. The embedding goes with the first stage and the head with the last;
        stages with one block more come first, so that the head, which takes longer, is not in one of them.
        """
        counts = split_evenly(self.num_layers, self.pipeline)
        return tuple(1 + sum(counts[:stage]) for stage in range(1, self.pipeline))


@dataclass(frozen=True, slots=True)
class ExpertBook:
    """All hand placements.

    Attributes:
        source: where they come from.
        accelerators: presets that they are priced on.
        num_devices: of the cluster they were made for.
        placements: by name of the model.
    """

    source: str
    accelerators: tuple[str, ...]
    num_devices: int
    placements: Mapping[str, ExpertPlacement]

    def placement_of(self, model: ModelSpec) -> ExpertPlacement | None:
        """The hand placement of a model; None if there is none, or if the name stands for another depth."""
        known = self.placements.get(model.name)
        return known if known is not None and known.num_layers == model.num_layers else None


def split_evenly(count: int, parts: int) -> Sequence[int]:
    """``count`` things in ``parts`` shares that differ by one at most, larger shares first."""
    share, rest = divmod(count, parts)
    return [share + 1] * rest + [share] * (parts - rest)


@cache
def load_expert_book() -> ExpertBook:
    """The hand placements that come with the package (``expert_placements.toml``)."""
    text = resources.files("phaze_opt.objective").joinpath("expert_placements.toml").read_text(encoding="utf-8")
    values = parse_toml(text, source="expert_placements.toml").values
    return ExpertBook(
        source=values["source"],
        accelerators=tuple(values["accelerators"]),
        num_devices=values["num_devices"],
        placements={name: ExpertPlacement(**known) for name, known in values["placements"].items()},
    )
