"""What each group of assumptions does to the optimum by itself, from pairs of opposite corners."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from phaze_opt.certify.robust.assumptions import Assumptions
from phaze_opt.certify.robust.result import GroupEffect, WorldOptimum
from phaze_opt.certify.robust.worlds import End, World, WorldKind


def measure_effects(
    assumptions: Assumptions, worlds: Sequence[World], optima: Sequence[WorldOptimum]
) -> tuple[GroupEffect, ...]:
    """One effect a group, over all pairs of corners that differ in that group alone; none if no pair is feasible."""
    corners = {
        world.ends: optimum
        for world, optimum in zip(worlds, optima, strict=True)
        if world.kind is WorldKind.CORNER and optimum.is_feasible
    }
    effects = []
    for position, group in enumerate(assumptions.groups):
        pairs = [(corners[low], corners[high]) for low, high in _opposites(corners, position)]
        if pairs:
            ratios = [math.log(high.value / low.value) for low, high in pairs]
            effects.append(
                GroupEffect(
                    group=group.group,
                    mean_log_ratio=math.fsum(ratios) / len(ratios),
                    least_log_ratio=min(ratios),
                    largest_log_ratio=max(ratios),
                    num_pairs=len(pairs),
                    share_same_design=sum(low.index == high.index for low, high in pairs) / len(pairs),
                )
            )
    return tuple(effects)


def _opposites(
    corners: dict[tuple[End, ...], WorldOptimum], position: int
) -> Iterator[tuple[tuple[End, ...], tuple[End, ...]]]:
    """Pairs of feasible corners that differ in one group alone, its low end first."""
    for ends in corners:
        if ends[position] is End.LOW:
            other = (*ends[:position], End.HIGH, *ends[position + 1 :])
            if other in corners:
                yield ends, other
