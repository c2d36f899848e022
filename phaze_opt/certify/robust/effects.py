"""What each group of assumptions does to the optimum by itself, from pairs of opposite corners."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from phaze_opt.certify.robust.assumptions import Assumptions
from phaze_opt.certify.robust.result import GroupEffect, RobustDesign, WorldOptimum
from phaze_opt.certify.robust.worlds import End, World, WorldKind


def measure_effects(
    assumptions: Assumptions,
    worlds: Sequence[World],
    optima: Sequence[WorldOptimum],
    *,
    designs: Sequence[RobustDesign],
    tolerance: float,
) -> tuple[GroupEffect, ...]:
    """One effect a group, over all pairs of corners that differ in that group alone; none if no pair is feasible.

    Args:
        assumptions: the groups.
        worlds: corners among them.
        optima: one a world.
        designs: every world's best among them.
        tolerance: on the regret of a design that counts as optimal.
    """
    regrets = {design.index: design.regrets for design in designs}
    corners = {
        world.ends: row
        for row, (world, optimum) in enumerate(zip(worlds, optima, strict=True))
        if world.kind is WorldKind.CORNER and optimum.is_feasible
    }
    effects = []
    for position, group in enumerate(assumptions.groups):
        pairs = [(corners[low], corners[high]) for low, high in _opposites(corners, position)]
        if pairs:
            ratios = [math.log(optima[high].value / optima[low].value) for low, high in pairs]
            shared = [
                min(regrets[optima[low].index][high], regrets[optima[high].index][low]) <= tolerance
                for low, high in pairs
            ]
            effects.append(
                GroupEffect(
                    group=group.group,
                    mean_log_ratio=math.fsum(ratios) / len(ratios),
                    least_log_ratio=min(ratios),
                    largest_log_ratio=max(ratios),
                    num_pairs=len(pairs),
                    share_shared=sum(shared) / len(shared),
                )
            )
    return tuple(effects)


def _opposites(corners: Iterable[tuple[End, ...]], position: int) -> Iterator[tuple[tuple[End, ...], tuple[End, ...]]]:
    """Pairs of feasible corners that differ in one group alone, its low end first."""
    known = set(corners)
    for ends in corners:
        other = (*ends[:position], End.HIGH, *ends[position + 1 :])
        if ends[position] is End.LOW and other in known:
            yield ends, other
