"""Many steps as arrays, stage by stage, for pricing all of them at once; nothing here depends on fitted constants.

Rows are steps. Layers are embedding, every kind of unit, and head; passes are those of every micro-batch
(`compiled_step.RUN`).
"""

from dataclasses import dataclass

from phaze_opt.cost.traffic import Traffic
from phaze_opt.record.arrays import Floats, Indices


@dataclass(frozen=True, slots=True)
class LayerColumns:
    """What software makes of the times of layers, beside the times themselves; rows are graphs on a network.

    Attributes:
        launches: operators on cores, shape (rows, layers, passes), passes as in `RUN` and behind them `PARTLY`.
        tensor: collectives inside the layers, same shape.
        experts: tokens on their way to experts and back, same shape.
        beside: those that run beside the compute of their pass, same shape.
        waits: expected wait for the slowest host of a tensor group, in mean launch times: H(t) - 1, shape (rows,).
        update_bytes: that the optimizer moves for a parameter of a block, shape (rows,).
    """

    launches: Floats
    tensor: Traffic
    experts: Traffic
    beside: Traffic
    waits: Floats
    update_bytes: Floats

    def take(self, rows: Indices) -> "LayerColumns":
        """Some of the rows."""
        tensor, experts, beside = (each.take(rows) for each in (self.tensor, self.experts, self.beside))
        return LayerColumns(self.launches[rows], tensor, experts, beside, self.waits[rows], self.update_bytes[rows])


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Steps ready to be priced.

    Attributes:
        inside: what software makes of their layers, a row for each step.
        layers: embedding, units and head of every stage, shape (steps, stages, layers).
        num_micro_batches, interleave: shape (steps,); chunks as `step_table.PlanRows.fill_chunks` has them.
        again: whether full recomputation runs forward of a stage's blocks again, shape (steps, stages), 0 or 1.
        is_selective: whether attention of a stage runs again, shape (steps, stages), 0 or 1.
        transfers: boundary transfers of a micro-batch, shape (steps, stages).
        parameters: ZeRO 3 gathers and reductions of a micro-batch, shape (steps, stages).
        forward_gathers: those of them that forward does, same shape.
        reductions: ZeRO 2 reductions of gradients, of every micro-batch but the last, shape (steps, stages).
        gradients: reduction of gradients and gather of parameters with the last one, shape (steps, stages).
        update_shards: parameters a device holds for each that it updates, shape (steps,).
        tied_share: share of each layer's update that an earlier one on the same stage does, shape (steps, layers).
        islands: parts of the outermost switched network (nodes, slices) that the devices fill, shape (steps,).
    """

    inside: LayerColumns
    layers: Floats
    num_micro_batches: Floats
    interleave: Floats
    again: Floats
    is_selective: Floats
    transfers: Traffic
    parameters: Traffic
    forward_gathers: Traffic
    reductions: Traffic
    gradients: Traffic
    update_shards: Floats
    tied_share: Floats
    islands: Floats

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.layers)
