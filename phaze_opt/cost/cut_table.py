"""What every stage of a plan would take with every number of blocks and every recomputation, as plain arrays.

Axes: kinds of stages (those with the same ends and boundaries cost the same), columns (numbers of blocks), and
recomputations in the order of `Recompute`. All are timed by the code that times steps, as stages of one made-up step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import BLOCK, EMBEDDING, HEAD, NUM_LAYERS, CompiledStep
from phaze_opt.cost.plan_memory import cut_bytes
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.step_batch import StageArrays, batch_of_stages
from phaze_opt.cost.step_time import StageLoads, StageReading, StepRules, lower_reading, price_reading
from phaze_opt.cost.step_traffic import (
    NO_COST,
    Cost,
    Counts,
    Traffic,
    gather_cost,
    gradient_cost,
    parameter_cost,
    reduction_cost,
    transfer_costs,
)
from phaze_opt.hardware.network import Network
from phaze_opt.workload.plan import Recompute

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
RECOMPUTES = tuple(Recompute)
"""Order of the last axis."""


@dataclass(frozen=True, slots=True)
class CutReading:
    """What a program over cuts adds up; fields as in `StageReading`, shape (kinds, columns, recomputations), s.

    Attributes:
        forward_s, backward_s: one micro-batch.
        sync_s, least_sync_s: once a step, without what may hide, and however much could hide.
        hidden_share: share of the slowest stage's load that hides.
    """

    forward_s: Floats
    backward_s: Floats
    sync_s: Floats
    least_sync_s: Floats
    hidden_share: float


@dataclass(frozen=True, slots=True)
class CutTable:
    """Candidates for the stages of one step.

    Attributes:
        step: the step; its cuts and its recomputation play no part.
        blocks: blocks of every column, shape (columns,).
        kinds: kind of every stage, shape (stages,).
        loads: of all candidates one after the other, shape (1, kinds x columns x recomputations).
        rules: of the step.
    """

    step: CompiledStep
    blocks: Indices
    kinds: Indices
    loads: StageLoads
    rules: StepRules

    @property
    def shape(self) -> tuple[int, int, int]:
        """Kinds, columns and recomputations."""
        return int(self.kinds.max()) + 1, len(self.blocks), len(RECOMPUTES)

    def price(self) -> CutReading:
        """As `step_times` puts stages together."""
        return self._reading(price_reading(self.loads, self.rules))

    def lower(self) -> CutReading:
        """As `lower_s` puts stages together."""
        return self._reading(lower_reading(self.loads, self.rules))

    def _reading(self, stages: StageReading) -> CutReading:
        return CutReading(
            stages.forward_s.reshape(self.shape),
            stages.backward_s.reshape(self.shape),
            stages.sync_s.reshape(self.shape),
            stages.least_sync_s.reshape(self.shape),
            float(stages.hidden_share[0]),
        )


def build_cut_table(step: CompiledStep, times: LayerTimes, network: Network, *, blocks: Sequence[int]) -> CutTable:
    """Candidates for all stages of a step.

    Args:
        step: compiled for a plan; its times must hold for every recomputation that is asked of the table, so the plan
            is to recompute fully where software that keeps some operators may.
        times: of its layers on one device.
        network: that its devices are on.
        blocks: numbers of blocks that stages may have.
    """
    columns = np.asarray(blocks, np.intp)
    last = step.plan.pipeline - 1
    transfers = transfer_costs(step, network)
    known: dict[tuple[bool, bool, Cost], int] = {}
    kinds = [known.setdefault((k == 0, k == last, cost), len(known)) for k, cost in enumerate(transfers)]
    arrays = _stage_arrays(step, network, list(known), columns)
    batch = batch_of_stages([step], [network], arrays)
    stack = StackColumns([step.stack])
    loads, rules = batch_loads(batch, times.classes_s[None], times.attention_s[None], stack)
    return CutTable(step, columns, np.array(kinds, np.intp), loads, rules)


def cut_memory(step: CompiledStep, blocks: Sequence[int]) -> Floats:
    """What candidates for the stages of a step hold, shape (stages, columns, recomputations), bytes."""
    return cut_bytes(
        [layer.graph for layer in step.layers],
        step.plan,
        blocks=np.asarray(blocks, np.intp),
        num_micro_batches=step.num_micro_batches,
        optimizer=step.training.optimizer,
        stack=step.stack,
    )


def _stage_arrays(
    step: CompiledStep, network: Network, kinds: Sequence[tuple[bool, bool, Cost]], columns: Indices
) -> StageArrays:
    """All candidates as stages of one step."""
    shape = (len(kinds), len(columns), len(RECOMPUTES))
    layers = np.zeros((*shape, NUM_LAYERS))
    for row, (is_first, is_last, _) in zip(layers, kinds, strict=True):
        row[..., EMBEDDING], row[..., HEAD] = is_first, is_last
    layers[..., BLOCK] = columns[:, None]
    again = np.zeros_like(layers)
    again[..., RECOMPUTES.index(Recompute.FULL), BLOCK] = 1.0
    is_selective = np.zeros(shape)
    is_selective[..., RECOMPUTES.index(Recompute.SELECTIVE)] = 1.0
    ends = list(dict.fromkeys((int(is_first), int(is_last)) for is_first, is_last, _ in kinds))
    place = [ends.index((int(is_first), int(is_last))) for is_first, is_last, _ in kinds]

    def sent(cost: Callable[[CompiledStep, Counts, Network], Cost]) -> Traffic:
        of_ends = np.array([_of_columns(cost, step, network, each, columns) for each in ends])
        return _as_row(of_ends[place][:, :, None, :], shape)

    return StageArrays(
        layers=layers.reshape(1, -1, NUM_LAYERS),
        again=again.reshape(1, -1, NUM_LAYERS),
        is_selective=is_selective.reshape(1, -1),
        transfers=_as_row(np.array([cost for *_, cost in kinds], float)[:, None, None, :], shape),
        parameters=sent(parameter_cost),
        forward_gathers=sent(gather_cost),
        reductions=sent(reduction_cost),
        gradients=sent(gradient_cost),
    )


def _of_columns(
    cost: Callable[[CompiledStep, Counts, Network], Cost],
    step: CompiledStep,
    network: Network,
    ends: tuple[int, int],
    columns: Indices,
) -> Floats:
    """Traffic of stages with these ends, shape (columns, fields of `Traffic`); no blocks are a case of their own."""
    found = np.zeros((len(columns), len(NO_COST)))
    some = columns > 0
    if some.any():
        sent = cost(step, (ends[0], columns[some].astype(float), ends[1]), network)
        if sent is NO_COST:
            return found
        found[some] = np.stack(np.broadcast_arrays(*sent), axis=-1)
    if not some.all():
        found[~some] = cost(step, (ends[0], 0, ends[1]), network)
    return found


def _as_row(table: Floats, shape: tuple[int, int, int]) -> Traffic:
    """Traffic of all candidates as stages of one step."""
    full = np.broadcast_to(table, (*shape, table.shape[-1])).reshape(1, -1, table.shape[-1])
    return Traffic(*np.moveaxis(full, -1, 0))
