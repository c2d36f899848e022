"""Training on A100 and V100 clusters with Megatron-LM of 2021 and 2022 and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import path_of
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.step.stacks import stack_group
from phaze_opt.validation.family import Parameter
from phaze_opt.validation.row import Row
from phaze_opt.validation.training_compiled import CompiledTraining, TrainingEntry
from phaze_opt.validation.training_row import TrainingRow, read_layer_row, read_training_row, zero_stage

SINGLE, MULTI = "train_vtrain_singlenode", "train_vtrain_multinode"
SC21, KORTHIKANTI = "train_megatron_sc21", "train_korthikanti22"
LAYER, SCALING, LARGE = "layer_korthikanti22", "train_megatron_tp_scaling", "train_large_runs"

_NETWORKS = {SINGLE: "vtrain-a100", MULTI: "vtrain-a100"}
GATED = (SINGLE, MULTI, SC21, KORTHIKANTI)
"""Sets whose rows are fitted; the others are scored only."""


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
        own = tuple(each for each in _PARAMETERS if each.group.partition("/")[2] in used)
        return own if own else _PARAMETERS

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
            entries.append(read if isinstance(read, str) else _entry(read))
        return CompiledTraining(entries, measured)

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
    """Software of a row: ZeRO 3 is DeepSpeed's, and the composed rows come from profiles of single layers."""
    if row.dataset == SINGLE:
        return _PROFILE
    return _ZERO if zero_stage(row.text("sharding", "none").lower()) == 3 else _BASE


def _entry(read: TrainingRow) -> TrainingEntry | str:
    name = _NETWORKS.get(read.row.dataset, read.device.network)
    try:
        path = path_of(read.dtype)
        read.device.peak(path)
        network = load_network(name, num_devices=read.plan.num_devices)
    except InputError as error:
        return str(error)
    return TrainingEntry(read, _stack_of(read.row), network, path, is_lone_block=read.row.dataset == LAYER)


def _share(group: str, name: str, bounds: tuple[float, float, float], meaning: str) -> Parameter:
    """Lowest and highest value and start."""
    return Parameter(stack_group(group), name, "1", *bounds, meaning)


def _time(group: str, name: str, bounds: tuple[float, float, float], meaning: str) -> Parameter:
    return Parameter(stack_group(group), name, "s", *bounds, meaning, is_log=True)


_BASE, _ZERO, _PROFILE = "megatron-2021", "deepspeed-zero3-2021", "vtrain-profile"

_PARAMETERS = (
    _share(_BASE, "matmul_efficiency", (0.5, 0.95, 0.78), "share of the peak that matmuls reach in training"),
    _share(_BASE, "k_ramp", (0.0, 600.0, 100.0), "inner size at which a matmul reaches half of that"),
    _share(_BASE, "attention_efficiency", (0.1, 0.9, 0.5), "share of the peak that attention's matmuls reach"),
    _share(_BASE, "vector_efficiency", (0.3, 1.0, 0.8), "share of the memory bandwidth that other operators reach"),
    _share(_BASE, "collective_efficiency", (0.3, 1.0, 0.8), "share of NVLink that collectives reach"),
    _share(_BASE, "network_efficiency", (0.2, 1.0, 0.7), "share of the adapters that collectives and transfers reach"),
    _time(_PROFILE, "host_s_per_operator", (1e-6, 1e-3, 4e-5), "host time to launch an operator"),
    _time(_PROFILE, "host_s_per_collective", (1e-6, 1e-3, 4e-5), "host time to launch a collective"),
)
