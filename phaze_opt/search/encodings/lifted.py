"""`LiftedEncoding`: semantics 8 to the letter, halvings below the largest that fits, then lifting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phaze_opt.search.encodings.lifts import HalvingsMapping, compile_lifts, decode_lifted
from phaze_opt.space.band import compile_band
from phaze_opt.space.codec import TC_HALVINGS, VC_HALVINGS, Parameter, axis_parameters
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True, slots=True)
class LiftedEncoding:
    """Halvings beyond the smallest value mean the smallest; a design under the area band is lifted into it.

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """GLB, width, depth, halvings of tensor and of vector cores, HBM, micro-batch."""
        *architecture, hbm, micro_batch = axis_parameters(self.space)
        lifts = compile_lifts(self.space)
        halvings = (Parameter(TC_HALVINGS, 0, lifts.num_tc_halvings), Parameter(VC_HALVINGS, 0, lifts.num_vc_halvings))
        return (*architecture, *halvings, hbm, micro_batch)

    def distributions(self) -> dict[str, BaseDistribution]:
        """One integer per parameter of several values."""
        from optuna.distributions import IntDistribution

        return {
            known.name: IntDistribution(known.low, known.low + known.count - 1)
            for known in self.parameters()
            if known.count > 1
        }

    def decode(self, params: Mapping[str, Any]) -> DesignPoint:
        """The kept point that a proposal means."""
        glb, width, depth, tc_halvings, vc_halvings, hbm, micro_batch = (
            int(params.get(known.name, known.low)) - known.low for known in self.parameters()
        )
        block = np.ravel_multi_index((glb, width, depth), self.space.axes.shape[:3])
        row, vc = decode_lifted(
            self.space,
            compile_band(self.space).block_of[[int(block)]],
            tc_halvings=np.array([tc_halvings]),
            vc_halvings=np.array([vc_halvings]),
            mapping=HalvingsMapping.CLAMP,
        )
        return self.space.point_at(int(row[0]), int(vc[0]), hbm=hbm, micro_batch=micro_batch)

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """The halvings that mean the point without being lifted.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        glb, width, depth, tc, vc, hbm, micro_batch = self.space.positions(point)
        block = int(np.ravel_multi_index((glb, width, depth), self.space.axes.shape[:3]))
        row = block * len(self.space.axes.num_tc) + tc
        tc_halvings = int(compile_lifts(self.space).num_tc_fitting[block]) - 1 - tc
        vc_halvings = int(self.space.kept.high[row]) - 1 - vc
        positions = (glb, width, depth, tc_halvings, vc_halvings, hbm, micro_batch)
        return {
            known.name: known.low + position
            for known, position in zip(self.parameters(), positions, strict=True)
            if known.count > 1
        }
