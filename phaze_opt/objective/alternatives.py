"""What each choice of the model could be instead, one away from what is in force.

Declared once, in `_CHOICES`: worlds of `certify --robust` and the ranges of headlines both read it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from phaze_opt.cost.stacks import can_run, load_stack
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import BANK_RULE
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.silicon.die_constants import FITTED_AREAS
from phaze_opt.hardware.silicon.silicon import DIE_PREFIX, has_die
from phaze_opt.objective.scenario import IDEAL_ESTIMATOR, Scenario
from phaze_opt.units import GIGA, KIBI
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack

OTHER_SOFTWARE = (IDEAL_STACK.name, "megatron-core")
"""Software that a figure is priced under besides its own: nothing lost, and overlapping what it sends (ranges of the
assumption in decision 0257)."""
CYCLES = "vector_cycles"
DIE_AREAS = (*(f"{DIE_PREFIX}area.{name}" for name in FITTED_AREAS), f"{DIE_PREFIX}process.logic")
"""Constants of a die's area that are known within a deviation."""
POWERS = f"{DIE_PREFIX}power."
SHARES = tuple(f"{DIE_PREFIX}area.{name}" for name in ("buffer_cell_share", "local_cell_share", "used_share"))
"""Of these a large value makes a small die."""
_NETWORK_AREA = f"{DIE_PREFIX}area.network_um2_per_byte"
_STACK_RATE = "hbm.stack_bandwidth_bytes_per_s"
_BETWEEN = {("fill_and_drain", "per_operator"): "lies between per_fold and none"}
"""Choices of options whose figures lie between those of two others."""


class Doubt(StrEnum):
    """What a choice is about."""

    OPTIONS = "options"
    SOFTWARE = "software"
    SILICON = "silicon"


@dataclass(frozen=True, slots=True)
class OtherChoice:
    """A choice made otherwise: constants, options of the estimator, the estimator or the software; the rest stays.

    Attributes:
        name: ``multicast = ideal``.
        doubt: what it is about.
        constants: by key, in their units.
        options: of the estimator, by name.
        estimator, software: names; empty for the scenario's own.
    """

    name: str
    doubt: Doubt
    constants: tuple[tuple[str, float], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    estimator: str = ""
    software: str = ""


@dataclass(frozen=True, slots=True)
class NotVaried:
    """A choice that has no alternative here, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """What alternatives are asked of; ``is_powered``: power decides which design is best."""

    scenario: Scenario
    constants: Constants
    is_powered: bool


@dataclass(frozen=True, slots=True)
class _Choice:
    """A row of the table.

    Attributes:
        name: what is chosen.
        find: its alternatives, or why there are none.
        is_of_designs: whether an alternative changes what a given design does, rather than which may be built.
        elsewhere: why worlds leave it out although ranges have it; empty if they do not.
    """

    name: str
    find: Callable[[_Asked], Sequence[OtherChoice] | str]
    is_of_designs: bool = True
    elsewhere: str = ""


def alternatives_of_worlds(
    scenario: Scenario, constants: Constants, *, is_powered: bool
) -> tuple[tuple[OtherChoice, ...], tuple[NotVaried, ...]]:
    """All alternatives, each once, and the choices that have none.

    Args:
        scenario: in force.
        constants: in force.
        is_powered: whether goal or budgets depend on power.
    """
    asked = _Asked(scenario, constants, is_powered)
    found: list[OtherChoice] = []
    left: list[NotVaried] = []
    for choice in _CHOICES:
        others = choice.elsewhere or choice.find(asked)
        if isinstance(others, str):
            left.append(NotVaried(choice.name, others))
        else:
            found += others
    left += [NotVaried(f"{name} = {choice}", reason) for (name, choice), reason in _BETWEEN.items()]
    return tuple(found), tuple(left)


def alternatives_of_designs(scenario: Scenario, constants: Constants) -> tuple[OtherChoice, ...]:
    """Alternatives that change what a given design does: the rule of banks, areas and powers change none."""
    asked = _Asked(scenario, constants, is_powered=False)
    found = [choice.find(asked) for choice in _CHOICES if choice.is_of_designs]
    return tuple(each for others in found if not isinstance(others, str) for each in others)


def choose(alternative: OtherChoice, scenario: Scenario, constants: Constants) -> tuple[Scenario, Constants]:
    """Scenario and constants with an alternative in place of what is in force; silicon stays."""
    constants = constants.with_overrides(dict(alternative.constants)).with_options(dict(alternative.options))
    scenario = replace(scenario, estimator=alternative.estimator or scenario.estimator)
    if alternative.software:
        scenario = replace(scenario, stack=other_software(scenario.stack, alternative.software, load_fitted()))
    return scenario, constants


def other_software(stack: TrainingStack, name: str, fitted: FittedConstants) -> TrainingStack:
    """Another software with gradients as wide and the same options, as far as it has them.

    So it is the software that differs.
    """
    options = [option for option in stack.options if can_run(name, option)]
    return replace(load_stack(name, fitted, options), gradient_bytes=stack.gradient_bytes)


def _option(name: str) -> Callable[[_Asked], Sequence[OtherChoice] | str]:
    """An option of the estimator at every choice but its own."""

    def find(asked: _Asked) -> Sequence[OtherChoice] | str:
        others = [other for key, other in asked.constants.alternatives if key == name]
        others = [other for other in others if (name, other) not in _BETWEEN]
        if not others:
            return "has no other choice here" if name in asked.constants.options else "is no option here"
        return [OtherChoice(f"{name} = {other}", Doubt.OPTIONS, options=((name, other),)) for other in others]

    return find


def _estimator(asked: _Asked) -> Sequence[OtherChoice] | str:
    if asked.scenario.estimator == IDEAL_ESTIMATOR:
        return f"the {IDEAL_ESTIMATOR} estimator is in force; others add losses that were measured"
    name = f"estimator = {IDEAL_ESTIMATOR}"
    return [OtherChoice(name, Doubt.OPTIONS, estimator=IDEAL_ESTIMATOR)]


def _software(asked: _Asked) -> Sequence[OtherChoice] | str:
    if asked.scenario.plans is None:
        return "Phaze's placements know ideal software alone"
    names = [name for name in OTHER_SOFTWARE if name != asked.scenario.stack.name]
    return [OtherChoice(f"software = {name}", Doubt.SOFTWARE, software=name) for name in names]


def _ends(
    what: str, keys: Sequence[str], *, unit: str = "", scale: float = 1.0, doubt: Doubt = Doubt.SILICON
) -> Callable[[_Asked], Sequence[OtherChoice] | str]:
    """Constants of a die together at either end of their ranges; those of `SHARES` at the other."""

    def find(asked: _Asked) -> Sequence[OtherChoice] | str:
        if not has_die(asked.constants):
            return "is of dies; chips are built by the 22 nm tables"
        return list(_at_ends(asked.constants, what, keys, unit=unit, scale=scale, doubt=doubt)) or "has no range"

    return find


def _at_ends(
    constants: Constants, what: str, keys: Sequence[str], *, unit: str, scale: float, doubt: Doubt
) -> Iterator[OtherChoice]:
    """An alternative for each end at which any constant is not already."""
    entries = {key: constants.entries[key] for key in keys if key in constants.uncertain}
    for end in ("low", "high"):
        values = {key: entry.low if (end == "low") != (key in SHARES) else entry.high for key, entry in entries.items()}
        if any(value != entries[key].value for key, value in values.items()):
            said = f"{next(iter(values.values())) / scale:g} {unit}" if unit else end
            yield OtherChoice(f"{what} = {said}", doubt, constants=tuple(values.items()))


def _powers(asked: _Asked) -> Sequence[OtherChoice] | str:
    if not asked.is_powered:
        return "neither the goal nor a budget depends on power"
    keys = [key for key in asked.constants.entries if key.startswith(POWERS)]
    return _ends("die powers", keys)(asked)


_CHOICES = (
    _Choice("glb_limit", _option("glb_limit")),
    _Choice("fill_and_drain", _option("fill_and_drain")),
    _Choice("multicast", _option("multicast")),
    _Choice(CYCLES, _option(CYCLES), elsewhere="corners have the same constants"),
    _Choice("hbm_form", _option("hbm_form")),
    _Choice("residency", _option("residency")),
    _Choice("HBM rate", _ends("HBM rate", [_STACK_RATE], unit="GB/s", scale=GIGA, doubt=Doubt.OPTIONS)),
    _Choice("estimator", _estimator),
    _Choice("software", _software),
    _Choice("bank rule", _ends("bank rule", [BANK_RULE], unit="KiB", scale=KIBI), is_of_designs=False),
    _Choice("network area", _ends("network area", [_NETWORK_AREA]), is_of_designs=False),
    _Choice("die areas", _ends("die areas", DIE_AREAS), is_of_designs=False),
    _Choice("die powers", _powers, is_of_designs=False),
)
"""Every choice of the model; adding one adds it to worlds and, where it changes what a design does, to ranges."""
