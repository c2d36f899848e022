"""Rows of training sets compiled once and priced together: the seam's `CompiledRows` for every training family."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from phaze_opt.cost.compiled_step import NUM_PASSES, CompiledStep, StepCompiler
from phaze_opt.cost.device_seconds import SerialSteps
from phaze_opt.cost.price_step import StackColumns, price_batch
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.step_batch import StepBatch
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StepTimes
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.cost.suited_software import middle_place
from phaze_opt.cost.traffic import Traffic
from phaze_opt.graph.layer import NUM_PLAIN_PARTS
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fabrics import GROUP_PREFIX
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.record.arrays import Floats, Indices
from phaze_opt.validation.family import Part
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt.validation.training.row import TrainingRow
from phaze_opt.workload.software import TrainingStack

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
        options: that it ran with (`cost.stacks.option_tables`).
        network: name of the one that the devices are on.
        path: units and precision of the matmuls.
        is_lone_block: whether forward and backward of one block alone were measured.
    """

    row: TrainingRow
    stack: str
    network: str
    path: ComputePath
    is_lone_block: bool = False
    options: tuple[str, ...] = ()

    def load(self, fitted: FittedConstants) -> TrainingStack:
        """The software with what was fitted to it, under the row's options; a lone block has no step around it."""
        stack = load_stack(self.stack, fitted, self.options)
        return replace(stack, step_overhead_s=0.0) if self.is_lone_block else stack

    def network_under(self, fitted: FittedConstants) -> Network:
        """The network with the curves of some constants; a torus is mapped to the plan.

        Raises:
            InputError: the network is unknown, or its torus cannot be mapped.
        """
        plan = self.row.plan
        return plan_network(load_network(self.network, num_devices=plan.num_devices, fitted=fitted), plan)


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What devices and software take for the rows of a batch; see `price_batch`."""

    classes_s: Floats
    attention_s: Floats
    stacks: StackColumns


class StepRows:
    """Rows that are steps, priced together again and again under other constants.

    Attributes:
        measured_s: measured time of every row, shape (num_rows,), s.
        unscored: why a row is not predicted, by its index.
    """

    def __init__(
        self,
        measured_s: Sequence[float],
        unscored: Mapping[int, str],
        *,
        build: Callable[[FittedConstants], StepBatch],
        device_times: Callable[[FittedConstants], DeviceTimes],
        owners: Sequence[int] = (),
    ) -> None:
        """Nothing is built before constants are known.

        Args:
            measured_s: of every row.
            unscored: why a row is not predicted, by its index.
            build: the batch of the other rows, in order, on networks with the curves of some constants.
            device_times: of the same rows.
            owners: row of each step of the batch, ascending, where rows have several (one for each software that
                suits); the scored rows one by one unless given.
        """
        self.measured_s = np.array(measured_s, float)
        self.unscored = dict(unscored)
        self._owners = np.array(owners or [row for row in range(len(measured_s)) if row not in unscored], np.intp)
        self._build, self._device_times = build, device_times
        self._known: tuple[Curves, StepBatch] | None = None
        self._priced: tuple[FittedConstants, StepTimes] | None = None

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time of every row, shape (num_rows,), s; nan where unscored; of several steps the middle one."""
        return self._over_software(fitted, lambda times: times[middle_place(times.tolist())])

    def range_s(self, fitted: FittedConstants) -> tuple[Floats, Floats]:
        """Least and most of the steps of every row, shape (num_rows,), s; nan where unscored."""
        return self._over_software(fitted, np.min), self._over_software(fitted, np.max)

    def _over_software(self, fitted: FittedConstants, choose: Callable[[Floats], Any]) -> Floats:
        seconds = np.full(len(self.measured_s), np.nan)
        if not len(self._owners):
            return seconds
        times = np.asarray(self._times(fitted).seconds)
        rows, first, counts = np.unique(self._owners, return_index=True, return_counts=True)
        seconds[rows] = times[first]
        for place in np.flatnonzero(counts > 1):
            seconds[rows[place]] = float(choose(times[first[place] : first[place] + counts[place]]))
        return seconds

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Parts of the predicted time of one row; of several steps those of the middle one."""
        places = np.flatnonzero(self._owners == index)
        middle = middle_place(np.asarray(self._times(fitted).seconds)[places].tolist())
        parts = self._times(fitted).one(int(places[middle])).parts
        return tuple(Part(_PART_NAMES.get(name, name.removesuffix("_s")), seconds) for name, seconds in parts.items())

    def _times(self, fitted: FittedConstants) -> StepTimes:
        # Rows are explained one by one, under the same constants.
        if self._priced is None or self._priced[0] is not fitted:
            times = self._device_times(fitted)
            priced = price_batch(self._batch_under(fitted), times.classes_s, times.attention_s, times.stacks)
            self._priced = fitted, priced
        return self._priced[1]

    def _batch_under(self, fitted: FittedConstants) -> StepBatch:
        """The batch on networks whose measured curves are those of ``fitted``."""
        # A fit of other constants asks for the same curves thousands of times.
        curves = {name: values for name, values in fitted.groups.items() if name.startswith(GROUP_PREFIX)}
        if self._known is None or self._known[0] != curves:
            self._known = (curves, self._build(fitted))
        return self._known[1]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows on one device, path, stack and options."""

    device: Device
    path: ComputePath
    steps: SerialSteps
    rows: Indices


def compile_training(rows: Sequence[Row], read: Callable[[Row], tuple[TrainingEntry, ...]]) -> StepRows:
    """Compile the graphs; a row that cannot be read, or whose model cannot be sharded, stays unscored.

    Args:
        rows: of training sets.
        read: how one row is predicted, by each software that it is priced under; an `InputError` says why it is not.

    Raises:
        InputError: a malformed value, by file, line and column.
    """
    compiler = StepCompiler()

    def compiled(row: Row) -> list[tuple[TrainingEntry, CompiledStep]]:
        return [
            (entry, compiler.compile(each.model, each.training, each.plan, stack=entry.load(FittedConstants({}))))
            for entry in read(row)
            for each in (entry.row,)
        ]

    found, unscored = read_rows(compiled, rows)
    scored = [each for steps in found.values() for each in steps]
    return StepRows(
        [found[index][0][0].row.measured_s if index in found else np.nan for index in range(len(rows))],
        unscored,
        build=partial(_build, scored),
        device_times=partial(_all_device_times, [entry for entry, _ in scored], _build_groups(scored)),
        owners=[index for index, steps in found.items() for _ in steps],
    )


def _all_device_times(
    entries: Sequence[TrainingEntry], groups: Sequence[_Group], fitted: FittedConstants
) -> DeviceTimes:
    kinds = {_kind(entry): entry for entry in entries}
    stacks = {kind: entry.load(fitted) for kind, entry in kinds.items()}
    classes_s = np.zeros((len(entries), NUM_PLAIN_PARTS, NUM_PASSES, 3))
    attention_s = np.zeros((len(entries), NUM_PLAIN_PARTS))
    for group in groups:
        stack = stacks[_kind(entries[group.rows[0]])]
        classes_s[group.rows], attention_s[group.rows] = group.steps.times(
            group.device, path=group.path, stack=stack, fitted=fitted
        )
    return DeviceTimes(classes_s, attention_s, StackColumns([stacks[_kind(entry)] for entry in entries]))


def _kind(entry: TrainingEntry) -> tuple[str, tuple[str, ...], bool]:
    """What of an entry decides its software."""
    return entry.stack, entry.options, entry.is_lone_block


def _build_groups(scored: Sequence[tuple[TrainingEntry, CompiledStep]]) -> tuple[_Group, ...]:
    members: dict[tuple[Any, ...], list[int]] = {}
    for place, (entry, _) in enumerate(scored):
        device = entry.row.device
        key = device.name, entry.path, entry.stack, entry.options, device.tdp_w
        members.setdefault(key, []).append(place)
    return tuple(
        _Group(
            device=scored[places[0]][0].row.device,
            path=key[1],
            steps=SerialSteps([scored[place][1] for place in places]),
            rows=np.array(places, np.intp),
        )
        for key, places in members.items()
    )


def _build(scored: Sequence[tuple[TrainingEntry, CompiledStep]], fitted: FittedConstants) -> StepBatch:
    """The batch; rows of lone blocks are left with one block, one micro-batch and nothing once a step."""
    batch = build_batch([step for _, step in scored], [entry.network_under(fitted) for entry, _ in scored])
    alone = np.array([entry.is_lone_block for entry, _ in scored], np.bool_)
    if not alone.any():
        return batch
    layers = batch.layers.copy()
    layers[alone] = 0.0
    layers[alone, 0, 1] = 1.0
    # Shards without end leave nothing of the optimizer's work.
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
