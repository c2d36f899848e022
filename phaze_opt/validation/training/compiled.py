"""Rows of training sets compiled once and priced together: the seam's `CompiledRows` for every training family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.estimate.operator_table import CompiledOperators, compile_operators
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fabrics import GROUP_PREFIX
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.step.compiled_step import CompiledStep, compile_step, split_blocks
from phaze_opt.objective.step.device_seconds import OperatorRoles, device_seconds, roles_of
from phaze_opt.objective.step.plan_network import plan_network
from phaze_opt.objective.step.price_step import BACKWARD, SerialSums, StackColumns, price_batch
from phaze_opt.objective.step.stacks import load_stack
from phaze_opt.objective.step.step_batch import StepBatch, build_batch
from phaze_opt.objective.step.step_traffic import NUM_LAYERS, Traffic
from phaze_opt.placement.step_time import StepTimes
from phaze_opt.validation.family import Part
from phaze_opt.validation.training.row import TrainingRow
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.stack import TrainingStack

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Curves = Mapping[str, Mapping[str, float]]

_PART_NAMES = MappingProxyType(
    {
        "tensor_s": "inside layers",
        "transfer_s": "between stages",
        "parameter_s": "parameter traffic",
        "gradient_s": "gradient traffic",
    }
)
"""Parts of a step whose field names alone do not say that they are traffic."""


@dataclass(frozen=True, slots=True)
class TrainingEntry:
    """How one row is predicted.

    Attributes:
        row: what it describes.
        stack: name of the software.
        network: name of the one that the devices are on.
        path: units and precision of the matmuls.
        is_lone_block: whether forward and backward of one block alone were measured.
    """

    row: TrainingRow
    stack: str
    network: str
    path: ComputePath
    is_lone_block: bool = False

    def network_under(self, fitted: FittedConstants) -> Network:
        """The network with the curves of some constants; a torus is mapped to the plan.

        Raises:
            InputError: the network is unknown, or its torus cannot be mapped.
        """
        plan = self.row.plan
        return plan_network(load_network(self.network, num_devices=plan.num_devices, fitted=fitted), plan)


class CurvedBatch:
    """A batch of steps that is built again whenever the collectives' constants change, and kept while they do not.

    A fit of other constants asks for the same curves thousands of times.

    Args:
        build: the batch, with networks under some constants.
    """

    def __init__(self, build: Callable[[FittedConstants], StepBatch]) -> None:
        """Nothing is built before constants are known."""
        self._build = build
        self._known: tuple[Curves, StepBatch] | None = None

    def under(self, fitted: FittedConstants) -> StepBatch:
        """The batch on networks whose measured curves are those of ``fitted``."""
        curves = {name: values for name, values in fitted.groups.items() if name.startswith(GROUP_PREFIX)}
        if self._known is None or self._known[0] != curves:
            self._known = (curves, self._build(fitted))
        return self._known[1]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows on one device, path and stack; they share graphs and operators."""

    device: Device
    path: ComputePath
    stack: str
    operators: CompiledOperators
    roles: OperatorRoles
    sums: SerialSums
    rows: Indices
    graph_of_row: Indices
    is_full: NDArray[np.bool_]


class CompiledTraining:
    """Rows of training sets, predicted again and again under other constants.

    Attributes:
        measured_s: measured time of every row, shape (num_rows,), s.
        unscored: why a row is not predicted, by its index.
    """

    def __init__(self, entries: Sequence[TrainingEntry | str]) -> None:
        """Compile the graphs; an entry that is a sentence, or whose model cannot be sharded, stays unscored.

        Args:
            entries: one for each row, or why there is none.
        """
        self.measured_s = np.array([np.nan if isinstance(each, str) else each.row.measured_s for each in entries])
        self.unscored = {index: each for index, each in enumerate(entries) if isinstance(each, str)}
        compiler = _StepCompiler()
        scored: list[tuple[int, TrainingEntry, CompiledStep]] = []
        for index, entry in enumerate(entries):
            if isinstance(entry, str):
                continue
            try:
                scored.append((index, entry, compiler.compile(entry)))
            except InputError as error:
                self.unscored[index] = str(error)
        self._indices = np.array([index for index, _, _ in scored], np.intp)
        self._entries = [entry for _, entry, _ in scored]
        self._groups = _build_groups([(entry, step) for _, entry, step in scored])
        self._batch = CurvedBatch(partial(_build, self._entries, [step for _, _, step in scored]))

    @property
    def entries(self) -> tuple[TrainingEntry, ...]:
        """The rows that are predicted, in order."""
        return tuple(self._entries)

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time of every row, shape (num_rows,), s; nan where unscored."""
        seconds = np.full(len(self.measured_s), np.nan)
        if self._entries:
            seconds[self._indices] = self.times(fitted).seconds
        return seconds

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Parts of the predicted time of one row."""
        place = int(np.flatnonzero(self._indices == index)[0])
        parts = self.times(fitted).one(place).parts
        return tuple(Part(_PART_NAMES.get(name, name.removesuffix("_s")), seconds) for name, seconds in parts.items())

    def times(self, fitted: FittedConstants) -> StepTimes:
        """Times of all scored rows and their parts, in the rows' order."""
        assert self._entries, "no row is scored"
        stacks = {name: load_stack(name, fitted) for name in {entry.stack for entry in self._entries}}
        classes_s = np.zeros((len(self._entries), NUM_LAYERS, 3, 3))
        attention_s = np.zeros((len(self._entries), NUM_LAYERS))
        for group in self._groups:
            classes_s[group.rows], attention_s[group.rows] = _device_times(group, stacks[group.stack], fitted)
        columns = StackColumns.of([stacks[entry.stack] for entry in self._entries])
        return price_batch(self._batch.under(fitted), classes_s, attention_s, _without_overhead(columns, self._entries))


def _device_times(group: _Group, stack: TrainingStack, fitted: FittedConstants) -> tuple[Floats, Floats]:
    seconds = device_seconds(group.operators, group.device, group.roles, path=group.path, stack=stack, fitted=fitted)
    classes, attention = group.sums.add_up(seconds)
    classes = classes[group.graph_of_row]
    kept = group.sums.kept(seconds)[group.graph_of_row]
    classes[:, :, BACKWARD] -= np.where(group.is_full[:, None, None], kept, 0.0)
    return classes, attention[group.graph_of_row]


class _StepCompiler:
    """Compiles each distinct graph once; rows that differ in depth, batch or replicas share it."""

    def __init__(self) -> None:
        self._known: dict[object, CompiledStep] = {}

    def compile(self, entry: TrainingEntry) -> CompiledStep:
        row, plan = entry.row, entry.row.plan
        stack = load_stack(entry.stack, FittedConstants({}))
        layer = replace(row.model, num_layers=1, name="", source="")
        training = replace(row.training, global_batch=1)
        alone = replace(plan, pipeline=1, data=plan.expert, interleave=1, zero=0, state_shards=0)
        key = (layer, training, replace(alone, recompute=type(plan.recompute).NONE), stack)
        if key not in self._known:
            self._known[key] = compile_step(row.model, row.training, plan, stack=stack)
        blocks = split_blocks(row.model.num_layers, plan.pipeline)
        return replace(self._known[key], model=row.model, training=row.training, plan=plan, stack=stack, blocks=blocks)


def _build_groups(scored: Sequence[tuple[TrainingEntry, CompiledStep]]) -> tuple[_Group, ...]:
    members: dict[tuple[str, ComputePath, str], list[int]] = {}
    for place, (entry, _) in enumerate(scored):
        members.setdefault((entry.row.device.name, entry.path, entry.stack), []).append(place)
    groups = []
    for (_, path, stack), places in members.items():
        graphs: dict[int, CompiledStep] = {}
        for place in places:
            graphs.setdefault(id(scored[place][1].operators), scored[place][1])
        number = {key: index for index, key in enumerate(graphs)}
        operators = compile_operators([each for step in graphs.values() for each in step.operators])
        groups.append(
            _Group(
                device=scored[places[0]][0].row.device,
                path=path,
                stack=stack,
                operators=operators,
                roles=roles_of(operators),
                sums=SerialSums(list(graphs.values())),
                rows=np.array(places, np.intp),
                graph_of_row=np.array([number[id(scored[place][1].operators)] for place in places], np.intp),
                is_full=np.array([scored[place][1].plan.recompute is Recompute.FULL for place in places], np.bool_),
            )
        )
    return tuple(groups)


def _build(entries: Sequence[TrainingEntry], steps: Sequence[CompiledStep], fitted: FittedConstants) -> StepBatch:
    """The batch; rows of lone blocks are left with one block, one micro-batch and nothing once a step."""
    batch = build_batch(steps, [entry.network_under(fitted) for entry in entries])
    alone = np.array([entry.is_lone_block for entry in entries], np.bool_)
    if not alone.any():
        return batch
    layers = batch.layers.copy()
    layers[alone] = 0.0
    layers[alone, 0, 1] = 1.0
    shards = np.where(alone, np.inf, batch.update_shards)
    once = np.where(alone, 0.0, 1.0)[:, None]
    gradients = Traffic(*(getattr(batch.gradients, name) * once for name in Traffic.__slots__))
    return replace(
        batch,
        layers=layers,
        num_micro_batches=np.where(alone, 1.0, batch.num_micro_batches),
        update_shards=shards,
        gradients=gradients,
    )


def _without_overhead(columns: StackColumns, entries: Sequence[TrainingEntry]) -> StackColumns:
    """A lone block has no step around it."""
    alone = np.array([entry.is_lone_block for entry in entries], np.bool_)
    return replace(columns, step_overhead_s=np.where(alone, 0.0, columns.step_overhead_s))
