"""A sharded model as a chain of layers, cut into a front, units and a back."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.part import PartGraph
from phaze_opt.workload.chain import ChainCut

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """A model as a chain of layers; identical layers appear once in ``layers`` and often in the chain.

    Attributes:
        model: name of the model.
        tensor_parallel: degree t it is sharded for.
        layers: the distinct layers.
        cut: the chain as front, units and back, by index into ``layers``.
    """

    model: str
    tensor_parallel: int
    layers: tuple[LayerGraph, ...]
    cut: ChainCut

    def __post_init__(self) -> None:
        """Check that the chain refers to layers."""
        if self.cut.num_kinds > len(self.layers):
            message = f"model graph '{self.model}': a chain of {self.cut.num_kinds} kinds has {len(self.layers)} layers"
            raise InputError(message)

    @property
    def chain(self) -> tuple[int, ...]:
        """Index into ``layers`` of each position 0..n-1."""
        return self.cut.chain

    @property
    def parts(self) -> tuple[PartGraph, ...]:
        """Front, every kind of unit, and back."""
        first, *_, last = self.cut.roots
        num_parts = len(self.cut.parts)
        return tuple(
            PartGraph(
                tuple(self.layers[kind] for kind in kinds),
                num_first=len(first) if part == 0 else 0,
                num_last=len(last) if part == num_parts - 1 else 0,
                before=self._before(part),
            )
            for part, kinds in enumerate(self.cut.parts)
        )

    def _before(self, part: int) -> LayerGraph | None:
        kind = self.cut.before(part)
        return None if kind is None else self.layers[kind]

    @property
    def part_counts(self) -> NDArray[np.int64]:
        """How often each distinct layer comes in each part, shape (parts, num_distinct_layers)."""
        return self._counts(self.cut.parts)

    def _counts(self, parts: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
        return np.array([[part.count(kind) for kind in range(len(self.layers))] for part in parts], np.int64)

    def of_parts(self, values: Floats, *, axis: int = 0, is_again: bool = False) -> Floats:
        """Sums over the layers of each part.

        Args:
            values: of the distinct layers along one axis, which that of the parts takes the place of.
            axis: which one.
            is_again: of the layers that recomputation runs again alone: all but the first and the last of the model.
        """
        counts = self._counts(self.cut.inner if is_again else self.cut.parts)
        if np.array_equal(counts, np.eye(len(counts))):
            return values
        of_layers = np.moveaxis(values, axis, 0)
        parts = np.zeros((len(counts), *of_layers.shape[1:]))
        for part, own in enumerate(counts.tolist()):
            for count, value in zip(own, of_layers, strict=True):
                parts[part] += count * value
        return np.ascontiguousarray(np.moveaxis(parts, 0, axis))
