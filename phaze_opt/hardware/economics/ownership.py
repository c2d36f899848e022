"""What a cluster costs over its life and a training run on it, in money, energy and CO2."""

from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.device_cost import G_PER_KG, DeviceCost
from phaze_opt.hardware.economics.prices import DEFAULT_GRID, grid_g_per_kwh
from phaze_opt.record.arrays import Floats

HOURS_PER_YEAR = 8760.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
W_PER_KW = 1000.0


@dataclass(frozen=True, slots=True)
class Ownership:
    """A cluster over its life; columns of shape (num_designs,).

    Attributes:
        capex_usd: of all devices.
        electricity_usd: that they draw.
        trained_s: seconds of its life that it trains.
        embodied_kg, operational_kg: CO2e of making and of running it.
    """

    capex_usd: Floats
    electricity_usd: Floats
    trained_s: float
    embodied_kg: Floats
    operational_kg: Floats

    @property
    def tco_usd(self) -> Floats:
        """Total cost of ownership."""
        return self.capex_usd + self.electricity_usd

    @property
    def usd_per_s(self) -> Floats:
        """Total cost of a second of training."""
        return self.tco_usd / self.trained_s

    @property
    def kg_per_s(self) -> Floats:
        """CO2e of a second of training, its share of making the cluster included."""
        return (self.embodied_kg + self.operational_kg) / self.trained_s


@dataclass(frozen=True, slots=True)
class RunCost:
    """What it takes to train on so many tokens.

    Attributes:
        days: without interruptions.
        usd: share of the cluster's total cost.
        kwh: drawn, those of the site included.
        kg: CO2e, a share of making the cluster included.
    """

    days: float
    usd: float
    kwh: float
    kg: float


def own_cluster(
    cost: DeviceCost,
    *,
    num_devices: int,
    power_w: Floats,
    embodied_kg: Floats,
    known: Constants,
    grid: str = DEFAULT_GRID,
) -> Ownership:
    """The life of a cluster.

    Args:
        cost: of one device.
        num_devices: of the cluster.
        power_w: that one device draws while it trains.
        embodied_kg: CO2e of making one device.
        known: prices.
        grid: that the cluster runs on.

    Raises:
        InputError: an unknown grid.
    """
    trained_s = _trained_s(known)
    kwh = num_devices * site_kw(power_w, known) * trained_s / SECONDS_PER_HOUR
    return Ownership(
        capex_usd=num_devices * cost.usd,
        electricity_usd=kwh * known.value("ownership.usd_per_kwh"),
        trained_s=trained_s,
        embodied_kg=num_devices * embodied_kg,
        operational_kg=kwh * grid_g_per_kwh(grid, known) / G_PER_KG,
    )


def usd_of_a_second(device_usd: Floats, power_w: Floats, *, num_devices: int, known: Constants) -> Floats:
    """Total cost of a second of training of clusters, USD: `Ownership.usd_per_s` by the price of a device.

    Args:
        device_usd: of each.
        power_w: that one device draws while it trains.
        num_devices: of the cluster.
        known: prices.
    """
    usd_per_hour = site_kw(power_w, known) * known.value("ownership.usd_per_kwh")
    return np.asarray(num_devices * (device_usd / _trained_s(known) + usd_per_hour / SECONDS_PER_HOUR))


def _trained_s(known: Constants) -> float:
    """Seconds of a cluster's life that it trains."""
    return known.value("ownership.years") * HOURS_PER_YEAR * SECONDS_PER_HOUR * known.value("ownership.utilisation")


def site_kw(power_w: Floats, known: Constants) -> Floats:
    """What the site draws for one device, kW."""
    return np.asarray(known.value("ownership.pue") * power_w / W_PER_KW)


def run_days(tokens: float, tokens_per_s: float) -> float:
    """Days that training on so many tokens takes, without interruptions."""
    return tokens / tokens_per_s / SECONDS_PER_DAY


def training_run(
    owned: Ownership, *, tokens: float, tokens_per_s: float, num_devices: int, power_w: float, known: Constants
) -> RunCost:
    """A run of so many tokens on one whole cluster.

    Raises:
        InputError: tokens that are not above 0.
    """
    if not tokens > 0.0:
        message = f"{tokens:g} must be above 0"
        raise InputError(message, key="tokens")
    seconds = tokens / tokens_per_s
    return RunCost(
        days=run_days(tokens, tokens_per_s),
        usd=float(seconds * owned.usd_per_s),
        kwh=float(num_devices * site_kw(np.asarray(power_w), known) * seconds / SECONDS_PER_HOUR),
        kg=float(seconds * owned.kg_per_s),
    )
