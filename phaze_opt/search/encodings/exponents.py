"""`ExponentEncoding`: one independent exponent per axis, as most searches of such spaces have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.design import build_accelerator_table
from phaze_opt.search.encodings.encoding import Rejected, distributions_of, named
from phaze_opt.space.axes import Axes
from phaze_opt.space.codec import Parameter, axis_parameter, axis_parameters
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True, slots=True)
class ExponentEncoding:
    """Every axis by itself; what lies outside the area band is rejected (61 % of the Phaze space's candidates).

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """The axes in the order (GLB, width, depth, num_tc, num_vc, HBM, micro-batch)."""
        glb, width, depth, hbm, micro_batch = axis_parameters(self.space)
        axes = self.space.axes
        return (
            glb,
            width,
            depth,
            axis_parameter("num_tc", axes.num_tc),
            axis_parameter("num_vc", axes.num_vc),
            hbm,
            micro_batch,
        )

    def distributions(self) -> dict[str, BaseDistribution]:
        """One integer per axis of several values."""
        return distributions_of(self.parameters())

    def decode(self, params: Mapping[str, Any]) -> DesignPoint | Rejected:
        """The point, or how far its area lies outside the band."""
        positions = [int(params.get(known.name, known.low)) - known.low for known in self.parameters()]
        glb, width, depth, tc, vc, hbm, micro_batch = positions
        row = int(np.ravel_multi_index((glb, width, depth, tc), self.space.axes.shape))
        if self.space.kept.index_of(np.array([row]), np.array([vc]))[0] < 0:
            return Rejected(self._violation(self.space.axes, glb, width, depth, tc=tc, vc=vc))
        return self.space.point_at(row, vc, hbm=hbm, micro_batch=micro_batch)

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """Its position on every axis.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        glb, width, depth, tc, vc, hbm, micro_batch = self.space.positions(point)
        positions = (glb, width, depth, tc, vc, hbm, micro_batch)
        return named(self.parameters(), positions)

    def _violation(self, axes: Axes, glb: int, width: int, depth: int, *, tc: int, vc: int) -> float:
        """Area over the budget as a share of it, or area missing below the band as a share of the band's end."""
        table = build_accelerator_table(
            np.array([axes.num_tc[tc]]),
            np.array([axes.num_vc[vc]]),
            tc_width=np.array([axes.tc_width[width]]),
            tc_depth=np.array([axes.tc_depth[depth]]),
            glb_bytes=np.array([axes.glb_bytes[glb]]),
            hbm_bytes=np.array([axes.hbm_bytes[0]]),
            constants=load_constants(),
        )
        area_um2 = float(area_um2_table(table)[0])
        cap_um2 = min(self.space.area_budget_um2, self.space.max_area_um2)
        band_um2 = self.space.min_area_fraction * self.space.area_budget_um2
        return area_um2 / cap_um2 - 1.0 if area_um2 > cap_um2 else 1.0 - area_um2 / band_um2
