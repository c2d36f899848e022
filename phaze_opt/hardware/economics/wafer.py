"""Good dies of a wafer and what one costs, after Chiplet Actuary (Feng and Ma, DAC 2022)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MM2_PER_CM2 = 100.0


@dataclass(frozen=True, slots=True)
class Wafer:
    """A process as a foundry sells it.

    Attributes:
        usd: of a wafer.
        defects_per_cm2: their density.
        clusters: of the negative binomial yield: few where defects come in clusters, which spares dies.
        diameter_mm, scribe_mm, edge_mm: of the wafer, between dies, and lost at its edge.
    """

    usd: float
    defects_per_cm2: float
    clusters: float = 10.0
    diameter_mm: float = 300.0
    scribe_mm: float = 0.2
    edge_mm: float = 5.0

    def num_dies(self, area_mm2: Floats) -> Floats:
        """Square dies of a wafer, good and bad: a mean, not rounded; 0 where not one fits, shape (num_designs,)."""
        side = np.sqrt(area_mm2) + self.scribe_mm
        usable = self.diameter_mm - 2.0 * self.edge_mm
        dies = math.pi * (usable / 2.0) ** 2 / side**2 - math.pi * usable / (math.sqrt(2.0) * side)
        return np.asarray(np.where(dies >= 1.0, dies, 0.0))

    def share_good(self, area_mm2: Floats) -> Floats:
        """Yield: the share of dies without a defect, shape (num_designs,)."""
        return np.asarray((1.0 + self.defects_per_cm2 * area_mm2 / MM2_PER_CM2 / self.clusters) ** -self.clusters)

    def usd_of_good_die(self, area_mm2: Floats) -> Floats:
        """Cost of the wafer over its good dies, shape (num_designs,); inf where not one fits."""
        good = self.num_dies(area_mm2) * self.share_good(area_mm2)
        return np.asarray(np.divide(self.usd, good, out=np.full(np.shape(good), np.inf), where=good > 0.0))
