"""Worlds: a problem as it stands, at corners of its constants' ranges, drawn within them, with one choice otherwise."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import AXES, PointColumns
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import HbmForm, chips_of
from phaze_opt.hardware.economics.prices import changed_prices, prices_with
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import constants_of_network, list_networks, load_network
from phaze_opt.hardware.silicon.silicon import LINK_RATE, has_die, silicon_under
from phaze_opt.objective.alternatives import DIE_AREAS, POWERS, NotVaried, OtherChoice, alternatives_of_worlds, choose
from phaze_opt.objective.bill import own_chips
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.record.arrays import Floats
from phaze_opt.space.axes import ROW_AXES
from phaze_opt.space.search_space import SearchSpace

_GLB_RATE = "glb.bytes_per_cycle"
_GLB_REFERENCE = "glb.proportional_reference_bytes"
_HBM_KEYS = {HbmForm.STACKED: "hbm.stack_bandwidth_bytes_per_s", HbmForm.FIXED: "hbm.fixed_bandwidth_bytes_per_s"}
_LATENCY = "latency_s"
PRICE = "price."
"""What the keys of prices have before them in worlds: constants of chips have such names too."""
ENERGY = "energy."
SOMETIMES_NAUGHT = ("link_bytes_per_s", "chiplets")
"""Axes of what prices are of that some chips may have none of."""


class AssumptionGroup(StrEnum):
    """Constants that are assumed for one reason, and so are wrong together."""

    VECTOR_CYCLES = "vector cycles"
    GLB = "GLB bandwidth"
    HBM = "HBM bandwidth"
    NETWORK = "network"
    ENERGIES = "energies"
    PRICES = "prices"

    @property
    def short(self) -> str:
        """A word for tables."""
        return {"vector cycles": "cycles", "GLB bandwidth": "GLB", "HBM bandwidth": "HBM"}.get(self.value, self.value)


SUBJECTS = {
    AssumptionGroup.VECTOR_CYCLES: "vector operators",
    AssumptionGroup.GLB: "buffer",
    AssumptionGroup.HBM: "HBM",
    AssumptionGroup.NETWORK: "network",
    AssumptionGroup.ENERGIES: "energies",
    AssumptionGroup.PRICES: "prices",
}
SPEED, AMOUNT = ("fast", "faster", "slower"), ("high", "higher", "lower")
WAYS = {
    AssumptionGroup.VECTOR_CYCLES: (True, *SPEED),
    AssumptionGroup.GLB: (False, *SPEED),
    AssumptionGroup.HBM: (False, *SPEED),
    AssumptionGroup.NETWORK: (False, *SPEED),
    AssumptionGroup.ENERGIES: (False, *AMOUNT),
    AssumptionGroup.PRICES: (False, *AMOUNT),
}
"""Whether more of a group's constants is less of what it is said of, and the words for that."""


@dataclass(frozen=True, slots=True)
class UncertainConstant:
    """A constant of a group, its range in its own unit.

    Attributes:
        key: dotted key in ``constants.toml``, or that of a price behind `PRICE`.
        low, nominal, high: ends of the range, and the value in force (which an override may have put outside).
        unit: of the three.
        is_opposed: it is high where its group is low: latencies rise where bandwidths fall, yields where costs do.
    """

    key: str
    low: float
    nominal: float
    high: float
    unit: str
    is_opposed: bool = False


@dataclass(frozen=True, slots=True)
class GroupRange:
    """A group and its constants."""

    group: AssumptionGroup
    constants: tuple[UncertainConstant, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A group that is not varied, and why."""

    group: AssumptionGroup
    reason: str


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is varied and what is not; every group is one of the two.

    Attributes:
        groups: at either end in corners, each constant by itself in samples.
        left_out: groups that are not varied.
        sampled: constants that only samples vary: areas of dies, of which choices have all together, and of parameters.
        alternatives: choices of the model made otherwise, each a world.
        not_varied: choices that are not.
    """

    groups: tuple[GroupRange, ...]
    left_out: tuple[LeftOut, ...]
    sampled: tuple[UncertainConstant, ...] = ()
    alternatives: tuple[OtherChoice, ...] = ()
    not_varied: tuple[NotVaried, ...] = ()


def find_assumptions(problem: CertifyProblem) -> Assumptions:
    """The groups of uncertain constants that the optimum of a problem may depend on."""
    groups: list[GroupRange] = []
    left_out: list[LeftOut] = []
    for group in AssumptionGroup:
        found = _uncertain_prices(problem) if group is AssumptionGroup.PRICES else _uncertain_of(group, problem)
        if isinstance(found, str):
            left_out.append(LeftOut(group, found))
        else:
            groups.append(GroupRange(group, found))
    sampled = [_constant(key, problem.constants) for key in _sampled_keys(problem)]
    others, not_varied = alternatives_of_worlds(problem.scenario, problem.constants, is_powered=depends_on_tdp(problem))
    return Assumptions(tuple(groups), tuple(left_out), tuple(sampled), others, not_varied)


def _uncertain_of(group: AssumptionGroup, problem: CertifyProblem) -> tuple[UncertainConstant, ...] | str:
    """Constants of a group with their ranges, or why it has none here."""
    keys = _keys_of(group, problem)
    if isinstance(keys, str):
        return keys
    known = problem.constants
    found = tuple(_constant(key, known) for key in keys if key in known.uncertain)
    return found or "none of its constants has a range"


def _uncertain_prices(problem: CertifyProblem) -> tuple[UncertainConstant, ...] | str:
    """Prices that change what a chip of the space costs, the dear end high."""
    if not problem.has_costs:
        return "neither a goal nor a budget is of money"
    space, scenario = problem.space, problem.scenario
    columns = telling_chips(space)
    if not len(columns):
        return "the space has no chip that could be priced"
    chips = chips_of(columns, problem.constants)
    known, found = prices_with(scenario.prices or ()), []

    def priced(key: str, value: float) -> Floats:
        owned = own_chips(chips, scenario, problem.constants, known.with_overrides({key: value}))
        return owned.usd_per_s if problem.goal is Goal.THROUGHPUT_PER_USD else owned.capex_usd

    for key in known.uncertain_with([axis.name for axis in AXES if getattr(space.axes, axis.name)]):
        entry = known.entries[key]
        rise = priced(key, entry.high) - priced(key, entry.low)
        if (rise != 0.0).any():
            is_opposed = bool(rise[rise != 0.0][0] < 0.0)
            found.append(UncertainConstant(PRICE + key, entry.low, entry.value, entry.high, entry.unit, is_opposed))
    return tuple(found)


def telling_chips(space: SearchSpace) -> PointColumns:
    """Chips of a space of which one at least costs another amount wherever a price changes what any of them costs.

    What `device_cost` multiplies prices by is above naught of every chip, but for links and for chiplets beyond the
    first; and no price makes one chip dearer and another cheaper. So the chips with most of these tell.
    """
    kept = space.kept
    rows = np.flatnonzero(np.diff(kept.starts))
    places = dict(zip(ROW_AXES, np.unravel_index(rows, space.axes.shape), strict=True))
    rows = np.unique([rows[places[name].argmax()] for name in SOMETIMES_NAUGHT]) if len(rows) else rows
    last = [np.full(len(rows), size - 1) for size in space.axes.joined_shape]
    return space.columns_at(*kept.row_and_vc(kept.starts[rows]), last)


def _sampled_keys(problem: CertifyProblem) -> Iterator[str]:
    """Areas of dies, and what the parameters that the space opens add to them."""
    constants = problem.constants
    yield from (key for key in DIE_AREAS if key in constants.uncertain)
    if has_die(constants):
        opened = [axis.name for axis in AXES if getattr(problem.space.axes, axis.name)]
        yield from (key for key in constants.uncertain_with(opened) if constants.entries[key].parameter)


def follows_constants(problem: CertifyProblem) -> bool:
    """Whether the cluster's network is a named one at the problem's constants, rather than one of a user's own.

    Taken by its figures, not by its name, which a network of one's own may share.
    """
    return _named_network(problem, problem.constants) == problem.scenario.cluster.network


def network_under(problem: CertifyProblem, constants: Constants) -> Network:
    """The problem's network under other constants; itself if it does not follow them."""
    named = _named_network(problem, constants) if follows_constants(problem) else None
    return problem.scenario.cluster.network if named is None else named


def depends_on_tdp(problem: CertifyProblem) -> bool:
    """Whether power decides which design is best: by the goal, by a budget, or by what a device costs for each watt."""
    is_goal = problem.goal is Goal.THROUGHPUT_PER_TDP or FrontAxis.TDP in problem.axes
    return is_goal or problem.scenario.max_tdp_w is not None or problem.has_costs


def _keys_of(group: AssumptionGroup, problem: CertifyProblem) -> tuple[str, ...] | str:
    """Keys of a group that this problem reads, or the reason why it reads none."""
    constants = problem.constants
    if group is AssumptionGroup.VECTOR_CYCLES:
        return _with_prefix(constants, "vector_cycles.")
    if group is AssumptionGroup.GLB:
        return _glb_keys(problem)
    if group is AssumptionGroup.HBM:
        return (_HBM_KEYS[HbmForm(constants.option("hbm_form"))],)
    if group is AssumptionGroup.NETWORK:
        return _network_keys(problem)
    if not depends_on_tdp(problem):
        return "neither the goal nor a budget depends on power"
    return _with_prefix(constants, POWERS) if has_die(constants) else _with_prefix(constants, ENERGY)


def _glb_keys(problem: CertifyProblem) -> tuple[str, ...] | str:
    """The rate of the GLB, and the size that it is counted from where it grows with the buffer."""
    limit = problem.constants.option("glb_limit")
    if limit == "none" and not depends_on_tdp(problem):
        return "the estimator option glb_limit = none leaves the GLB without a limit"
    return (_GLB_RATE, _GLB_REFERENCE) if limit == "proportional" else (_GLB_RATE,)


def _network_keys(problem: CertifyProblem) -> tuple[str, ...] | str:
    """Bandwidths and latencies of the named network; where chips state the rate of their links latencies alone."""
    cluster = problem.scenario.cluster
    if not follows_constants(problem):
        return f"the network {cluster.network.name} is given in figures without ranges"
    if cluster.num_devices == 1 and not depends_on_tdp(problem):
        return "one device uses no network"
    has_own_links = bool(problem.space.axes.link_bytes_per_s)
    return constants_of_network(cluster.network.name, problem.constants, has_own_links=has_own_links)


def _named_network(problem: CertifyProblem, constants: Constants) -> Network | None:
    """The named network of the problem's cluster under some constants; None if its name is unknown."""
    cluster = problem.scenario.cluster
    if cluster.network.name not in list_networks():
        return None
    return load_network(cluster.network.name, num_devices=cluster.num_devices, constants=constants)


def _with_prefix(constants: Constants, prefix: str) -> tuple[str, ...]:
    return tuple(key for key in constants.entries if key.startswith(prefix))


def _constant(key: str, constants: Constants) -> UncertainConstant:
    """A constant with its range.

    Raises:
        InputError: a network dimension's size has a range, which has no meaning between whole numbers.
    """
    if key.endswith("_size"):
        message = f"the range of {key} cannot be varied: a size is a whole number; give low and high equal to value"
        raise InputError(message, key=key)
    entry = constants.entries[key]
    is_opposed = key.endswith(_LATENCY) or key == _GLB_REFERENCE
    return UncertainConstant(key, entry.low, entry.value, entry.high, entry.unit, is_opposed)


class WorldKind(StrEnum):
    """Where in the ranges a world lies, or that a choice is made otherwise in it."""

    NOMINAL = "nominal"
    CORNER = "corner"
    OPTION = "option"
    SAMPLE = "sample"


class End(StrEnum):
    """Which end of its range a group is at."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """One constant's value in a world, in the constant's unit."""

    key: str
    value: float


@dataclass(frozen=True, slots=True)
class World:
    """One set of values for everything that is uncertain.

    Attributes:
        name: ``nominal``, ``corner 3``, ``sample 1`` or that of an alternative; numbers count from 1.
        kind: where it lies.
        ends: of every group, in the order of `Assumptions.groups`; empty unless it is a corner.
        settings: constants that differ from the problem's own.
        constants_digest, problem_digest: of the problem that the world poses.
        alternative: the choice that is made otherwise; None but in worlds of options.
    """

    name: str
    kind: WorldKind
    ends: tuple[End, ...]
    settings: tuple[ConstantValue, ...]
    constants_digest: str
    problem_digest: str
    alternative: OtherChoice | None = None


def build_worlds(
    problem: CertifyProblem, assumptions: Assumptions, *, num_samples: int, seed: int
) -> tuple[World, ...]:
    """The nominal world, 2^groups corners, one world for every alternative, and samples.

    A sample draws every constant log-uniformly within its range, by itself, so that samples also pull constants of
    one group apart. Sample i depends on ``seed`` and i alone: more samples never change the first ones.
    """
    worlds = [_pose(problem, "nominal", WorldKind.NOMINAL)]
    if assumptions.groups:
        for number, ends in enumerate(itertools.product(End, repeat=len(assumptions.groups)), start=1):
            values = _corner(assumptions.groups, ends)
            worlds.append(_pose(problem, f"corner {number}", WorldKind.CORNER, ends=ends, values=values))
    for each in assumptions.alternatives:
        worlds.append(_pose(problem, each.name, WorldKind.OPTION, alternative=each))
    constants = [constant for group in assumptions.groups for constant in group.constants] + [*assumptions.sampled]
    for number in range(1, num_samples + 1 if constants else 1):
        rng = np.random.default_rng((seed, number))
        values = {constant.key: _draw(constant, rng) for constant in constants}
        worlds.append(_pose(problem, f"sample {number}", WorldKind.SAMPLE, values=values))
    return tuple(worlds)


def words_of(world: World, assumptions: Assumptions) -> str:
    """``cycles- GLB+ HBM- network+`` for a corner, else the world's name; - is the low end."""
    if world.kind is not WorldKind.CORNER:
        return world.name
    pairs = zip(assumptions.groups, world.ends, strict=True)
    return " ".join(f"{group.group.short}{'-' if end is End.LOW else '+'}" for group, end in pairs)


def world_words(name: str, assumptions: Assumptions) -> str:
    """A world's name (`words_of`) with the factors of a corner, for people; other names as they are."""
    ends = {
        f"{group.group.short}{sign}": (SUBJECTS[group.group], _change(group, is_low=sign == "-"))
        for group in assumptions.groups
        for sign in "-+"
    }
    phrases: dict[str, list[str]] = {}
    for token in name.split(" "):
        if token not in ends:
            return name
        subject, phrase = ends[token]
        phrases.setdefault(phrase, []).append(subject)
    every = ((", ".join(subjects[:-1]), subjects[-1], phrase) for phrase, subjects in phrases.items())
    return ", ".join(f"{first} and {last} {phrase}" if first else f"{last} {phrase}" for first, last, phrase in every)


def _change(group: GroupRange, *, is_low: bool) -> str:
    """What an end of a group's range makes of it: ``half as fast``, ``44 % slower``, ``up to 60 % lower``."""
    moved = [each for each in group.constants if not each.is_opposed and each.nominal > 0.0] or group.constants
    factors = [(each.low if is_low else each.high) / each.nominal for each in moved]
    factor = (min if is_low else max)(factors)
    is_inverse, plain, more, less = WAYS[group.group]
    factor = 1.0 / factor if is_inverse else factor
    if factor in (0.5, 2.0) and min(factors) == max(factors):
        return f"{'half' if factor < 1.0 else 'twice'} as {plain}"
    up_to = "" if min(factors) == max(factors) else "up to "
    return f"{up_to}{100.0 * abs(factor - 1.0):.0f} % {more if factor > 1.0 else less}"


def problem_in(problem: CertifyProblem, world: World) -> CertifyProblem:
    """The problem that a world poses."""
    return problem_under(problem, world.settings, world.alternative)


def problem_under(
    problem: CertifyProblem, settings: Sequence[ConstantValue], alternative: OtherChoice | None = None
) -> CertifyProblem:
    """A problem with constants replaced and a choice made otherwise; network and dies follow.

    Dies have the areas and links of the world: which of them are built differs from world to world. So do prices. Which
    of them are searched does not (`SearchSpace.under`).
    """
    if not settings and alternative is None:
        return problem
    values = {setting.key: setting.value for setting in settings if not setting.key.startswith(PRICE)}
    prices = {setting.key.removeprefix(PRICE): setting.value for setting in settings if setting.key not in values}
    constants, scenario = problem.constants.with_overrides(values), problem.scenario
    network = network_under(problem, constants)
    scenario = replace(scenario, cluster=replace(scenario.cluster, network=network))
    if alternative is not None:
        scenario, constants = choose(alternative, scenario, constants)
        values |= dict(alternative.constants)
    if prices:
        changed = prices_with((*dict(scenario.prices or ()).items(), *prices.items()))
        scenario = replace(scenario, prices=changed_prices(changed))
    space = problem.space
    if scenario.silicon is not None:
        silicon = silicon_under(scenario.silicon, values, network)
        constants = constants.with_overrides({LINK_RATE: silicon.link_bytes_per_s})
        scenario, space = replace(scenario, silicon=silicon), space.under(silicon)
    return replace(problem, scenario=scenario, space=space, constants=constants)


def throughput_in(problem: CertifyProblem, world: World) -> CertifyProblem:
    """What a world asks of throughput alone, the same for worlds that differ in what only other goals read.

    Prices decide no throughput without a budget of capex, nor do energies without one of power where chips are no dies,
    which must be cooled.
    """
    unread = () if problem.scenario.max_capex_usd is not None else (PRICE,)
    if problem.space.silicon is None and problem.scenario.max_tdp_w is None:
        unread = (*unread, ENERGY)
    settings = [setting for setting in world.settings if not setting.key.startswith(unread)]
    posed = problem_under(problem, settings, world.alternative)
    prices = None if posed.scenario.max_capex_usd is None else posed.scenario.prices
    scenario = replace(posed.scenario, prices=prices)
    return replace(posed, scenario=scenario, goal=Goal.THROUGHPUT, axes=())


def _pose(
    problem: CertifyProblem,
    name: str,
    kind: WorldKind,
    *,
    ends: tuple[End, ...] = (),
    values: Mapping[str, float] | None = None,
    alternative: OtherChoice | None = None,
) -> World:
    """A world with the digests of the problem that it poses."""
    settings = tuple(ConstantValue(key, value) for key, value in (values or {}).items())
    posed = problem_under(problem, settings, alternative)
    return World(name, kind, ends, settings, posed.constants.digest, posed.digest, alternative)


def _corner(groups: Sequence[GroupRange], ends: Sequence[End]) -> dict[str, float]:
    """All constants of each group at the group's end; opposed ones at the other."""
    return {
        constant.key: constant.low if (end is End.LOW) != constant.is_opposed else constant.high
        for group, end in zip(groups, ends, strict=True)
        for constant in group.constants
    }


def _draw(constant: UncertainConstant, rng: np.random.Generator) -> float:
    """Log-uniform within the range; uniform where the range begins at zero, which has no logarithm."""
    share = rng.random()
    if constant.low == 0.0:
        return constant.high * share
    value = constant.low * math.exp(share * math.log(constant.high / constant.low))
    return min(max(value, constant.low), constant.high)
