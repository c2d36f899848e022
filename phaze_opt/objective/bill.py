"""The bill of a cluster that trains: what it costs to buy and to run, what a run costs, and which prices decide."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.device_cost import (
    DeviceCost,
    DeviceParts,
    chip_cost,
    device_cost,
    embodied_kg,
    parts_of_chip,
    parts_of_chips,
)
from phaze_opt.hardware.economics.ownership import Ownership, RunCost, own_cluster, training_run, usd_of_a_second
from phaze_opt.hardware.economics.prices import DEFAULT_GRID, grid_g_per_kwh, prices_with
from phaze_opt.hardware.silicon.silicon import has_die, link_rate
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Floats
from phaze_opt.record.result_fields import Better, Digits, declares, result_field

DECIDES = 0.001
"""A price whose whole range moves samples per USD by less decides nothing."""


@dataclass(frozen=True, slots=True)
class CostTerms:
    """At what prices, on which grid, and for how many tokens costs are asked.

    Attributes:
        prices: in force.
        grid: that the cluster runs on.
        tokens: of a training run; None for none.
    """

    prices: Constants
    grid: str = DEFAULT_GRID
    tokens: float | None = None

    def __post_init__(self) -> None:
        """Refuse a grid that is not known."""
        grid_g_per_kwh(self.grid, self.prices)


@dataclass(frozen=True, slots=True)
class Bill:
    """What a cluster costs and what is trained for it.

    All power is that at full rate (TDP), for designs and machines alike: an upper bound, so that they compare.

    Attributes:
        parts: of one device.
        device: what one costs, part by part.
        owned: the cluster over its life.
        num_devices: of the cluster.
        terms: prices, grid and tokens.
        samples_per_s, tokens_per_s: that it trains.
        run: the training run asked for; None for none.
        modelled_throughput_per_joule: by the modelled energy, not by TDP; None where none is modelled.
    """

    parts: DeviceParts
    device: DeviceCost
    owned: Ownership
    num_devices: int
    terms: CostTerms
    samples_per_s: float
    tokens_per_s: float
    run: RunCost | None
    modelled_throughput_per_joule: float | None = result_field(
        "modelled samples/J", "samples/J", "by the modelled energy of an iteration", better=Better.HIGHER
    )

    @property
    @declares("a device", "USD", "to buy", better=Better.LOWER, is_headline=True)
    def device_usd(self) -> float:
        """Of one device."""
        return float(self.device.usd)

    @property
    @declares("capex", "USD", "of all devices", better=Better.LOWER, is_headline=True, digits=Digits.AMOUNT)
    def capex_usd(self) -> float:
        """Of all devices."""
        return float(self.owned.capex_usd)

    @property
    @declares("electricity", "USD", "over their life", better=Better.LOWER, digits=Digits.AMOUNT)
    def electricity_usd(self) -> float:
        """Over the life of the cluster."""
        return float(self.owned.electricity_usd)

    @property
    @declares("total cost of ownership", "USD", "both together", better=Better.LOWER, digits=Digits.AMOUNT)
    def tco_usd(self) -> float:
        """Capex and electricity."""
        return float(self.owned.tco_usd)

    @property
    @declares("samples/USD", "samples/USD", "of the total cost of ownership", better=Better.HIGHER)
    def throughput_per_usd(self) -> float:
        """Samples for a dollar of the total cost of ownership."""
        return float(self.samples_per_s / self.owned.usd_per_s)

    @property
    @declares("USD a token", "USD", "of the total cost of ownership", better=Better.LOWER)
    def usd_per_token(self) -> float:
        """Of the total cost of ownership."""
        return float(self.owned.usd_per_s / self.tokens_per_s)

    @property
    @declares("samples/J", "samples/J", "at full rate (TDP)", better=Better.HIGHER)
    def throughput_per_joule(self) -> float:
        """Samples for a joule that the devices draw at full rate."""
        return float(self.samples_per_s / (self.num_devices * self.parts.tdp_w))

    @property
    @declares("CO2e to make it", "kg", "the cluster", better=Better.LOWER)
    def embodied_kg(self) -> float:
        """To make the cluster."""
        return float(self.owned.embodied_kg)

    @property
    @declares("CO2e to run it", "kg", "over its life", better=Better.LOWER)
    def operational_kg(self) -> float:
        """To run the cluster."""
        return float(self.owned.operational_kg)

    def usd_per_token_at(self, prices: Constants) -> float:
        """The same at other prices."""
        device = device_cost(self.parts, prices).usd
        per_s = usd_of_a_second(device, self.parts.tdp_w, num_devices=self.num_devices, known=prices)
        return float(per_s / self.tokens_per_s)

    @property
    def samples_per_kg(self) -> float:
        """Samples for a kilogram of CO2e."""
        return float(self.samples_per_s / self.owned.kg_per_s)


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """A figure, and what it comes to with one price alone at an end of its range.

    Attributes:
        value: at the prices in force.
        low, high: the least and the largest.
        low_price, high_price: keys of the prices that give these; empty where none goes beyond the value.
    """

    value: float
    low: float
    high: float
    low_price: str
    high_price: str


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What the range of one price does to samples per USD and per kg.

    Attributes:
        key, unit, value, low, high: the price and its range.
        usd_low, usd_high: samples per USD at the ends of the range over those at its value.
        kg_low, kg_high: samples per kg of CO2e likewise.
    """

    key: str
    unit: str
    value: float
    low: float
    high: float
    usd_low: float
    usd_high: float
    kg_low: float
    kg_high: float

    @property
    def usd_span(self) -> float:
        """Width of what it does to samples per USD."""
        return abs(self.usd_high - self.usd_low)


def cluster_bill(parts: DeviceParts, evaluation: Evaluation, terms: CostTerms, *, num_devices: int) -> Bill:
    """The bill of a cluster of equal devices.

    Args:
        parts: of one device.
        evaluation: a feasible one of what is trained on them.
        terms: prices, grid and tokens.
        num_devices: of the cluster, idle ones too.
    """
    known = terms.prices
    device = device_cost(parts, known)
    owned = own_cluster(
        device,
        num_devices=num_devices,
        power_w=parts.tdp_w,
        embodied_kg=embodied_kg(parts, known),
        known=known,
        grid=terms.grid,
    )
    joules = evaluation.known("energy_per_iteration_j")
    rate = evaluation.throughput_samples_per_s
    run = None
    if terms.tokens is not None:
        run = training_run(
            owned,
            tokens=terms.tokens,
            tokens_per_s=evaluation.throughput_tokens_per_s,
            num_devices=num_devices,
            power_w=float(parts.tdp_w),
            known=known,
        )
    modelled = rate * evaluation.iteration_time_s / joules if joules else None
    tokens_per_s = evaluation.throughput_tokens_per_s
    return Bill(parts, device, owned, num_devices, terms, rate, tokens_per_s, run, modelled)


def bill_of_design(evaluation: Evaluation, scenario: Scenario, constants: Constants, terms: CostTerms) -> Bill | None:
    """The bill of a design that a search or a proof found; None by the 22 nm tables and where it is infeasible.

    Args:
        evaluation: of the design.
        scenario: what it trains, and on how many devices.
        constants: those of the silicon (`Scenario.constants_of`).
        terms: prices, grid and tokens.
    """
    if not evaluation.is_feasible or not has_die(constants):
        return None
    parts = parts_of_design(evaluation.accelerator, scenario, constants)
    return cluster_bill(parts, evaluation, terms, num_devices=scenario.cluster.num_devices)


def parts_of_design(chip: Accelerator, scenario: Scenario, constants: Constants) -> DeviceParts:
    """What the cost of a design is made of, under constants that have a die."""
    links = link_rate(scenario.cluster.network)
    return parts_of_chip(chip, constants, link_bytes_per_s=links)


def device_usd(
    chips: AcceleratorTable, scenario: Scenario, constants: Constants, prices: Constants | None = None
) -> Floats:
    """What a device of each design costs, USD, shape (num_chips,); see `own_chips`."""
    prices = prices_with(scenario.prices or ()) if prices is None else prices
    links = link_rate(scenario.cluster.network)
    return chip_cost(chips, constants, link_bytes_per_s=links, prices=prices).usd


def own_chips(
    chips: AcceleratorTable, scenario: Scenario, constants: Constants, prices: Constants | None = None
) -> Ownership:
    """Clusters of many designs over their lives, columns of shape (num_chips,): capex, TCO, USD a second of training.

    All power is that at full rate, so that throughput per USD is throughput over a figure of the chip alone.

    Args:
        chips: designs, under constants that have a die.
        scenario: says devices and network; its chips may state links of their own.
        constants: those of the silicon (`Scenario.constants_of`).
        prices: in force; those of the scenario by default.
    """
    prices = prices_with(scenario.prices or ()) if prices is None else prices
    parts = parts_of_chips(chips, constants, link_bytes_per_s=link_rate(scenario.cluster.network))
    return own_cluster(
        device_cost(parts, prices),
        num_devices=scenario.cluster.num_devices,
        power_w=parts.tdp_w,
        embodied_kg=embodied_kg(parts, prices),
        known=prices,
    )


def token_span(bill: Bill) -> PriceSpan:
    """USD a token."""
    return _span(bill.usd_per_token_at, bill.terms.prices)


def token_ratio_span(bill: Bill, other: Bill) -> PriceSpan:
    """USD a token over those of another bill, the same price moved in both."""

    def ratio(prices: Constants) -> float:
        return bill.usd_per_token_at(prices) / other.usd_per_token_at(prices)

    return _span(ratio, bill.terms.prices)


def _span(figure: Callable[[Constants], float], known: Constants) -> PriceSpan:
    """A figure over the range of every price."""
    value = figure(known)
    ends = [
        (figure(known.with_overrides({key: end})), key)
        for key in known.uncertain
        for end in (known.entries[key].low, known.entries[key].high)
    ]
    low, high = min([(value, ""), *ends]), max([(value, ""), *ends])
    return PriceSpan(value, low[0], high[0], low[1], high[1])


def vary_prices(evaluation: Evaluation, bill: Bill) -> tuple[PriceRow, ...]:
    """What the range of each price does, widest first; prices that change nothing of this bill are left out."""
    return tuple(sorted(_vary(evaluation, bill), key=lambda row: (-row.usd_span, row.key)))


def _vary(evaluation: Evaluation, bill: Bill) -> Iterator[PriceRow]:
    known = bill.terms.prices
    keys = known.uncertain_with(() if float(bill.parts.num_dies) == 1.0 else ("chiplets",))

    def over(key: str, value: float) -> tuple[float, float]:
        terms = CostTerms(known.with_overrides({key: value}), bill.terms.grid)
        other = cluster_bill(bill.parts, evaluation, terms, num_devices=bill.num_devices)
        return other.throughput_per_usd / bill.throughput_per_usd, other.samples_per_kg / bill.samples_per_kg

    for key in keys:
        entry = known.entries[key]
        (usd_low, kg_low), (usd_high, kg_high) = over(key, entry.low), over(key, entry.high)
        if {usd_low, usd_high, kg_low, kg_high} != {1.0}:
            yield PriceRow(key, entry.unit, entry.value, entry.low, entry.high, usd_low, usd_high, kg_low, kg_high)
