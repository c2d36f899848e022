"""The uncertain constants that can move the optimum of a problem, in groups whose ends are varied together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.design import HbmForm
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import list_networks, load_network
from phaze_opt.objective.goals import Goal

_GLB_RATE = "glb.bytes_per_cycle"
_GLB_REFERENCE = "glb.proportional_reference_bytes"
_HBM_KEYS = {HbmForm.STACKED: "hbm.stack_bandwidth_bytes_per_s", HbmForm.FIXED: "hbm.fixed_bandwidth_bytes_per_s"}
_LATENCY = "latency_s"


class AssumptionGroup(StrEnum):
    """Constants that are assumed for one reason, and so are wrong together."""

    VECTOR_CYCLES = "vector cycles"
    GLB = "GLB bandwidth"
    HBM = "HBM bandwidth"
    NETWORK = "network"
    ENERGIES = "energies"


@dataclass(frozen=True, slots=True)
class UncertainConstant:
    """A constant of a group, its range in its own unit.

    Attributes:
        key: dotted key in ``constants.toml``.
        low, nominal, high: ends of the range, and the value in force (which an override may have put outside).
        unit: of the three.
        is_opposed: it is high where its group is low: latencies rise where bandwidths fall.
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
    """What is varied and what is not; every group is one of the two."""

    groups: tuple[GroupRange, ...]
    left_out: tuple[LeftOut, ...]


def find_assumptions(problem: CertifyProblem) -> Assumptions:
    """The groups of uncertain constants that the optimum of a problem may depend on."""
    groups: list[GroupRange] = []
    left_out: list[LeftOut] = []
    for group in AssumptionGroup:
        keys, reason = _keys_of(group, problem)
        if not reason:
            uncertain = tuple(key for key in keys if key in problem.constants.uncertain)
            reason = "" if uncertain else "none of its constants has a range"
            keys = uncertain
        if reason:
            left_out.append(LeftOut(group, reason))
        else:
            groups.append(GroupRange(group, tuple(_constant(key, problem.constants) for key in keys)))
    return Assumptions(tuple(groups), tuple(left_out))


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
    """Whether power decides which design is best: by the goal or by a budget."""
    return problem.goal is Goal.THROUGHPUT_PER_TDP or problem.scenario.max_tdp_w is not None


def _keys_of(group: AssumptionGroup, problem: CertifyProblem) -> tuple[tuple[str, ...], str]:
    """Keys of a group that this problem reads, or the reason why it reads none."""
    constants = problem.constants
    if group is AssumptionGroup.VECTOR_CYCLES:
        return _with_prefix(constants, "vector_cycles."), ""
    if group is AssumptionGroup.GLB:
        return _glb_keys(problem)
    if group is AssumptionGroup.HBM:
        return (_HBM_KEYS[HbmForm(constants.option("hbm_form"))],), ""
    if group is AssumptionGroup.NETWORK:
        return _network_keys(problem)
    if not depends_on_tdp(problem):
        return (), "neither the goal nor a budget depends on power"
    return _with_prefix(constants, "energy."), ""


def _glb_keys(problem: CertifyProblem) -> tuple[tuple[str, ...], str]:
    """The rate of the GLB, and the size that it is counted from where it grows with the buffer."""
    limit = problem.constants.option("glb_limit")
    if limit == "none" and not depends_on_tdp(problem):
        return (), "the estimator option glb_limit = none leaves the GLB without a limit"
    return ((_GLB_RATE, _GLB_REFERENCE) if limit == "proportional" else (_GLB_RATE,)), ""


def _network_keys(problem: CertifyProblem) -> tuple[tuple[str, ...], str]:
    """Bandwidths and latencies of the named network."""
    cluster = problem.scenario.cluster
    if not follows_constants(problem):
        return (), f"the network {cluster.network.name} is given in figures without ranges"
    if cluster.num_devices == 1 and not depends_on_tdp(problem):
        return (), "one device uses no network"
    return _with_prefix(problem.constants, f"network.{cluster.network.name.replace('-', '_')}."), ""


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
