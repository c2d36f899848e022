"""The best cuts and recomputation of one set of degrees: a table of what stages may be, and the program over it.

Where stages may run on one of several chips, each has a table, and a stage's choice is a chip and a recomputation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from phaze_opt.cost.stage_costs import CutReading, CutTable
from phaze_opt.cost.step_time import StageLoads, StepRules, lower_s, step_times
from phaze_opt.cost.step_traffic import set_members
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.branches import Sets
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.plan_columns import RECOMPUTES

SLACK = 1.0 + 1e-9
"""For the last digits of a sum."""
HALVINGS = 60
"""Steps of a search for a number by halves, to its last digits."""


@dataclass(frozen=True, slots=True)
class MixedStages:
    """Cuts, chips and recomputations of a pipeline's stages, first stage first; the order of units where it is free."""

    blocks: tuple[int, ...]
    chips: tuple[int, ...]
    recomputes: tuple[Recompute, ...]
    unit_order: tuple[int, ...] = ()

    def with_stage(self, stage: int, chip: int, recompute: Recompute) -> "MixedStages":
        """The same with another chip and recomputation in one stage."""
        return replace(
            self,
            chips=(*self.chips[:stage], chip, *self.chips[stage + 1 :]),
            recomputes=(*self.recomputes[:stage], recompute, *self.recomputes[stage + 1 :]),
        )


@dataclass(frozen=True, slots=True)
class StageChoice:
    """The stages of a plan.

    Attributes:
        seconds: of the step.
        stages: their cuts and recomputation, and their chips by the places of the tables.
        most_labels: the most labels that the program kept for one stage and number of blocks.
    """

    seconds: float
    stages: MixedStages
    most_labels: int

    @property
    def blocks(self) -> tuple[int, ...]:
        """Of each stage."""
        return self.stages.blocks

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """Of each stage."""
        return self.stages.recomputes


def best_choice(tables: Sequence[CutTable], allowed: Flags, *, limit_s: float = np.inf) -> StageChoice | None:
    """The cuts, chips and recomputation of the least price below a limit; None if there are none.

    Times are compared on a grid, so that the last digits of a CPU choose nothing: another choice may be faster by
    rounding. The price of the choice is that of the grid too; `price_step` gives the plan's own.

    Args:
        tables: of the same step, one for each chip.
        allowed: what stages may take, the recomputations of one chip behind those of the other.
        limit_s: larger values do not matter.
    """
    return _solve(tables, [each.price() for each in tables], allowed, limit_s=limit_s, is_on_grid=True)


def least_bound_s(table: CutTable, allowed: Flags, *, limit_s: float = np.inf) -> float:
    """The least `lower_s` over all cuts and recomputations, or the limit if that is less, s; infinite if none fits."""
    found = _solve([table], [table.lower()], allowed, limit_s=limit_s, is_on_grid=False)
    return limit_s if found is None else found.seconds


def least_choice_on(
    tables: Sequence[CutTable], is_exact: Sequence[bool], allowed: Flags, *, limit_s: float = np.inf
) -> StageChoice | None:
    """What is the least by the price of chips whose times are exact, and by the bound below it of all others.

    No pipeline is faster. One that is found on chips of exact times takes as long as it says: its stages hide nothing
    behind the slowest one. Decision 0264 has the proof. Of several chips times are on the grid of `best_choice`.

    Args:
        tables: of the same step, one for each chip.
        is_exact: whether the layer times of each are attained; else they are lower bounds.
        allowed: as `best_choice` takes it.
        limit_s: larger values do not matter.
    """
    readings = [table.price() if exact else table.lower() for table, exact in zip(tables, is_exact, strict=True)]
    return _solve(tables, readings, allowed, limit_s=limit_s, is_on_grid=len(tables) > 1)


def _solve(
    tables: Sequence[CutTable], readings: Sequence[CutReading], allowed: Flags, *, limit_s: float, is_on_grid: bool
) -> StageChoice | None:
    """Run the program on one reading of each table."""
    from phaze_opt.plan.cut_program import PipelineRules, StageCandidates, solve_cuts  # noqa: PLC0415

    table = tables[0]
    rules = table.rules
    each_chip = [
        np.stack((each.forward_s, each.backward_s, each.sync_s, each.least_sync_s), axis=-1) for each in readings
    ]
    seconds = np.ascontiguousarray(np.concatenate(each_chip, axis=2))
    hidden_share = max(each.hidden_share for each in readings)
    m, v = float(rules.num_micro_batches[0]), float(rules.interleave[0])
    overhead_s, factor = float(rules.overhead_s[0]), 1.0 + float(rules.waiting[0])
    value, chosen, most, _ = solve_cuts(
        StageCandidates(
            comparable(seconds) if is_on_grid else seconds,
            table.kinds,
            table.sizes,
            table.spans.candidates(table.sizes)[1],
            allowed,
        ),
        PipelineRules(table.spans.num_steps, m, v, hidden_share),
        limit_s / factor - overhead_s,
    )
    if not most:
        return None
    chips, recomputes = np.divmod(chosen[:, 1], len(RECOMPUTES))
    blocks, order = table.spans.cut_of(table.sizes[chosen[:, 0]])
    return StageChoice(
        (value + overhead_s) * factor,
        MixedStages(blocks, tuple(int(each) for each in chips), tuple(RECOMPUTES[each] for each in recomputes), order),
        most,
    )


def may_be_stages(table: CutTable, sets: Sets, limit_s: float) -> Flags:
    """Between which down-sets each stage of a step below a limit may be, shape (stages, sets, sets).

    The slowest stage is limited; a span no longer than that is left where such spans lead to it and from it to the
    end, as many as there are stages. What is sent is left out.

    Args:
        table: of units in their order.
        sets: the units before each border.
        limit_s: of the step, s.
    """
    front_s, back_s, units_s = _alone_s(table)
    members, num_stages = set_members(sets, len(units_s)).astype(float), len(table.kinds)
    before_s = members @ units_s
    most_s = SLACK * _slowest_below(table, front_s + float(units_s.sum()) + back_s, limit_s)
    span_s = before_s - before_s[:, None]
    is_behind = (members @ (1.0 - members.T) == 0.0) & ~np.eye(len(sets), dtype=np.bool_)
    may = np.array([is_behind & (span_s <= most_s)] * num_stages)
    may[0, 0, 0] = may[-1, -1, -1] = True
    may[0] &= span_s + front_s <= most_s
    may[-1] &= span_s + back_s <= most_s
    may[0, 1:] = False
    may[-1, :, :-1] = False
    for stage in range(1, num_stages):
        may[stage] &= may[stage - 1].any(axis=0)[:, None]
    for stage in range(num_stages - 2, -1, -1):
        may[stage] &= may[stage + 1].any(axis=1)
    return may


def _alone_s(table: CutTable) -> tuple[float, float, Floats]:
    """What front, back and every unit take a micro-batch by themselves, s."""
    number, kinds, busy_s = table.spans.number, table.kinds, table.loads.busy_s
    front_s = busy_s[number[0, 0], kinds[0]]
    return float(front_s), float(busy_s[number[-1, 0], kinds[-1]]), busy_s[number[:-1, 1], kinds[0]] - front_s


def _slowest_below(table: CutTable, whole_s: float, limit_s: float) -> float:
    """The longest that the slowest of stages that take so long together may take in a step below a limit, s."""
    from phaze_opt.plan.cut_bound import pipeline_bound_s  # noqa: PLC0415 - pulls in numba

    rules, num_stages = table.rules, float(len(table.kinds))
    m, v = float(rules.num_micro_batches[0]), float(rules.interleave[0])
    left_s = limit_s / (1.0 + float(rules.waiting[0])) - float(rules.overhead_s[0])
    if not np.isfinite(left_s):
        return np.inf
    low_s, high_s = 0.0, max(0.0, left_s)
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2.0
        is_below = pipeline_bound_s(whole_s, middle_s, num_stages, m, v) < left_s
        low_s, high_s = (middle_s, high_s) if is_below else (low_s, middle_s)
    return high_s


def price_of_stages(tables: Sequence[CutTable], stages: MixedStages) -> float:
    """The step of stages on the chips of some tables, s."""
    return float(step_times(*_loads_of(tables, stages)).seconds[0])


def lower_of_stages(tables: Sequence[CutTable], stages: MixedStages) -> float:
    """A bound below the step that rises with every time of a layer, s."""
    return float(lower_s(*_loads_of(tables, stages))[0])


def cheaper_choices(
    stages: MixedStages, stage: int, *, allowed: Flags, recomputes: Sequence[Recompute]
) -> list[tuple[int, Recompute]]:
    """Chips before the one of a stage, each with the recomputations that fit, that of the stage first.

    Args:
        stages: as they are.
        stage: which of them.
        allowed: whether its blocks fit, shape (chips, recomputations).
        recomputes: what stages may recompute.
    """
    own = stages.recomputes[stage]
    ways = (own, *(each for each in recomputes if each is not own))
    return [(chip, way) for chip in range(stages.chips[stage]) for way in ways if allowed[chip, RECOMPUTES.index(way)]]


def is_as_fast(seconds: float, best_s: float) -> bool:
    """Whether a step takes no longer than the best, but for rounding."""
    return bool(comparable(seconds) <= comparable(best_s))


def _loads_of(tables: Sequence[CutTable], stages: MixedStages) -> tuple[StageLoads, StepRules]:
    """What stages do, of the candidates in the tables of their chips."""
    kinds, spans = tables[0].kinds, tables[0].spans
    recomputes = np.array([RECOMPUTES.index(each) for each in stages.recomputes], np.intp)
    rows = recomputes * len(spans.start) + spans.of_cut(stages.blocks)
    chips = np.asarray(stages.chips, np.intp)

    def own(name: str) -> Floats:
        values = np.zeros(len(chips))
        for chip in np.unique(chips):
            here = chips == chip
            values[here] = getattr(tables[chip].loads, name)[rows[here], kinds[here]]
        return values[None]

    rules = {each.name: getattr(tables[0].rules, each.name)[:1] for each in fields(StepRules)}
    return StageLoads(**{each.name: own(each.name) for each in fields(StageLoads)}), StepRules(**rules)
