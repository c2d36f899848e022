"""Layers of units as fast as groups that keep tensors on chip could let them be, worked out from what a group may do.

A layer in a group has its input on chip or not, its output there alone or not, its weights there or not, and runs in
1, 2, 4 or 8 parts of the micro-batch. In so many parts an operator takes no less than the least that it takes in any of
these with the buffer that the layer's own tensors leave, all parts together; so the least makespan of any number of
parts bounds every group (decision 0312).

What a solution states of groups is worked out from the tensors at the layers' borders: what the reserve has to hold
while each layer runs, what is written because it is needed later, and how long every part takes with what is left.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from phaze_opt.certify.certificate import SolvedFusion, SolvedGroup, SolvedPart, SolvedPlan, SolvedRun
from phaze_opt.certify.check.plans.layer_sets import BACKWARD, BLOCK, FORWARD, LayerSet, build_set_graph
from phaze_opt.certify.check.problem_data import PHASES
from phaze_opt.estimate.protocol import CompilingEstimator, Estimates, Estimator
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.operator import Operator, OperatorGraph, PhaseBorder
from phaze_opt.graph.residency import with_reserve
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

_MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class _Way:
    """Operators of one pass as they would run in a group, in place of those ``of`` a set."""

    of: slice
    operators: tuple[Operator, ...]


Alternative = tuple[tuple[float, Estimates], ...]
"""Shares, and estimates whose makespans these are of."""


@dataclass(frozen=True)
class GroupedLayers:
    """All ways of all layers of units.

    Attributes:
        ways: by number of parts and whether weights stay, then by the bytes of the buffer that hold tensors of the
            layer while it runs so.
    """

    ways: Mapping[tuple[int, bool], Mapping[int, Sequence[_Way]]]

    @cached_property
    def spans(self) -> frozenset[tuple[int, int]]:
        """Where operators of passes begin and end that have ways."""
        listed = (way for reserves in self.ways.values() for ways in reserves.values() for way in ways)
        return frozenset((way.of.start, way.of.stop) for way in listed)

    def alternatives(self, estimates: Estimates, estimator: Estimator, chips: AcceleratorTable) -> list[Alternative]:
        """What units may run as: whole, in so many parts that each read the weights, or with weights that stay.

        Passes that do not run in so many parts are as they are whole. Of weights that stay the first part reads them,
        and takes no less than a part that reads them and reserves nothing for them.

        Args:
            estimates: of the sets' operators on the chips.
            estimator: of the problem.
            chips: whatever they are.
        """
        whole = self._lowered(estimates, 1, estimator, chips, stays=False)
        found: list[Alternative] = [((1.0, whole),)]
        for num_parts in sorted({parts for parts, _ in self.ways} - {1}):
            reading = self._lowered(whole, num_parts, estimator, chips, stays=False)
            held = self._lowered(reading, num_parts, estimator, chips, stays=True)
            found += [((1.0, reading),), ((1.0 / num_parts, reading), (1.0 - 1.0 / num_parts, held))]
        return found

    def _lowered(
        self, known: Estimates, num_parts: int, estimator: Estimator, chips: AcceleratorTable, *, stays: bool
    ) -> Estimates:
        """Passes that have such ways at the least of those that chips have room for; others, or without, as known."""
        names = ("one_core_s", "spread_s", "traffic_bytes")
        least = {name: np.full(getattr(known, name).shape, np.inf) for name in names}
        for reserved, ways in self.ways.get((num_parts, stays), {}).items():
            rows = np.flatnonzero(chips.glb_bytes > reserved)
            if not len(rows):
                continue
            left = chips.take(rows)
            left = replace(left, glb_bytes=left.glb_bytes - reserved)
            found = estimate_all([each for way in ways for each in way.operators], estimator, left)
            places = np.concatenate([np.arange(way.of.start, way.of.stop) for way in ways])
            for name, values in least.items():
                # A pass comes in several ways with one reserve: each lowers what the others left.
                of_rows = np.ascontiguousarray(values[rows].T)
                np.minimum.at(of_rows, places, (getattr(found, name) * num_parts).T)
                values[rows] = of_rows.T
        return replace(
            known, **{name: np.where(np.isinf(own), getattr(known, name), own) for name, own in least.items()}
        )


def estimate_all(operators: Sequence[Operator], estimator: Estimator, chips: AcceleratorTable) -> Estimates:
    """Estimates of operators that the estimator has not seen before."""
    return estimator.estimate(
        estimator.compile(operators) if isinstance(estimator, CompilingEstimator) else operators, chips
    )


def group_layers(
    model: Workload,
    training: TrainingSpec,
    plans: Sequence[ParallelPlan],
    stack: TrainingStack,
    sets: Sequence[LayerSet],
) -> GroupedLayers:
    """Every way of the layers of units of some sets.

    Args:
        model: what is trained.
        training: as the sets were built with.
        plans: that have the sets.
        stack: training software.
        sets: of `build_layer_sets`.
    """
    ways: dict[tuple[int, bool], dict[int, list[_Way]]] = {}
    for own in sets:
        plan = next(each for each in plans if own.is_of(each))
        places = sorted({place for part in own.parts[1:-1] for place in part})
        for num_parts in _numbers_of_parts(own.key.micro_batch):
            smaller = replace(plan, micro_batch=own.key.micro_batch // num_parts)
            layers = build_set_graph(model, training, smaller, stack).layers
            for place in places:
                for column, stays, reserved, graph in _ways(layers[place], num_parts, stack):
                    way = _Way(own.phases[place][column].columns, graph.operators)
                    ways.setdefault((num_parts, stays), {}).setdefault(reserved, []).append(way)
    return GroupedLayers(ways)


def _numbers_of_parts(micro_batch: int) -> list[int]:
    return [2**power for power in range(_MOST_PARTS.bit_length()) if micro_batch % 2**power == 0]


def _runs_whole(layer: LayerGraph, column: int, stack: TrainingStack) -> bool:
    """Whether parts would send, launch or add up gradients more than once."""
    is_whole = stack.host_s_per_operator > 0.0
    is_whole |= any(each.collective is not None for graph in layer.phases for each in graph.operators)
    return is_whole or (column == BACKWARD and stack.accumulation_bytes > 0.0)


def _is_kept(layer: LayerGraph) -> bool:
    """Whether backward needs what the layer takes in or gives on."""
    return layer.kept_input_bytes > 0.0 or layer.kept_output_bytes > 0.0


def _pass_of(layer: LayerGraph, column: int) -> tuple[OperatorGraph, PhaseBorder]:
    """One pass of a layer, and what it moves at the layer's border."""
    if column == BACKWARD:
        return layer.backward, layer.backward_border
    return layer.forward, layer.forward_border


def _ways(layer: LayerGraph, num_parts: int, stack: TrainingStack) -> Iterator[tuple[int, bool, int, OperatorGraph]]:
    """Passes of one part of a layer with some of its tensors on chip: whether weights stay, and the bytes of all.

    None where it would not be run in parts.
    """
    for column in (FORWARD, BACKWARD):
        (graph, border), may_go = _pass_of(layer, column), column == BACKWARD or not _is_kept(layer)
        if num_parts > 1 and _runs_whole(layer, column, stack):
            continue
        for number in range(8):
            comes, goes, stays = bool(number & 1), bool(number & 2), bool(number & 4)
            if (goes and not may_go) or (stays and num_parts == 1):
                continue
            if not number:
                yield column, False, 0, graph
                continue
            reserved = sum(each.num_bytes for each in border.weights) if stays else 0
            reserved += border.entering.num_bytes if comes and border.entering else 0
            reserved += border.leaving.num_bytes if goes and border.leaving else 0
            yield (
                column,
                stays,
                reserved,
                with_reserve(graph, border, has_input=comes, spares_output=goes, has_weights=stays),
            )


@dataclass(frozen=True, slots=True)
class LayersInParts:
    """Layers of one plan, for the whole micro-batch or for a part of it.

    Attributes:
        model: what is trained.
        training: as sets are built with.
        stack: training software.
        whole: the set of the plan.
        plan: the plan.
    """

    model: Workload
    training: TrainingSpec
    stack: TrainingStack
    whole: LayerSet
    plan: ParallelPlan
    _known: dict[int, tuple[LayerGraph, ...]] = field(default_factory=dict, repr=False)

    def of(self, num_parts: int) -> tuple[LayerGraph, ...]:
        """The layers for one of so many parts, built once."""
        if num_parts not in self._known:
            smaller = replace(self.plan, micro_batch=self.plan.micro_batch // num_parts)
            built = self.whole.layers
            if num_parts > 1:
                built = build_set_graph(self.model, self.training, smaller, self.stack).layers
            self._known[num_parts] = built
        return self._known[num_parts]

    @property
    def numbers_of_parts(self) -> list[int]:
        """Into how many parts the micro-batch divides."""
        return _numbers_of_parts(self.plan.micro_batch)


_PartKey = tuple[int, int, int, bool, bool, bool, int]
"""Layer, pass, number of parts, what of it is on chip (input, output alone, weights), and the reserve."""


@dataclass(frozen=True, slots=True)
class SolvedGroups:
    """Works out what units take in the groups of a solution, or the rule that these break.

    Attributes:
        graphs: the layers.
        solved: the plan and its stages.
        buffer_bytes: of the chip.
        replay: how long the schedule of a part takes with what its reserve leaves, s, or the rule that it breaks.
    """

    graphs: LayersInParts
    solved: SolvedPlan
    buffer_bytes: int
    replay: Callable[[OperatorGraph, SolvedPart], float | str]

    def stages_s(self, fusion: SolvedFusion, makespan_s: Floats) -> list[dict[tuple[int, int], float]] | str:
        """Of each stage by kind of unit and pass what a unit takes in the mean, s; nothing of passes without groups.

        Args:
            fusion: what a solution states.
            makespan_s: of layers each alone, shape (layers, passes), s.
        """
        parts_s: dict[_PartKey, float] = {}
        for part in fusion.parts:
            key = _part_key(part)
            made = "is there twice" if key in parts_s else self._part_s(part, key)
            if isinstance(made, str):
                return f"part of layer {part.schedule.layer}, {part.schedule.phase}, in a group: {made}"
            parts_s[key] = made
        runs_s: dict[tuple[int, int], list[float]] = {}
        for run in fusion.runs:
            key_of_run = run.chunk, PHASES.index(run.phase)
            seconds = "has groups twice" if key_of_run in runs_s else self._run_s(run, parts_s, makespan_s)
            if isinstance(seconds, str):
                return f"chunk {run.chunk}, {run.phase}: {seconds}"
            runs_s[key_of_run] = seconds
        return [self._means_s(stage, runs_s, makespan_s) for stage in range(self.solved.plan.pipeline)]

    def _part_s(self, part: SolvedPart, key: _PartKey) -> float | str:
        """One part of a layer with its schedule, s."""
        place, column, *_ = key
        units = {at for unit in self.graphs.whole.parts[BLOCK:-1] for at in unit}
        if place not in units or column not in (FORWARD, BACKWARD) or part.schedule.is_again:
            return "is no pass of a unit's layer"
        if part.num_parts not in self.graphs.numbers_of_parts:
            return f"a micro-batch of {self.solved.plan.micro_batch} has no {part.num_parts} parts"
        if not 0 <= part.reserved_bytes < self.buffer_bytes:
            return f"{part.reserved_bytes} bytes are reserved of a buffer of {self.buffer_bytes}"
        graph, border = _pass_of(self.graphs.of(part.num_parts)[place], column)
        on_chip = {"has_input": part.has_input, "spares_output": part.spares_output, "has_weights": part.has_weights}
        return self.replay(with_reserve(graph, border, **on_chip) if any(on_chip.values()) else graph, part)

    def _run_s(self, run: SolvedRun, parts_s: Mapping[_PartKey, float], makespan_s: Floats) -> list[float] | str:
        """Every layer of a chunk in its group, first layer of the model first, s."""
        column, chunks = PHASES.index(run.phase), self._chunks
        if column not in (FORWARD, BACKWARD) or not 0 <= run.chunk < len(chunks):
            return "is no pass of a chunk of its plan"
        recompute = self.solved.recompute[run.chunk % self.solved.plan.pipeline]
        if column == BACKWARD and recompute is not Recompute.NONE:
            return "backward of a stage that recomputes runs in groups"
        places = self._places(*chunks[run.chunk])[:: -1 if column == BACKWARD else 1]
        sizes = [group.num_layers for group in run.groups]
        if min(sizes, default=0) < 1 or sum(sizes) != len(places):
            return f"its groups do not hold each of {len(places)} layers once and in order"
        seconds: list[float] = []
        for group in run.groups:
            own = places[len(seconds) : len(seconds) + group.num_layers]
            fault = self._fault(group, own, column, is_recomputed=recompute is not Recompute.NONE)
            taken = fault or _layers_s(group, own, column, parts_s, makespan_s)
            if isinstance(taken, str):
                return f"group from layer {len(seconds)} on: {taken}"
            seconds += taken
        return seconds[:: -1 if column == BACKWARD else 1]

    def _fault(self, group: SolvedGroup, places: Sequence[int], column: int, *, is_recomputed: bool) -> str | None:
        """Why a group cannot run as it says."""
        if group.num_parts not in self.graphs.numbers_of_parts:
            return f"a micro-batch of {self.solved.plan.micro_batch} has no {group.num_parts} parts"
        layers = [self.graphs.of(group.num_parts)[place] for place in places]
        needed = _reserve_bytes([_pass_of(layer, column)[1] for layer in layers], holds_weights=group.holds_weights)
        if needed is None:
            return "no single tensor goes from one of its layers to the next"
        has_parts, stack, reserved = group.num_parts > 1, self.graphs.stack, group.reserved_bytes
        is_needed = len(layers) > 1 and column == FORWARD and (is_recomputed or any(map(_is_kept, layers)))
        faults = {
            "its layers send, launch or add up gradients once, and it runs in parts": has_parts
            and any(_runs_whole(layer, column, stack) for layer in layers),
            "it holds weights for later parts, and has one part": group.holds_weights and not has_parts,
            "it does not write what backward needs": is_needed and not group.is_written,
            f"it needs {needed} bytes and reserves {reserved} of a buffer of {self.buffer_bytes}": not (
                needed <= reserved < self.buffer_bytes
            ),
        }
        return next((rule for rule, is_broken in faults.items() if is_broken), None)

    def _means_s(
        self, stage: int, runs_s: Mapping[tuple[int, int], list[float]], makespan_s: Floats
    ) -> dict[tuple[int, int], float]:
        """Units of a stage, each kind at the mean of what all of them take."""
        layers, own = self.graphs.whole, range(stage, len(self._chunks), self.solved.plan.pipeline)
        found: dict[tuple[int, int], float] = {}
        for column in (FORWARD, BACKWARD):
            if not any((chunk, column) in runs_s for chunk in own):
                continue
            taken: dict[int, list[float]] = {}
            for chunk in own:
                start, stop = self._chunks[chunk]
                alone = [float(makespan_s[place, column]) for place in self._places(start, stop)]
                left = iter(runs_s.get((chunk, column), alone))
                for kind in layers.order[start:stop]:
                    unit_s = sum(next(left) for _ in layers.parts[BLOCK + kind])
                    taken.setdefault(BLOCK + kind, []).append(unit_s)
            found |= {(part, column): sum(each) / len(each) for part, each in taken.items()}
        return found

    @property
    def _chunks(self) -> list[tuple[int, int]]:
        """First block of each model chunk and the one behind it, along the model: turn by turn a chunk of each stage.

        Chunks of a stage differ by one block at most; the first stage has its smaller ones first, others last.
        """
        turns, sizes = self.solved.plan.interleave, []
        for turn in range(turns):
            for stage, count in enumerate(self.solved.blocks):
                place = turns - 1 - turn if stage == 0 else turn
                sizes.append(len(range(place, count, turns)))
        ends = np.cumsum([0, *sizes]).tolist()
        return [*pairwise(ends)]

    def _places(self, start: int, stop: int) -> list[int]:
        """Layers of some blocks, in order."""
        layers = self.graphs.whole
        return [place for kind in layers.order[start:stop] for place in layers.parts[BLOCK + kind]]


def _part_key(part: SolvedPart) -> _PartKey:
    on_chip = part.has_input, part.spares_output, part.has_weights
    return part.schedule.layer, PHASES.index(part.schedule.phase), part.num_parts, *on_chip, part.reserved_bytes


def _reserve_bytes(borders: Sequence[PhaseBorder], *, holds_weights: bool) -> int | None:
    """What a group's reserve has to hold while its fullest layer runs; None where layers share no single tensor."""
    crossing = [0]
    for before, behind in pairwise(borders):
        made, read = before.leaving, behind.entering
        if made is None or read is None or made.num_bytes != read.num_bytes:
            return None
        crossing.append(read.num_bytes)
    fullest = max(comes + goes for comes, goes in pairwise([*crossing, 0]))
    return fullest + holds_weights * sum(each.num_bytes for border in borders for each in border.weights)


def _layers_s(
    group: SolvedGroup, places: Sequence[int], column: int, parts_s: Mapping[_PartKey, float], makespan_s: Floats
) -> list[float] | str:
    """Each layer of a group, all parts together, in the order that they run, s."""
    if len(places) == group.num_parts == 1:
        return [float(makespan_s[places[0], column])]
    later, seconds = (group.num_parts - 1) * group.holds_weights, []
    for number, place in enumerate(places):
        comes, goes = number > 0, number < len(places) - 1
        way = (place, column, group.num_parts, comes, goes and not group.is_written)
        first, others = ((*way, is_held, group.reserved_bytes) for is_held in (False, True))
        if first not in parts_s or (later and others not in parts_s):
            return f"how layer {place} runs in it is not said"
        seconds.append((group.num_parts - later) * parts_s[first] + (later and later * parts_s[others]))
    return seconds
