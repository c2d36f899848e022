"""What chips of a die model cost, as columns of many; by the 22 nm tables nothing is known of it."""

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.device_cost import DeviceCost, device_cost
from phaze_opt.hardware.economics.known_parts import parts_of_chips
from phaze_opt.hardware.economics.prices import load_prices


def chip_cost(
    chips: AcceleratorTable, constants: Constants, *, link_bytes_per_s: float, prices: Constants | None = None
) -> DeviceCost:
    """Cost of every device by part, USD.

    Args:
        chips: the chips.
        constants: that have a die (`silicon.has_die`).
        link_bytes_per_s: links one way of chips that state none: those of the network, or of the space's silicon.
        prices: in force; the package's by default.
    """
    parts = parts_of_chips(chips, constants, link_bytes_per_s=link_bytes_per_s)
    return device_cost(parts, load_prices() if prices is None else prices)
