"""Training on H100s (Megatron-Core, NeMo in fp8), with sharded state (llm-foundry, FSDP) and on TPUs (MaxText)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.objective.step.stacks import PARENTS, stack_group
from phaze_opt.validation.family import Parameter
from phaze_opt.validation.held_out import with_starts
from phaze_opt.validation.prior_fit import fit_with_prior
from phaze_opt.validation.row import Row
from phaze_opt.validation.training.compiled import CompiledTraining, TrainingEntry
from phaze_opt.validation.training.modern_parameters import PARAMETERS
from phaze_opt.validation.training.modern_rows import (
    LLM_FOUNDRY,
    MAXTEXT,
    MEGATRON,
    NEMO,
    entry_of,
    read_modern_row,
    stack_of,
)

NODE_DEVICES = 8
_TOGETHER = ((MEGATRON, NEMO), (LLM_FOUNDRY,), (MAXTEXT,))
"""Sets whose constants are fitted together; none is shared between the three."""


class ModernTrainingFamily:
    """Predicts steps of training on H100 clusters, with FSDP and on TPU pods."""

    @property
    def name(self) -> str:
        """Short name."""
        return "modern-training"

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets that it predicts."""
        return (MEGATRON, NEMO, LLM_FOUNDRY, MAXTEXT)

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """Constants of the software that the rows ran."""
        used = {group for row in rows for group in _groups_of(row)}
        return tuple(each for each in PARAMETERS if each.group in used)

    def compile(self, rows: Sequence[Row]) -> CompiledTraining:
        """Graphs of all rows.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        entries: list[TrainingEntry | str] = []
        measured: list[float] = []
        for row in rows:
            read = read_modern_row(row)
            measured.append(float("nan") if isinstance(read, str) else read.measured_s)
            entries.append(read if isinstance(read, str) else entry_of(read))
        return CompiledTraining(entries, measured)

    def fit(self, rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
        """Each software's constants on its own rows, pulled to what other sources say; unseen ones stay there."""
        fitted = with_starts(start, PARAMETERS)
        for sets in _TOGETHER:
            own = [row for row in rows if row.dataset in sets]
            if own:
                fitted = fit_with_prior(self.compile(own), self.parameters(own), fitted)
        return fitted

    def regime(self, row: Row) -> str:
        """What tells the rows of a set apart: chip, length, recomputation, or degrees."""
        recompute = row.text("recompute", "none")
        if row.dataset == MAXTEXT:
            return f"{row.text('hardware')}, {recompute} recompute"
        if row.dataset == LLM_FOUNDRY:
            where = "one node" if row.integer("n_devices") <= NODE_DEVICES else "several nodes"
            length = "up to 4096" if row.integer("seq") <= 4096 else "above 4096"
            machine = f"{row.text('hardware')} {row.text('dtype', 'bf16')}"
            return f"{machine}, {where}, {length} tokens, {recompute} recompute"
        stages = "stages" if row.integer("pp", 1) > 1 else "no stages"
        return f"{row.text('dtype', 'bf16')}, {stages}"

    def cell(self, row: Row) -> str:
        """A model on a number of machines, and for llm-foundry a sequence length: a configuration of its own."""
        columns = ("hardware", "model", "n_devices", "seq", "dtype", "tp", "pp", "sharding")
        return "|".join(row.values.get(column, "") for column in columns)

    def splits(self, rows: Sequence[Row]) -> Mapping[str, Sequence[str]]:
        """One node or several, device counts and machines of llm-foundry; chips of MaxText; models of all."""
        return {
            "nodes": [_nodes_of(row) if row.dataset == LLM_FOUNDRY else "" for row in rows],
            "devices": [row.values.get("n_devices", "") if row.dataset == LLM_FOUNDRY else "" for row in rows],
            "machine": [row.values.get("hardware", "") if row.dataset == LLM_FOUNDRY else "" for row in rows],
            "chip": [row.values.get("hardware", "") if row.dataset == MAXTEXT else "" for row in rows],
            "model": [f"{row.dataset}:{row.values.get('model', '')}" for row in rows],
        }


def _nodes_of(row: Row) -> str:
    return "one node" if row.integer("n_devices") <= NODE_DEVICES else "several nodes"


def _groups_of(row: Row) -> tuple[str, ...]:
    """Groups of constants that a row's prediction uses; none if its machine is unknown."""
    read = read_modern_row(row)
    if isinstance(read, str):
        return ()
    name = stack_of(row, read.device)
    return (stack_group(PARENTS.get(name, name)), stack_group(name))
