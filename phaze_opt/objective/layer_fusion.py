"""Layer fusion of a plan's stages on a designed chip: what their groups of layers save, by a fuser plug-in.

Units of a stage run forward and backward in groups (`schedule.layer_fusion`). What the residency model (decision 0268)
charges the first read of a group's inner border tensors, and the write of those that backward does not need, goes.
Every layer is scheduled anew with the buffer that the group's reserve leaves, so the answer can be run. Front and back,
optimizer, recomputation, and backward of stages that recompute stay as they are (decision 0311).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.compiled_step import BACKWARD, FORWARD, CompiledStep
from phaze_opt.cost.price_step import LayerTimes, StageDevices, price_stages, price_step
from phaze_opt.cost.step_time import StageTimes, StepTime
from phaze_opt.errors import PluginError
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.operator import OperatorGraph, OperatorKind, ShardingOptions
from phaze_opt.graph.residency import with_reserve
from phaze_opt.hardware.network import Network
from phaze_opt.plugins import PluginGroup, load_plugin, plugin_code
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.near_ties import comparable
from phaze_opt.schedule.layer_fusion import (
    ALONE,
    FIRST,
    INNER,
    LAST,
    NUM_PLACES,
    Fuser,
    FusionChoice,
    FusionGroup,
    FusionProblem,
    group_layers_s,
    no_groups,
    reserved_slices,
)
from phaze_opt.schedule.problem import ScheduleResult
from phaze_opt.workload.plan import Recompute, chunk_sizes

NUM_SLICES = 8
"""Equal slices of the buffer that reserves are rounded up to: a matter of time only; more find a little more."""
PARTS = (1, 2, 4, 8)
"""Parts of a micro-batch that groups may run in, where its samples divide."""


@dataclass(frozen=True, slots=True)
class FusedChain:
    """One phase of the units that a stage runs one after the other, in the order it runs them.

    Attributes:
        kinds: of its layers, by their place among the distinct ones.
        phase: forward or backward.
        is_written: whether what goes from layer to layer is needed later, so that it goes to HBM too.
        problem: its layers.
        groups: of a fuser.
        joules: that operators of layers use, shape as the problem's ``seconds``.
    """

    kinds: tuple[int, ...]
    phase: int
    is_written: bool
    problem: FusionProblem
    groups: tuple[FusionGroup, ...]
    joules: Floats

    def cells(self, group: FusionGroup) -> "tuple[LayerCell, ...]":
        """How every layer of one of its groups runs."""
        slices = int(self.problem.slices[group.first, group.stop, group.choice])
        places = (
            FIRST * (layer < group.stop - 1) + LAST * (layer > group.first) for layer in range(group.first, group.stop)
        )
        choice, kinds = self.problem.choices[group.choice], self.kinds[group.first : group.stop]
        return tuple(
            LayerCell(kind, self.phase, choice, place, slices, self.is_written)
            for kind, place in zip(kinds, places, strict=True)
        )

    @property
    def layers_s(self) -> Floats:
        """What every layer takes, s."""
        return group_layers_s(self.problem, self.groups)

    @property
    def saved_j(self) -> float:
        """What the traffic that the groups spare saves over layers each alone, J."""
        energy = replace(self.problem, seconds=self.joules)
        return float((group_layers_s(energy, no_groups(energy)) - group_layers_s(energy, self.groups)).sum())


@dataclass(frozen=True, slots=True)
class FusedRun:
    """What a model chunk, counted along the model, runs of a micro-batch in one phase."""

    chunk: int
    chain: FusedChain


@dataclass(frozen=True, slots=True)
class FusedStep:
    """A step whose stages run their layers in groups.

    Attributes:
        time: of the step.
        stages: times of the stages.
        runs: of every stage's chunks: forward, then backward unless the stage recomputes.
        unfused_s: the step without fusion, s.
        saved_j: what the groups save over all devices in a step by the traffic that they spare, J.
    """

    time: StepTime
    stages: StageTimes
    runs: tuple[FusedRun, ...]
    unfused_s: float
    saved_j: float = 0.0

    @property
    def chains(self) -> tuple[FusedChain, ...]:
        """Of every distinct run of units."""
        return tuple({id(each.chain): each.chain for each in self.runs}.values())

    @property
    def sentence(self) -> str:
        """What fusion is worth, for people."""
        longest = max((each.stop - each.first for chain in self.chains for each in chain.groups), default=1)
        gain = self.unfused_s / self.time.seconds - 1.0
        if self.time.seconds == self.unfused_s:
            return "layer fusion: every layer runs alone; no groups make the step faster"
        if longest == 1:
            return f"layer fusion: every layer runs alone; the step is {gain:.2%} faster by parts of micro-batches"
        return (
            f"layer fusion: groups of up to {longest} layers; the step is {gain:.2%} faster than with each layer alone"
        )


def load_fuser(name: str) -> Fuser:
    """The fuser plug-in of a name.

    Raises:
        PluginError: unknown, fails to load, or is no fuser.
    """
    found = load_plugin(PluginGroup.FUSERS, name)
    if not isinstance(found, Fuser):
        message = f"{PluginGroup.FUSERS.value}: '{name}' is no fuser: it needs a name, is_exact and fuse"
        raise PluginError(message)
    return found


def fuse_step(step: CompiledStep, clock: ScheduleClock, times: LayerTimes, *, network: Network, name: str) -> FusedStep:
    """The step with its layers in groups; the plan is kept, and what does not gain is left.

    Args:
        step: of the plan.
        clock: of the chip, which is a die.
        times: of the step's layers without fusion.
        network: that the plan's devices are on.
        name: of the fuser.

    Raises:
        PluginError: the fuser is unknown, or fails to load.
    """
    fusion = _StageFusion(step, clock, load_fuser(name))
    stages = tuple(range(step.plan.pipeline))
    chains: dict[object, FusedChain] = {}
    devices = StageDevices([fusion.stage_times(stage, times, chains) for stage in stages], stages)
    plain = StageDevices([times] * len(stages), stages)
    unfused_s = price_step(step, plain, network).seconds
    time = price_step(step, devices, network)
    if time.seconds > unfused_s:
        # Gradients hide behind backward passes: a shorter one may hide less than it saves.
        devices, time = plain, price_step(step, plain, network)
        chains = {key: replace(each, groups=no_groups(each.problem)) for key, each in chains.items()}
    return FusedStep(
        time=time,
        stages=price_stages(step, devices, network),
        runs=tuple(fusion.runs(chains)),
        unfused_s=unfused_s,
        saved_j=fusion.saved_j(chains),
    )


class _StageFusion:
    """Groups of the units of one step's stages; a run of units that comes again is not cut again."""

    def __init__(self, step: CompiledStep, clock: ScheduleClock, fuser: Fuser) -> None:
        self._step, self._fuser = step, fuser
        self._table = LayerTable(step, clock)

    def stage_times(self, stage: int, alone: LayerTimes, chains: dict[object, FusedChain]) -> LayerTimes:
        """Times of a stage's layers: units of each kind at the mean of what theirs take in their groups."""
        cut = self._step.graph.cut
        classes_s = alone.classes_s.copy()
        runs = self._runs(stage).values()
        kinds_of = [unit for run in runs for unit in run]
        for phase in self._phases(stage):
            taken = np.zeros(len(cut.units))
            for run in runs:
                for unit, seconds in self._units_s(run, phase, stage, chains):
                    taken[unit] += seconds
            for unit in set(kinds_of):
                mean_s, part = taken[unit] / kinds_of.count(unit), unit + 1
                before_s = classes_s[part, phase].sum()
                # Where nothing is gained the figures stay to the bit.
                if comparable(mean_s) != comparable(before_s):
                    classes_s[part, phase] *= mean_s / before_s
        return replace(alone, classes_s=classes_s)

    def saved_j(self, chains: Mapping[object, FusedChain]) -> float:
        """What all devices save in a step, J: every micro-batch goes once through every run of units."""
        plan = self._step.plan
        devices = plan.tensor * plan.context * plan.data
        return devices * self._step.num_micro_batches * sum(each.chain.saved_j for each in self.runs(chains))

    def runs(self, chains: Mapping[object, FusedChain]) -> Iterator[FusedRun]:
        """What every chunk of every stage runs."""
        plan = self._step.plan
        for stage in range(plan.pipeline):
            for phase in self._phases(stage):
                for chunk, run in self._runs(stage).items():
                    yield FusedRun(chunk, chains[run, phase, plan.recomputes[stage]])

    def _phases(self, stage: int) -> tuple[int, ...]:
        """Backward of stages that recompute is left alone: forward again comes between its layers."""
        return (FORWARD, BACKWARD) if self._step.plan.recomputes[stage] is Recompute.NONE else (FORWARD,)

    def _runs(self, stage: int) -> dict[int, tuple[int, ...]]:
        """Kinds of the units of every model chunk of a stage, by its number."""
        step, pipeline = self._step, self._step.plan.pipeline
        sizes = chunk_sizes(step.blocks, step.plan.interleave)
        borders = np.cumsum([0, *sizes]).tolist()
        order = step.graph.cut.order
        return {n: order[borders[n] : borders[n + 1]] for n in range(stage, len(sizes), pipeline) if sizes[n]}

    def _units_s(
        self, run: tuple[int, ...], phase: int, stage: int, chains: dict[object, FusedChain]
    ) -> list[tuple[int, float]]:
        """Every unit of a run with what its layers take."""
        recompute = self._step.plan.recomputes[stage]
        key = run, phase, recompute
        units = self._step.graph.cut.units
        kinds = tuple(kind for unit in run for kind in units[unit])
        if key not in chains:
            chains[key] = self._table.fuse(kinds, phase, self._fuser, keeps_input=recompute is not Recompute.NONE)
        seconds = chains[key].layers_s[:: -1 if phase == BACKWARD else 1]
        ends = np.cumsum([0, *(len(units[unit]) for unit in run)])
        return [(unit, float(seconds[a:b].sum())) for unit, (a, b) in zip(run, pairwise(ends.tolist()), strict=True)]


_ON_CHIP: Mapping[int, tuple[bool, bool]] = MappingProxyType(
    {ALONE: (False, False), FIRST: (False, True), LAST: (True, False), INNER: (True, True)}
)
"""By place in a group: whether the layer's input and its output lie in the reserve."""


@dataclass(frozen=True, slots=True)
class LayerCell:
    """One way a kind of layer runs; ``is_written`` where backward or recomputation needs what goes to its neighbour."""

    kind: int
    phase: int
    choice: FusionChoice
    place: int
    slices: int
    is_written: bool

    @property
    def ways(self) -> "tuple[PartWay, ...]":
        """How its parts run: the first, which reads weights, and all later ones, which may have them on chip."""
        has_input, has_output = _ON_CHIP[self.place]
        later = self.choice.num_parts - 1 if self.choice.holds_weights else 0
        ways = (
            PartWay(count, has_input, has_output and not self.is_written, has_weights)
            for count, has_weights in ((self.choice.num_parts - later, False), (later, True))
        )
        return tuple(way for way in ways if way.count)


@dataclass(frozen=True, slots=True)
class PartWay:
    """So many parts of the micro-batch through a layer, with some of its tensors in the reserve."""

    count: int
    has_input: bool
    spares_output: bool
    has_weights: bool


class LayerTable:
    """What kinds of layers take, by phase, choice, place and slices of the buffer that are reserved."""

    def __init__(self, step: CompiledStep, clock: ScheduleClock) -> None:
        """Keep what every cell shares; nothing is scheduled yet.

        Args:
            step: whose layers they are.
            clock: of the chip.
        """
        self._step, self._capacity = step, clock.accelerator.glb_bytes
        self._clocks = [clock.with_buffer(self._left_bytes(slices)) for slices in range(NUM_SLICES)]
        self._clocks[0] = clock
        self._graphs = {1: step.graph.layers}
        self._known: dict[LayerCell, tuple[float, float]] = {}

    def _left_bytes(self, slices: int) -> int:
        return self._capacity - -(-slices * self._capacity // NUM_SLICES)

    def fuse(self, kinds: tuple[int, ...], phase: int, fuser: Fuser, *, keeps_input: bool) -> FusedChain:
        """Groups of a run of layers in one phase; ``keeps_input`` where recomputation needs every layer's input."""
        order = kinds[::-1] if phase == BACKWARD else kinds
        distinct = sorted(set(order))
        layers = [self._step.graph.layers[kind] for kind in distinct]
        numbers = np.array([distinct.index(kind) for kind in order])
        borders = np.array([_crossing(layers[a], layers[b], phase) for a, b in pairwise(numbers.tolist())], np.int64)
        held = np.array([_weight_bytes(layers[number], phase) for number in numbers], np.int64)
        choices = self._choices(layers, phase)
        is_written = phase == FORWARD and (keeps_input or any(is_kept(layer) for layer in layers))
        wanted = _wanted(numbers, reserved_slices(borders, held, choices, self._capacity, num_slices=NUM_SLICES))
        shape = (len(distinct), len(choices), NUM_PLACES, NUM_SLICES)
        seconds, joules = (np.full(shape, np.inf) for _ in range(2))
        for at in map(tuple, np.argwhere(wanted).tolist()):
            number, choice, place, slices = at
            cell = LayerCell(distinct[number], phase, choices[choice], place, slices, is_written)
            seconds[at], joules[at] = self._price(cell)
        problem = FusionProblem(numbers, borders, held, choices, self._capacity, seconds)
        with plugin_code(PluginGroup.FUSERS, fuser.name):
            groups = fuser.fuse(problem)
        return FusedChain(order, phase, is_written, problem, groups, joules)

    def reserved_bytes(self, slices: int) -> int:
        """What so many slices of the buffer are."""
        return self._capacity - self._left_bytes(slices)

    def schedule(self, cell: LayerCell, way: PartWay) -> ScheduleResult:
        """How one part of a layer runs."""
        return self._clocks[cell.slices].schedule(self._graph(cell, way))

    def _choices(self, layers: Sequence[LayerGraph], phase: int) -> tuple[FusionChoice, ...]:
        """Weights that stay are worth something where a group runs in parts."""
        parts = parts_of(self._step, layers, phase)
        return tuple(FusionChoice(each, holds) for each in parts for holds in ((False, True) if each > 1 else (False,)))

    def _price(self, cell: LayerCell) -> tuple[float, float]:
        """What a layer takes for all parts, s, and the energy of its operators, J."""
        if cell not in self._known:
            taken, clock = np.zeros(2), self._clocks[cell.slices]
            for way in cell.ways:
                found, operators = self.schedule(cell, way), self._graph(cell, way).operators
                joules = float(clock.estimate(operators).energy_j[0].sum())
                taken += way.count * np.array([found.makespan_s, joules])
            self._known[cell] = float(taken[0]), float(taken[1])
        return self._known[cell]

    def _graph(self, cell: LayerCell, way: PartWay) -> OperatorGraph:
        """The phase of a layer as it runs there; as it stands where nothing of it is in a reserve."""
        layer, is_back = self._layers(cell.choice.num_parts)[cell.kind], cell.phase == BACKWARD
        graph = layer.backward if is_back else layer.forward
        border = layer.backward_border if is_back else layer.forward_border
        on_chip = {"has_input": way.has_input, "spares_output": way.spares_output, "has_weights": way.has_weights}
        return with_reserve(graph, border, **on_chip) if any(on_chip.values()) else graph

    def _layers(self, num_parts: int) -> tuple[LayerGraph, ...]:
        """The layers of the step for one of so many parts of its micro-batch."""
        if num_parts not in self._graphs:
            self._graphs[num_parts] = layers_in_parts(self._step, num_parts)
        return self._graphs[num_parts]


def layers_in_parts(step: CompiledStep, num_parts: int) -> tuple[LayerGraph, ...]:
    """The layers of a step for one of so many parts of its micro-batch."""
    if num_parts == 1:
        return step.graph.layers
    plan = step.plan
    return build_model_graph(
        step.model,
        replace(step.training, micro_batch=plan.micro_batch // num_parts),
        tensor_parallel=plan.tensor,
        fusion=step.stack.fusion,
        options=ShardingOptions.of_plan(plan),
    ).layers


def parts_of(step: CompiledStep, layers: Sequence[LayerGraph], phase: int) -> tuple[int, ...]:
    """Into how many parts layers may run the micro-batch.

    Parts cost collectives, launches and sums of gradients once more each, so whoever has these runs whole.
    """
    operators = [each for layer in layers for graph in layer.phases for each in graph.operators]
    is_whole = any(each.kind is OperatorKind.COLLECTIVE for each in operators)
    is_whole |= step.stack.host_s_per_operator > 0.0 or (phase == BACKWARD and step.stack.accumulation_bytes > 0.0)
    return (1,) if is_whole else tuple(each for each in PARTS if step.plan.micro_batch % each == 0)


def _crossing(before: LayerGraph, behind: LayerGraph, phase: int) -> int:
    """Bytes of the tensor that goes from one layer to the one that runs next; -1 where it is not one tensor."""
    made, read = (
        (before.backward_border.leaving, behind.backward_border.entering)
        if phase == BACKWARD
        else (before.forward_border.leaving, behind.forward_border.entering)
    )
    return made.num_bytes if made is not None and read is not None and made.num_bytes == read.num_bytes else -1


def _weight_bytes(layer: LayerGraph, phase: int) -> int:
    border = layer.backward_border if phase == BACKWARD else layer.forward_border
    return sum(each.num_bytes for each in border.weights)


def is_kept(layer: LayerGraph) -> bool:
    """Whether backward needs the layer's input or its output."""
    return layer.kept_input_bytes > 0.0 or layer.kept_output_bytes > 0.0


def _wanted(numbers: Ints, slices: Ints) -> Flags:
    """Which cells of the table groups may ask for: shape (kinds, choices, `NUM_PLACES`, `NUM_SLICES`)."""
    wanted = np.zeros((int(numbers.max()) + 1, slices.shape[-1], NUM_PLACES, NUM_SLICES), np.bool_)
    for first, stop, choice in np.argwhere(slices < NUM_SLICES).tolist():
        own = slices[first, stop, choice]
        if stop - first == 1:
            wanted[numbers[first], choice, ALONE, own] = True
        else:
            wanted[numbers[first], choice, FIRST, own] = True
            wanted[numbers[stop - 1], choice, LAST, own] = True
            wanted[numbers[first + 1 : stop - 1], choice, INNER, own] = True
    return wanted
