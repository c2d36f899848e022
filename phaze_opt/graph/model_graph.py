"""A sharded model as a chain of layers, cut into a front, units and a back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.graph.layer import BorderTensor, LayerGraph, PartGraph
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.workload.chain import ChainCut

Held = tuple[int, BorderTensor]
"""A block, by its place in the chain, and a tensor as it crosses the block's border."""


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
                is_apart=self.cut.branches is not None,
            )
            for part, kinds in enumerate(self.cut.parts)
        )

    def _before(self, part: int) -> LayerGraph | None:
        kind = self.cut.before(part)
        return None if kind is None else self.layers[kind]

    def border_tensors(self) -> Iterator[tuple[Held, tuple[Held, ...]]]:
        """Every tensor that crosses borders of blocks with branches: with the block that makes it, and its readers."""
        branches = self.cut.branches
        if branches is None:
            return
        readers: dict[int, list[Held]] = {}
        for place, (kind, numbers) in enumerate(zip(self.chain, branches.reads, strict=True)):
            for number, tensor in zip(numbers, self.layers[kind].reads, strict=True):
                readers.setdefault(number, []).append((place, tensor))
        for place, (kind, numbers) in enumerate(zip(self.chain, branches.makes, strict=True)):
            for number, tensor in zip(numbers, self.layers[kind].makes, strict=True):
                yield (place, tensor), tuple(readers.get(number, ()))

    def crossing_bytes(self, inside: Flags) -> Floats:
        """What crosses from some blocks, with all that these are made of, to the others, one direction.

        Args:
            inside: whether each block of the chain is among them, shape (sets, blocks).
        """
        total = np.zeros(len(inside))
        for (maker, tensor), readers in self.border_tensors():
            places = [place for place, _ in readers]
            total += tensor.num_bytes * (inside[:, maker] & ~inside[:, places].all(axis=1))
        return total

    @property
    def part_counts(self) -> Ints:
        """How often each distinct layer comes in each part, shape (parts, num_distinct_layers)."""
        return self._counts(self.cut.parts)

    def _counts(self, parts: Sequence[tuple[int, ...]]) -> Ints:
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
