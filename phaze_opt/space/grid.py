"""All designs of the axes by one index, kept or not, so that a design has the same index wherever it is a die."""

import math
from dataclasses import dataclass, fields

import numpy as np

from phaze_opt.hardware.chip_template import JOINED_AXES, DesignPoint, PointColumns
from phaze_opt.record.arrays import Flags, Ints
from phaze_opt.space.axes import Axes
from phaze_opt.space.frontier import FrontierRows
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of a space's axes, in the order of `SearchSpace.point`."""

    space: SearchSpace

    @property
    def axes(self) -> Axes:
        """The space's."""
        return self.space.axes

    @property
    def size(self) -> int:
        """Combinations."""
        return math.prod(self._shape)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (math.prod(self.axes.shape), len(self.axes.num_vc), *self.axes.joined_shape)

    def columns(self, indices: Ints) -> PointColumns:
        """The designs with these indices, in their order, unchecked."""
        row, vc, *joined = np.unravel_index(indices, self._shape)
        return self.space.columns_at(row, vc, joined)

    def point(self, index: int) -> DesignPoint:
        """The design with this index."""
        return next(iter(self.columns(np.array([index], dtype=np.int64))))

    def index(self, point: DesignPoint) -> int:
        """Index of a design; the inverse of `point`.

        Raises:
            InputError: a value is not on its axis.
        """
        positions = self.space.positions(point)
        joined = [getattr(positions, name) for name in JOINED_AXES]
        return int(np.ravel_multi_index((self.space.row_of(positions), positions.num_vc, *joined), self._shape))

    def of(self, part: SearchSpace) -> Ints:
        """Indices of all points of a space of the same axes, in their order."""
        architecture, *joined = np.unravel_index(
            np.arange(part.size, dtype=np.int64), (max(1, part.num_architectures), *self.axes.joined_shape)
        )
        found = np.ravel_multi_index((*part.members.row_and_vc(architecture), *joined), self._shape)
        return np.asarray(found, dtype=np.int64)

    def holds(self, mask: Flags, indices: Ints) -> Flags:
        """Which designs have an architecture of a mask (`space.frontier.mask_of`)."""
        row, vc, *_ = np.unravel_index(indices, self._shape)
        return np.asarray(mask[row, vc])


@dataclass(frozen=True, slots=True)
class PartOfSpace(SearchSpace):
    """Architectures of a space that are listed."""

    listed: FrontierRows | None = None

    @property
    def members(self) -> FrontierRows:
        """What the part's indices count."""
        assert self.listed is not None
        return self.listed

    @classmethod
    def of(cls, space: SearchSpace, listed: FrontierRows) -> "PartOfSpace":
        """The listed architectures of a space."""
        whole = {each.name: getattr(space, each.name) for each in fields(SearchSpace) if each.name != "frontier"}
        return cls(**whole, listed=listed)
