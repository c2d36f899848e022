"""Worlds: the assumptions as they stand, at every corner of their ranges, and at points drawn within them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.robust.assumptions import Assumptions, GroupRange, UncertainConstant, network_under


class WorldKind(StrEnum):
    """Where in the ranges a world lies."""

    NOMINAL = "nominal"
    CORNER = "corner"
    SAMPLE = "sample"


class End(StrEnum):
    """Which end of its range a group is at."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Setting:
    """One constant's value in a world, in the constant's unit."""

    key: str
    value: float


@dataclass(frozen=True, slots=True)
class World:
    """One set of values for everything that is uncertain.

    Attributes:
        name: ``nominal``, ``corner 3`` or ``sample 1``; numbers count from 1.
        kind: where it lies.
        ends: of every group, in the order of `Assumptions.groups`; empty unless it is a corner.
        settings: constants that differ from the problem's own.
        constants_digest, problem_digest: of the problem that the world poses.
    """

    name: str
    kind: WorldKind
    ends: tuple[End, ...]
    settings: tuple[Setting, ...]
    constants_digest: str
    problem_digest: str


def build_worlds(
    problem: CertifyProblem, assumptions: Assumptions, *, num_samples: int, seed: int
) -> tuple[World, ...]:
    """The nominal world, 2^groups corners, and samples; only the nominal one if nothing is uncertain.

    A sample draws every constant log-uniformly within its range, by itself, so that samples also pull constants of
    one group apart. Sample i depends on ``seed`` and i alone: more samples never change the first ones.
    """
    worlds = [_pose(problem, "nominal", WorldKind.NOMINAL, (), {})]
    if not assumptions.groups:
        return tuple(worlds)
    for number, ends in enumerate(itertools.product(End, repeat=len(assumptions.groups)), start=1):
        worlds.append(_pose(problem, f"corner {number}", WorldKind.CORNER, ends, _corner(assumptions.groups, ends)))
    constants = [constant for group in assumptions.groups for constant in group.constants]
    for number in range(1, num_samples + 1):
        rng = np.random.default_rng((seed, number))
        values = {constant.key: _draw(constant, rng) for constant in constants}
        worlds.append(_pose(problem, f"sample {number}", WorldKind.SAMPLE, (), values))
    return tuple(worlds)


def problem_under(problem: CertifyProblem, settings: Sequence[Setting]) -> CertifyProblem:
    """The problem of a world: constants replaced, and the network rebuilt if it follows them."""
    constants = problem.constants.with_overrides({setting.key: setting.value for setting in settings})
    cluster = replace(problem.scenario.cluster, network=network_under(problem, constants))
    return replace(problem, scenario=replace(problem.scenario, cluster=cluster), constants=constants)


def _pose(
    problem: CertifyProblem, name: str, kind: WorldKind, ends: tuple[End, ...], values: Mapping[str, float]
) -> World:
    """A world with the digests of the problem that it poses."""
    settings = tuple(Setting(key, value) for key, value in values.items())
    posed = problem_under(problem, settings)
    return World(name, kind, ends, settings, posed.constants.digest, posed.digest)


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
