"""`ExponentEncoding`: one independent exponent per axis, as most searches of such spaces have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.design import chips_of
from phaze_opt.hardware.template import JOINED_AXES, DesignPoint, PointColumns
from phaze_opt.search.encodings.encoding import Rejected, distributions_of, named
from phaze_opt.space.axes import ROW_AXES
from phaze_opt.space.codec import Parameter, axis_parameters
from phaze_opt.space.search_space import Positions, SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_ORDER = (*ROW_AXES, "num_vc", *JOINED_AXES)


@dataclass(frozen=True, slots=True)
class ExponentEncoding:
    """Every axis by itself; what lies outside the area band is rejected (61 % of the Phaze space's candidates).

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """The axes in the order (GLB, width, depth, tensor cores, vector cores, HBM, micro-batch)."""
        return tuple(axis_parameters(self.space, _ORDER).values())

    def distributions(self) -> dict[str, BaseDistribution]:
        """One integer per axis of several values."""
        return distributions_of(self.parameters())

    def decode(self, params: Mapping[str, Any]) -> DesignPoint | Rejected:
        """The point, or how far its area lies outside the band."""
        known = axis_parameters(self.space, _ORDER)
        positions = Positions(**{name: int(params.get(p.name, p.low)) - p.low for name, p in known.items()})
        point = self.space.point_at(positions)
        return point if self.space.keeps(positions) else Rejected(self._violation(point))

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """Its position on every axis.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        positions = self.space.positions(point)
        return named(self.parameters(), [getattr(positions, name) for name in _ORDER])

    def _violation(self, point: DesignPoint) -> float:
        """Area over the budget as a share of it, or area missing below the band as a share of the band's end."""
        area_um2 = float(area_um2_table(chips_of(PointColumns.of([point]), load_constants()))[0])
        cap_um2 = min(self.space.area_budget_um2, self.space.max_area_um2)
        band_um2 = self.space.min_area_fraction * self.space.area_budget_um2
        return area_um2 / cap_um2 - 1.0 if area_um2 > cap_um2 else 1.0 - area_um2 / band_um2
