"""What chips are built of: a die of a process with stacks of HBM, or Phaze's tables at 22 nm.

The choice is part of the constants that all is priced with: `with_die` adds those of the die model, under ``die.``, to
the package's. So whatever varies constants (ranges, sensitivities, worlds) varies the die. `chip_silicon` prices chips
by whichever silicon the constants have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constant, Constants, EstimatorOption, load_constants
from phaze_opt.hardware.designed_chip import GENERATION
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.network import Network, with_bandwidths
from phaze_opt.hardware.silicon.die_constants import (
    AREA_GROUP,
    AreaConstants,
    DieProcess,
    HbmGeneration,
    HbmStack,
    PowerConstants,
    area_constants,
    hbm_stack,
    load_die_constants,
    power_constants,
    process_of,
)
from phaze_opt.units import GIBI, GIGA, PICO

SILICON, DIE = "silicon", "die"
"""Option of constants, and its choice; chips under constants without it are built by the 22 nm tables."""
_PROCESS, _RESIDENCY = "process", "residency"
DIE_PREFIX = f"{DIE}."
LINK_RATE = f"{DIE_PREFIX}link.bytes_per_s"
_STACKS = "hbm.stack_"
_OF_DIES = (DIE_PREFIX, _STACKS, "arrays.")
"""Constants that dies are priced by."""
_OF_TABLES = ("area.", "energy.", "hbm.fixed_")
"""Constants that a die has no use for."""
GENERATION_OF: Mapping[str, str] = MappingProxyType(
    {"n28": "hbm2", "n16": "hbm2", "n8": "hbm2e", "n7": "hbm2e", "n6": "hbm2e", "n5": "hbm3", "n3": "hbm3e"}
)
"""HBM that chips of a process came with."""


@dataclass(frozen=True, slots=True)
class Silicon:
    """What a chip's die is built of.

    Attributes:
        nanometres: of its process, 28 to 3.
        hbm_generation: of its stacks.
        link_bytes_per_s: that its links carry, one way, all dimensions of its network together.
        values: constants by key that are other than the package's, as a world of assumptions has them.
    """

    nanometres: int
    hbm_generation: str
    link_bytes_per_s: float
    values: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what the die model does not know."""
        process_of(self.nanometres, key="process_nm")
        hbm_stack(self.hbm_generation)
        if not (np.isfinite(self.link_bytes_per_s) and self.link_bytes_per_s >= 0):
            message = f"{self.link_bytes_per_s} must be a finite number of bytes/s"
            raise InputError(message, key="link_bytes_per_s")

    @property
    def stack(self) -> HbmStack:
        """One stack of its HBM."""
        return hbm_stack(self.hbm_generation)


def silicon_of(nanometres: int, network: Network, *, hbm_generation: str | None = None) -> Silicon:
    """The silicon of chips that drive a network; HBM is that which chips of the process came with unless given."""
    generation = hbm_generation or GENERATION_OF[process_of(nanometres, key="process_nm").name]
    return Silicon(nanometres, generation, link_rate(network))


def link_rate(network: Network) -> float:
    """Bytes/s of a device's links, one way, all dimensions together."""
    return sum(dimension.bandwidth_bytes_per_s for dimension in network.dimensions)


def with_link_rate(network: Network, link_bytes_per_s: float) -> Network:
    """The network of devices with other links: every dimension keeps its share of them, and its latency.

    Args:
        network: of the cluster.
        link_bytes_per_s: as of `link_rate`; 0 for the network's own.
    """
    own = link_rate(network)
    if link_bytes_per_s in (0.0, own):
        return network
    scaled = [dimension.bandwidth_bytes_per_s * (link_bytes_per_s / own) for dimension in network.dimensions]
    return with_bandwidths(network, scaled)


def with_die(constants: Constants, silicon: Silicon) -> Constants:
    """Constants under which chips are dies of ``silicon``.

    Areas are those fitted to whole dies, with the deviation that floorplans and data sheets left them.

    Args:
        constants: the package's, or others; those that have a die already stay as they are.
        silicon: process, stacks and links.

    What the buffer holds between operators is planned; a choice of ``residency`` is made of constants that have a die.

    Raises:
        InputError: an option or a constant was changed that is of the tables at 22 nm alone.
    """
    # Constants are equal if their values are: those that have a die keep ranges of their own.
    return constants if has_die(constants) else _with_die(constants, silicon)


@lru_cache(maxsize=64)
def _with_die(constants: Constants, silicon: Silicon) -> Constants:
    """`with_die` of constants without one."""
    _refuse_changed_tables(constants)
    entries = {key: entry for key, entry in constants.entries.items() if not key.startswith(_OF_TABLES)}
    entries |= dict(_die_entries(silicon, load_fitted()))
    entries |= _hbm_entries(entries, silicon)
    # The rate of a buffer is a parameter of each design: this one is of those that do not state it.
    for key in ("glb.bytes_per_cycle", "glb.proportional_reference_bytes"):
        entries[key] = replace(entries[key], low=entries[key].value, high=entries[key].value)
    options = dict(constants.options)
    for name, choice in (("glb_limit", "fixed"), ("hbm_form", "stacked")):
        if options[name].choice != choice:
            message = f"estimator option {name} = {options[name].choice} is of the tables at 22 nm; dies have {choice}"
            raise InputError(message, key=name)
        options[name] = replace(options[name], choice=choice, alternatives=(choice,))
    # A die pays for its buffer, so what the buffer holds between operators counts; Phaze's tables know neither.
    options[_RESIDENCY] = replace(options[_RESIDENCY], choice="planned")
    chosen = {SILICON: DIE, _PROCESS: process_of(silicon.nanometres).name, GENERATION: silicon.hbm_generation}
    options |= {name: EstimatorOption(choice, (choice,), "die_constants.toml") for name, choice in chosen.items()}
    return Constants(entries, options).with_overrides(dict(silicon.values))


def constants_with(silicon: Silicon | None) -> Constants:
    """The package's constants with a silicon; None for the tables at 22 nm."""
    return load_constants() if silicon is None else with_die(load_constants(), silicon)


def _refuse_changed_tables(constants: Constants) -> None:
    """Refuse changes that a die would pass over without a word.

    Raises:
        InputError: a constant that dies have of their own is not the package's.
    """
    own = load_constants().entries
    for key, entry in constants.entries.items():
        if key.startswith((*_OF_TABLES, _STACKS)) and key in own and entry.value != own[key].value:
            message = f"{key} = {entry.value:g} is of the tables at 22 nm; dies have their own: leave it out"
            raise InputError(message, key=key)


def silicon_under(silicon: Silicon, values: Mapping[str, float], network: Network) -> Silicon:
    """The silicon where some constants are otherwise: those that dies are priced by, and the links of the network."""
    mine = dict(silicon.values) | {key: value for key, value in values.items() if key.startswith(_OF_DIES)}
    return replace(silicon, link_bytes_per_s=link_rate(network), values=tuple(sorted(mine.items())))


def has_die(constants: Constants) -> bool:
    """Whether chips under these constants are dies."""
    return SILICON in constants.options


def _die_entries(silicon: Silicon, fitted: FittedConstants) -> Iterator[tuple[str, Constant]]:
    """Constants of the die model that decide chips of one process and generation."""
    known = load_die_constants()
    process = f"process.{process_of(silicon.nanometres).name}."
    areas = fitted.groups.get(AREA_GROUP, {})
    for key, entry in known.entries.items():
        group, _, name = key.partition(".")
        if group in ("process", "hbm", "dram"):
            if key.startswith(process):
                yield f"{DIE_PREFIX}process.{key.removeprefix(process)}", entry
            continue
        if group == "area" and name in areas:
            scale = areas[name] / entry.value
            yield (
                f"{DIE_PREFIX}{key}",
                replace(entry, value=areas[name], low=entry.low * scale, high=entry.high * scale),
            )
        else:
            yield f"{DIE_PREFIX}{key}", entry
    stack = f"hbm.{silicon.hbm_generation}."
    for name in ("pj_per_bit", "interface"):
        yield f"{DIE_PREFIX}hbm.{name}", known.entries[f"{stack}{name}"]
    rate = silicon.link_bytes_per_s
    yield LINK_RATE, Constant(rate, rate, rate, "bytes/s", "the network", is_assumption=False)


def _hbm_entries(entries: Mapping[str, Constant], silicon: Silicon) -> dict[str, Constant]:
    """Capacity and rate of a stack of the generation, under the keys that chips are built by."""
    known, stack = load_die_constants().entries, f"hbm.{silicon.hbm_generation}."
    found = {}
    for key, name, unit in (
        ("hbm.stack_bytes", "stack_gib", GIBI),
        ("hbm.stack_bandwidth_bytes_per_s", "stack_gb_per_s", GIGA),
    ):
        of_stack = known[f"{stack}{name}"]
        value, low, high = (each * unit for each in (of_stack.value, of_stack.low, of_stack.high))
        if name == "stack_gib":
            low = high = value  # a capacity is a choice, not an uncertainty
        found[key] = replace(entries[key], value=value, low=low, high=high, source=of_stack.source)
    return found


@dataclass(frozen=True, slots=True)
class DieModel:
    """The constants of the die model by what they price (`die_constants`); ``limits`` has those of edge and package."""

    area: AreaConstants
    power: PowerConstants
    process: DieProcess
    stack: HbmStack
    link_bytes_per_s: float
    limits: Constants

    @property
    def crossing_bytes_per_s(self) -> float:
        """What a chiplet sends to others of its die, one way, at most."""
        return self.limits.value("edge.die_to_die_gb_per_s") * GIGA


@lru_cache(maxsize=64)
def die_model(constants: Constants) -> DieModel:
    """The die model of constants that have one."""
    own = {
        key.removeprefix(DIE_PREFIX): entry for key, entry in constants.entries.items() if key.startswith(DIE_PREFIX)
    }
    known = Constants(own, {})
    logic, memory, energy = (known.value(f"process.{name}") for name in ("logic", "memory", "energy"))
    return DieModel(
        area=area_constants(FittedConstants({}), known=known),
        power=power_constants(known),
        process=DieProcess(constants.option(_PROCESS), logic, memory, energy),
        stack=HbmStack(
            generation=HbmGeneration(constants.option(GENERATION)),
            capacity_bytes=round(constants.value("hbm.stack_bytes")),
            bandwidth_bytes_per_s=constants.value("hbm.stack_bandwidth_bytes_per_s"),
            j_per_bit=known.value("hbm.pj_per_bit") * PICO,
            interface=known.value("hbm.interface"),
        ),
        link_bytes_per_s=known.value("link.bytes_per_s"),
        limits=known,
    )
