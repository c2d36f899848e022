"""Where a chip stands in its space: ends of axes, limits that one step more breaks, budgets that no chip keeps to."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.chip_template import AXES, CHIP_AXES, DesignPoint, PointColumns
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.silicon.chip_silicon import Dies, chip_area_mm2, chip_power_w
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Floats
from phaze_opt.record.near_ties import comparable
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import um2_to_mm2


@dataclass(frozen=True, slots=True)
class AxisEnd:
    """A parameter at an end of its axis, in the units of its key."""

    key: str
    value: float
    is_high: bool


@dataclass(frozen=True, slots=True)
class BindingLimit:
    """A limit that one step more of each of some parameters breaks: its name and their keys."""

    name: str
    keys: tuple[str, ...]


def design_of(chip: Accelerator, micro_batch: int, space: SearchSpace) -> DesignPoint:
    """The chip by the parameters that a space has values of; others stay as no design states them.

    Raises:
        InputError: a number of it is not positive.
    """
    values = {axis.name: getattr(chip, axis.name) for axis in AXES if hasattr(chip, axis.name)}
    values["glb_bytes_per_cycle"] = round(chip.glb_bandwidth_bytes_per_s / chip.clock_hz)
    values["micro_batch"] = micro_batch
    unsaid = {axis.name for axis in AXES if axis.default is not None and not getattr(space.axes, axis.name)}
    return DesignPoint(**{name: value for name, value in values.items() if name not in unsaid})


def ends_of(point: DesignPoint, space: SearchSpace) -> tuple[AxisEnd, ...]:
    """Parameters of a design at an end of their axis; one is no end, as nothing can be less, and kinds have no ends."""
    found = []
    for axis in (axis for axis in AXES if not axis.choices):
        values, value = getattr(space.axes, axis.name), getattr(point, axis.name)
        if len(values) > 1 and value in (values[0], values[-1]) and value != 1:
            found.append(AxisEnd(axis.key, axis.amount(value), value == values[-1]))
    return tuple(found)


def binding_limits(
    point: DesignPoint,
    space: SearchSpace,
    network: Network,
    constants: Constants,
    *,
    max_area_mm2: float | None = None,
    max_tdp_w: float | None = None,
) -> tuple[BindingLimit, ...]:
    """Limits that hold a design back: each with the parameters of which one step more on their axis breaks it.

    Args:
        point: the design.
        space: on whose axes it is; what is not on them is held by nothing.
        network: whose links it drives.
        constants: in force.
        max_area_mm2: budget beside the space's own.
        max_tdp_w: budget.
    """
    larger = _steps_up(point, space)
    if not larger:
        return ()
    chips = chips_of(PointColumns.of([point, *larger.values()]), constants)
    cap_mm2 = um2_to_mm2(min(space.area_budget_um2, space.max_area_um2))
    limit_mm2 = min(cap_mm2, cap_mm2 if max_area_mm2 is None else max_area_mm2)
    kept = {f"the area of {limit_mm2:g} mm2": comparable(chip_area_mm2(chips, constants)) <= comparable(limit_mm2)}
    if max_tdp_w is not None:
        power_w = chip_power_w(chips, network, constants)
        kept[f"the TDP of {max_tdp_w:g} W"] = comparable(power_w) <= comparable(max_tdp_w)
    if has_die(constants):
        kept |= {limit.value: held.is_kept for limit, held in Dies.of(chips, constants).limits.items()}
    found = []
    for name, flags in kept.items():
        is_kept = np.broadcast_to(flags, (1 + len(larger),))
        keys = tuple(key for key, is_legal in zip(larger, is_kept[1:], strict=True) if is_kept[0] and not is_legal)
        if keys:
            found.append(BindingLimit(name, keys))
    return tuple(found)


_CHUNK = 1 << 16
"""Chips priced at once."""


def unmet_budget(space: SearchSpace, scenario: Scenario, constants: Constants) -> str:
    """Which budget no chip of a space keeps to, and the least that one takes; empty where some keep to all budgets.

    Budgets are asked in the order area, TDP, capex, each of the chips that keep to those before it.
    """
    devices, network = scenario.cluster.num_devices, scenario.cluster.network
    asked: list[tuple[str, str, float, Callable[[AcceleratorTable], Floats]]] = []
    if scenario.max_area_mm2 is not None:
        asked.append(("area", "mm2", scenario.max_area_mm2, lambda chips: chip_area_mm2(chips, constants)))
    if scenario.max_tdp_w is not None:
        asked.append(("TDP", "W", scenario.max_tdp_w, lambda chips: chip_power_w(chips, network, constants)))
    if scenario.max_capex_usd is not None:
        of = f"USD for {devices:,} devices"
        asked.append(
            ("capex", of, scenario.max_capex_usd, lambda chips: devices * device_usd(chips, scenario, constants))
        )
    if not asked or not space.size:
        return ""
    takes = _takes(space, constants, [price for *_, price in asked])
    is_kept, before = np.ones(takes.shape[1], dtype=np.bool_), ""
    for (name, unit, budget, _), each in zip(asked, takes, strict=True):
        least = float(each[is_kept].min())
        if least / budget - 1.0 > 0.0:
            of = f"of the chips within {before} " if before else ""
            return (
                f"no chip of the space {space.name} keeps to the {name} budget of {budget:,.10g} {unit}: {of}the least "
                f"that one takes is {math.ceil(10.0 * least) / 10.0:,.1f} {unit.split()[0]}; allow as much, or give "
                "another space"
            )
        is_kept &= each / budget - 1.0 <= 0.0
        before += f"{' and ' if before else ''}{budget:,.10g} {unit}"
    return ""


def why_infeasible(space: SearchSpace, scenario: Scenario, constants: Constants) -> str:
    """Why no point of a space can train, where that is proved: a budget that no chip keeps to, or else memory."""
    is_limited = scenario != scenario.without_budgets()
    chips = "chip within the budgets" if is_limited else "point of the space"
    memory = f"no {chips} holds what it trains in its memory, under any plan that the options allow"
    return unmet_budget(space, scenario, constants) or memory


def _takes(space: SearchSpace, constants: Constants, prices: Sequence[Callable[[AcceleratorTable], Floats]]) -> Floats:
    """What each chip of a space takes, shape (num_prices, num_chips): the micro-batch, which varies fastest, aside."""
    indices, found = np.arange(0, space.size, len(space.axes.micro_batch)), []
    for start in range(0, len(indices), _CHUNK):
        chips = chips_of(space.columns(indices[start : start + _CHUNK]), constants)
        found.append([np.broadcast_to(price(chips), len(chips)) for price in prices])
    return np.concatenate(found, axis=1)


def free_keys(point: DesignPoint, space: SearchSpace, limits: tuple[BindingLimit, ...]) -> tuple[str, ...]:
    """Parameters that have a next value which breaks no limit."""
    held = {key for limit in limits for key in limit.keys}
    return tuple(key for key in _steps_up(point, space) if key not in held)


def _steps_up(point: DesignPoint, space: SearchSpace) -> dict[str, DesignPoint]:
    """The design with one step more of each parameter, by key; nothing of those off their axis or at its end."""
    return dict(_each_step(point, space))


def _each_step(point: DesignPoint, space: SearchSpace) -> Iterator[tuple[str, DesignPoint]]:
    try:
        positions = space.positions(point)
    except InputError:
        return
    for axis in CHIP_AXES:
        place = getattr(positions, axis.name) + 1
        if place < len(getattr(space.axes, axis.name)):
            yield axis.key, space.point_at(replace(positions, **{axis.name: place}))
