"""Family of whole models in fp32 (NeuSight's labels): graph, kernels of PyTorch, fp32 operators, step formulas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.objective.step.compiled_step import CompiledStep, compile_step
from phaze_opt.objective.step.price_step import BACKWARD, UPDATE, SerialSums, StackColumns, price_batch
from phaze_opt.objective.step.step_batch import StepBatch, build_batch
from phaze_opt.objective.step.step_groups import HEAD
from phaze_opt.placement.step_time import StepTimes
from phaze_opt.units import MILLI
from phaze_opt.validation.curved_batch import CurvedBatch
from phaze_opt.validation.family import Parameter, Part
from phaze_opt.validation.fp32.kernel_table import STREAMING_POWER, KernelTable
from phaze_opt.validation.fp32.run import ModelRun, read_run
from phaze_opt.validation.row import Row

Floats = NDArray[np.float64]

DATASET = "e2e_neusight_fp32"


class CompiledModels:
    """Whole models, predicted again and again under other constants.

    Attributes:
        measured_s: measured time of every row, shape (num_rows,), s.
        unscored: why a row is not predicted, by its index.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """Build graphs and their kernels.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        self.measured_s = np.array([row.number("e2e_ms") * MILLI for row in rows])
        self.unscored: dict[int, str] = {}
        self._indices: list[int] = []
        self._runs: list[ModelRun] = []
        self._steps: list[CompiledStep] = []
        for index, row in enumerate(rows):
            try:
                run = read_run(row)
                step = compile_step(run.model, run.training, run.plan, stack=run.stack)
            except InputError as error:
                if error.line is not None:
                    raise
                self.unscored[index] = str(error)
                continue
            self._indices.append(index)
            self._runs.append(run)
            self._steps.append(step)
        if self._steps:
            self._sums = SerialSums(self._steps)
            self._batch = CurvedBatch(self._build_batch)
            self._table = KernelTable(self._runs, self._steps)

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time, shape (num_rows,), s."""
        seconds = np.full(len(self.measured_s), np.nan)
        if self._runs:
            seconds[self._indices] = self._times(fitted).seconds
        return seconds

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Parts of the predicted time."""
        parts = self._times(fitted).one(self._indices.index(index)).parts
        return tuple(Part(name.removesuffix("_s"), seconds) for name, seconds in parts.items())

    def _build_batch(self, fitted: FittedConstants) -> StepBatch:
        return build_batch(self._steps, [run.network_under(fitted) for run in self._runs])

    def _times(self, fitted: FittedConstants) -> StepTimes:
        classes_s, attention_s = self._sums.add_up(self._table.seconds(fitted))
        classes_s[:, :, UPDATE] = 0.0
        for place, run in enumerate(self._runs):
            if not run.is_training:
                classes_s[place, :, BACKWARD] = 0.0
            if not run.has_head:
                classes_s[place, HEAD] = 0.0
        stacks = StackColumns.of([run.stack for run in self._runs])
        return price_batch(self._batch.under(fitted), classes_s, attention_s, stacks)


class NeusightModelsFamily:
    """Predicts ``e2e_neusight_fp32`` by the constants of fp32 operators and one of its own."""

    @property
    def name(self) -> str:
        """``fp32_models``."""
        return "fp32_models"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one set of whole models in fp32."""
        return (DATASET,)

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """One: kernels are counted, operators fitted alone, links specified."""
        return (STREAMING_POWER,) if rows else ()

    def compile(self, rows: Sequence[Row]) -> CompiledModels:
        """Prepare rows.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        return CompiledModels(rows)

    def regime(self, row: Row) -> str:
        """Mode, and how it was spread or compiled."""
        option = row.text("option", "")
        return f"{row.text('mode', 'train')}, {option or 'one device'}"

    def cell(self, row: Row) -> str:
        """A model, mode and size; devices stay together."""
        return "|".join(row.text(name, "") for name in ("model", "mode", "seq", "batch", "option"))
