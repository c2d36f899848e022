"""Training on A100 and V100 clusters with Megatron-LM of 2021 and 2022 and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import path_of
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.networks import DEFAULT_NETWORK
from phaze_opt.objective.step.stacks import PARENTS, stack_group
from phaze_opt.validation.family import Parameter
from phaze_opt.validation.prior_fit import PULL, fit_with_prior
from phaze_opt.validation.row import Row
from phaze_opt.validation.training.compiled import CompiledTraining, TrainingEntry
from phaze_opt.validation.training.row import TrainingRow, read_layer_row, read_training_row, zero_stage
from phaze_opt.workload.plan import Recompute

SINGLE, MULTI = "train_vtrain_singlenode", "train_vtrain_multinode"
SC21, KORTHIKANTI = "train_megatron_sc21", "train_korthikanti22"
LAYER, SCALING, LARGE = "layer_korthikanti22", "train_megatron_tp_scaling", "train_large_runs"

_NETWORKS = MappingProxyType({SINGLE: "vtrain-a100", MULTI: "vtrain-a100"})
GATED = (SINGLE, MULTI, SC21, KORTHIKANTI)
"""Sets whose rows are fitted, each set with one weight in all; the others are scored only."""


class TrainingFamily:
    """Predicts steps of training on A100 and V100 clusters."""

    @property
    def name(self) -> str:
        """Short name."""
        return "training"

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets that it predicts."""
        return (SINGLE, MULTI, SC21, KORTHIKANTI, LAYER, SCALING, LARGE)

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """Constants of the three stacks; those of a stack that no row uses stay."""
        used = {_stack_of(row) for row in rows}
        used |= {PARENTS.get(name, name) for name in used}
        return tuple(each for each in _PARAMETERS if each.group.partition("/")[2] in used)

    def compile(self, rows: Sequence[Row]) -> CompiledTraining:
        """Graphs of all rows.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        entries: list[TrainingEntry | str] = []
        measured: list[float] = []
        for row in rows:
            read = read_layer_row(row) if row.dataset == LAYER else read_training_row(row)
            measured.append(float("nan") if isinstance(read, str) else read.measured_s)
            entries.append(read if isinstance(read, str) else _entry(_as_profiled(read)))
        return CompiledTraining(entries, measured)

    def fit(self, rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
        """Constants of the stacks, by least squares in which every set counts alike, however many rows it has.

        A pull to the starts weighs as much as one row of the smallest set (decision 0176): few rows must not decide a
        constant alone.
        """
        counts = Counter(row.dataset for row in rows)
        scale = (len(rows) / max(1, len(counts))) ** 0.5
        weights = scale * np.array([counts[row.dataset] ** -0.5 if row.dataset in GATED else 0.0 for row in rows])
        return fit_with_prior(
            self.compile(rows),
            self.parameters(rows),
            start,
            pull=PULL * float(weights.max(initial=0.0)),
            weights=weights,
        )

    def regime(self, row: Row) -> str:
        """Tensor degree, with or without stages; tensor groups that cross nodes apart."""
        tensor, pipeline = row.integer("tp", 1), row.integer("pp", 1)
        where = " across nodes" if tensor > 8 else ""
        return f"tp {tensor}{where}, pp {'1' if pipeline == 1 else '> 1'}"

    def cell(self, row: Row) -> str:
        """Composed rows share hidden size, degrees and micro-batch; others are configurations of their own."""
        if row.dataset == SINGLE:
            columns: tuple[str, ...] = ("hidden", "tp", "pp", "dp", "micro_batch")
        else:
            columns = ("model", "n_devices", "tp", "pp", "dp", "micro_batch", "interleave", "global_batch", "sharding")
        return "|".join([row.dataset, *(row.values.get(column, "") for column in columns)])

    def splits(self, rows: Sequence[Row]) -> Mapping[str, Sequence[str]]:
        """Hidden sizes of the composed rows, models of the measured ones."""
        return {
            "hidden": [row.values.get("hidden", "") if row.dataset == SINGLE else "" for row in rows],
            "model": [row.values.get("model", "") if row.dataset in (MULTI, SC21, KORTHIKANTI) else "" for row in rows],
        }


def _stack_of(row: Row) -> str:
    """Software of a row: what it states; else ZeRO 3 is DeepSpeed's, and composed rows come from profiles of layers."""
    if row.text("software", ""):
        return row.text("software").lower()
    if row.dataset == SINGLE:
        return _PROFILE
    if row.dataset in (KORTHIKANTI, LAYER):
        return _NEXT
    return _ZERO if zero_stage(row.text("sharding", "none").lower()) == 3 else _BASE


def _as_profiled(read: TrainingRow) -> TrainingRow:
    """The composed rows without recomputation, which their column only assumes.

    With it the layers of hidden size 2048 would run at the peak of the machine, beside matmuls that reach 0.8 of it
    in every other set (decision 0174).
    """
    if read.row.dataset != SINGLE:
        return read
    return replace(read, plan=replace(read.plan, recompute=Recompute.NONE))


def _entry(read: TrainingRow) -> TrainingEntry | str:
    name = _NETWORKS.get(read.row.dataset, read.device.network) or DEFAULT_NETWORK
    try:
        path = path_of(read.dtype)
        read.device.peak(path)
        entry = TrainingEntry(read, _stack_of(read.row), name, path, is_lone_block=read.row.dataset == LAYER)
        entry.network_under(load_fitted())
    except InputError as error:
        return str(error)
    return entry


def _share(group: str, name: str, bounds: tuple[float, float, float], meaning: str) -> Parameter:
    """Lowest and highest value and start."""
    return Parameter(stack_group(group), name, "1", *bounds, meaning)


def _time(group: str, name: str, bounds: tuple[float, float, float], meaning: str) -> Parameter:
    return Parameter(stack_group(group), name, "s", *bounds, meaning, is_log=True)


_BASE, _NEXT, _ZERO, _PROFILE = "megatron-2021", "megatron-2022", "deepspeed-zero3-2021", "vtrain-profile"

_PARAMETERS = (
    _share(_BASE, "matmul_efficiency", (0.5, 1.0, 0.78), "share of the peak that matmuls reach in training"),
    Parameter(stack_group(_BASE), "attention_traffic", "1", 0.5, 6.0, 1.6, "passes of softmax and dropout over scores"),
    _share(_BASE, "network_efficiency", (0.2, 1.0, 0.8), "share of the adapters that collectives and transfers reach"),
    _time(_BASE, "collective_latency_s", (1e-6, 1e-3, 5e-5), "time of a tensor-parallel collective beyond its curve"),
    _time(_PROFILE, "host_s_per_operator", (1e-6, 1e-3, 7e-5), "host time to launch an operator"),
    _time(_PROFILE, "host_s_per_collective", (1e-6, 1e-3, 1e-4), "the same for a collective; slowest of its hosts"),
    _time(_PROFILE, "collective_latency_s", (1e-6, 2e-3, 3e-4), "time of a profiled collective beyond its curve"),
    _share(_PROFILE, "lone_head_efficiency", (0.1, 1.0, 0.3), "share of the matmuls' rate in a head of one device"),
)
