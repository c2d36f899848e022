"""What chips of a die model cost, as columns of many; by the 22 nm tables nothing is known of it."""

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.device_cost import DeviceCost, DeviceParts, device_cost
from phaze_opt.hardware.economics.prices import load_prices
from phaze_opt.hardware.silicon.chip_silicon import Dies

Floats = NDArray[np.float64]


def chip_cost(chips: AcceleratorTable, constants: Constants, *, link_bytes_per_s: float | None = None) -> DeviceCost:
    """Cost of every device by part, USD, at the package's prices.

    Args:
        chips: the chips.
        constants: that have a die (`silicon.has_die`).
        link_bytes_per_s: links one way of chips that state none; those of the constants' silicon by default.
    """
    dies = Dies.of(chips, constants, link_bytes_per_s=link_bytes_per_s)
    stacks, links = (
        np.broadcast_to(np.asarray(column, dtype=np.float64), dies.area.total.shape)
        for column in (dies.columns.hbm_stacks, dies.columns.link_bytes_per_s)
    )
    memory_bytes = stacks * dies.model.stack.capacity_bytes
    parts = DeviceParts(
        dies.model.process.name, dies.area.total, dies.edge.package_mm2, stacks, memory_bytes, links, dies.power.total
    )
    return device_cost(parts, load_prices())
