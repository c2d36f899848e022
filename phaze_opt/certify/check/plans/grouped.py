"""Layers of units as fast as groups that keep tensors on chip could let them be, worked out from what a group may do.

A layer in a group has its input on chip or not, its output there alone or not, its weights there or not, and runs in
1, 2, 4 or 8 parts of the micro-batch. An operator takes no less than the least that it takes in any of these with the
whole buffer, all parts together; so with makespans of these no group is faster (decision 0312).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.plans.layer_sets import BACKWARD, FORWARD, LayerSet, build_set_graph
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.operator import Operator, OperatorGraph
from phaze_opt.graph.residency import with_reserve
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

Floats = NDArray[np.float64]
_MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class _Way:
    """Operators of one pass as they would run in a group: from ``first`` on, so many times, in place of ``of``."""

    of: slice
    first: int
    times: int

    def lowered(self, values: Floats) -> None:
        """Bring the pass down to this way, operator by operator; shape (chips, operators)."""
        own = values[:, self.first : self.first + self.of.stop - self.of.start] * self.times
        values[:, self.of] = np.minimum(values[:, self.of], own)


@dataclass(frozen=True, slots=True)
class GroupedLayers:
    """All ways of all layers of units.

    Attributes:
        operators: of the sets, and behind them those of every way.
        ways: which passes they are of.
    """

    operators: tuple[Operator, ...]
    ways: tuple[_Way, ...]

    def lower(self, estimates: Estimates) -> Estimates:
        """Estimates of the operators with passes of units at the least of all ways."""
        one_core_s, spread_s, traffic = (
            np.array(each) for each in (estimates.one_core_s, estimates.spread_s, estimates.traffic_bytes)
        )
        for way in self.ways:
            for values in (one_core_s, spread_s, traffic):
                way.lowered(values)
        return replace(estimates, one_core_s=one_core_s, spread_s=spread_s, traffic_bytes=traffic)


def group_layers(
    model: Workload,
    training: TrainingSpec,
    plans: Sequence[ParallelPlan],
    stack: TrainingStack,
    built: tuple[Sequence[LayerSet], Sequence[Operator]],
) -> GroupedLayers:
    """Every way of the layers of units of some sets.

    Args:
        model: what is trained.
        training: as the sets were built with.
        plans: that have the sets.
        stack: training software.
        built: sets and operators, of `build_layer_sets`.
    """
    sets, known = built
    operators, ways = list(known), list[_Way]()
    for own in sets:
        plan = next(each for each in plans if own.is_of(each))
        places = sorted({place for part in own.parts[1:-1] for place in part})
        for num_parts in _numbers_of_parts(own.key.micro_batch):
            smaller = replace(plan, micro_batch=own.key.micro_batch // num_parts)
            layers = build_set_graph(model, training, smaller, stack).layers
            for place in places:
                for column, graph in _ways(layers[place], num_parts, stack):
                    ways.append(_Way(own.phases[place][column].columns, len(operators), num_parts))
                    operators.extend(graph.operators)
    return GroupedLayers(tuple(operators), tuple(ways))


def _numbers_of_parts(micro_batch: int) -> list[int]:
    return [2**power for power in range(_MOST_PARTS.bit_length()) if micro_batch % 2**power == 0]


def _ways(layer: LayerGraph, num_parts: int, stack: TrainingStack) -> Iterator[tuple[int, OperatorGraph]]:
    """Passes of one part of a layer with some of its tensors on chip; none where it would not be run in parts."""
    is_whole = stack.host_s_per_operator > 0.0
    is_whole |= any(each.collective is not None for graph in layer.phases for each in graph.operators)
    is_kept = layer.kept_input_bytes > 0.0 or layer.kept_output_bytes > 0.0
    passes = (
        (FORWARD, layer.forward, layer.forward_border, not is_kept),
        (BACKWARD, layer.backward, layer.backward_border, True),
    )
    for column, graph, border, may_go in passes:
        if num_parts > 1 and (is_whole or (column == BACKWARD and stack.accumulation_bytes > 0.0)):
            continue
        for number in range(8):
            comes, goes, stays = bool(number & 1), bool(number & 2), bool(number & 4)
            if (goes and not may_go) or (stays and num_parts == 1):
                continue
            yield (
                column,
                with_reserve(graph, border, has_input=comes, spares_output=goes, has_weights=stays)
                if number
                else graph,
            )
