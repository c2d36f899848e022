"""What every stage of a plan would take and hold with every number of blocks and every recomputation, for one program.

Axes: kinds of stages (those with the same ends and boundaries cost the same), columns (units that a stage may hold; of
equal units their number), and recomputations in the order of `Recompute`. `stage_loads` times all of them, as stages of
made-up steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.cost.stage_costs import StageChoices, stage_loads
from phaze_opt.cost.stage_spans import StageSpans
from phaze_opt.cost.step_time import StageLoads, StageReading, StepRules, lower_reading, price_reading
from phaze_opt.record.arrays import Floats, Indices
from phaze_opt.workload.plan_columns import RECOMPUTES


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
        spans: the units that stages may hold at all.
        sizes: numbers of blocks that they may have here, rising.
        kinds: kind of every stage, shape (stages,).
        loads: of all spans; rows are recomputation, then a column of ``spans``; a column is a kind.
        rules: of the step, once for every row.
    """

    step: CompiledStep
    spans: StageSpans
    sizes: Indices
    kinds: Indices
    loads: StageLoads
    rules: StepRules

    def price(self) -> CutReading:
        """As `step_times` puts stages together."""
        return self._reading(price_reading(self.loads, self.rules))

    def lower(self) -> CutReading:
        """As `lower_s` puts stages together."""
        return self._reading(lower_reading(self.loads, self.rules))

    def _reading(self, stages: StageReading) -> CutReading:
        columns, _ = self.spans.candidates(self.sizes)

        def candidates(values: Floats) -> Floats:
            return values.reshape(len(RECOMPUTES), -1, values.shape[1]).transpose(2, 1, 0)[:, columns]

        return CutReading(
            candidates(stages.forward_s),
            candidates(stages.backward_s),
            candidates(stages.sync_s),
            candidates(stages.least_sync_s),
            float(stages.hidden_share[0]),
        )


def build_cut_table(choices: StageChoices, times: LayerTimes, *, blocks: Sequence[int]) -> CutTable:
    """Candidates for all stages of a step.

    Args:
        choices: of the step.
        times: of its layers on one device, as they are where stages recompute in any of the ways.
        blocks: numbers of blocks that stages may have.
    """
    loads, rules = stage_loads(choices, times)
    return CutTable(choices.step, choices.spans, np.asarray(blocks, np.intp), choices.own, loads, rules)
