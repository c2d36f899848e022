"""Strategy ``spotlight-fixed``: Spotlight with fixed dataflows (Spotlight-F of Sakhuja et al., HPCA 2023), restated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze_opt.search.options import resolve_options
from phaze_opt.search.spotlight.dabo import DABO_OPTIONS, DaboRun
from phaze_opt.search.spotlight.spotlight import make_domain_features
from phaze_opt.search.strategy import ONE_GOAL, Capability, StrategyContext, StrategyRun
from phaze_opt.space.decode import PointColumns
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class SpotlightFixedStrategy:
    """The loop of ``spotlight`` over the designs whose array is as square as the space allows.

    Spotlight-F lets the search choose tile sizes but not how loops unroll over the array. Here the estimator tries
    every dataflow of every design, so no strategy chooses one; what a fixed unrolling takes from a hardware search is
    the choice of the array's shape, and that is what this variant gives up.
    """

    name: str = field(default="spotlight-fixed", init=False)
    capabilities: frozenset[Capability] = field(default=ONE_GOAL | {Capability.PROBES}, init=False)

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(self.name, context.options, known=DABO_OPTIONS)
        return DaboRun(
            context=context,
            options=options,
            make_features=make_domain_features,
            is_allowed=SquareArrays(least_imbalance(context.space)),
        )


@dataclass(frozen=True, slots=True)
class SquareArrays:
    """Allows points whose array is at most so far from square.

    Attributes:
        imbalance: largest |ln(width / depth)|.
    """

    imbalance: float

    def __call__(self, columns: PointColumns) -> NDArray[np.bool_]:
        """Which points are allowed."""
        return np.abs(np.log(columns.tc_width / columns.tc_depth)) <= self.imbalance * (1.0 + 1e-9) + 1e-9


def least_imbalance(space: SearchSpace) -> float:
    """Smallest |ln(width / depth)| of any kept point."""
    axes, shape = space.axes, space.axes.shape
    is_kept = (np.diff(space.kept.starts).reshape(shape) > 0).any(axis=(0, 3))
    imbalance = np.abs(np.log(np.divide.outer(np.array(axes.tc_width), np.array(axes.tc_depth))))
    return float(imbalance[is_kept].min())
