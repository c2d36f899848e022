"""Plans whose stages are cut anywhere and recompute as each of them must: which fit, and the least of all."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.pipeline import StageKind, StepShape, shown_s, stage_seconds
from phaze_opt.certify.check.plans.tabled import PlanTabler
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack

CHOICES = tuple(Recompute)
"""Recomputations, in the order of the last axis of `most_blocks`."""


@dataclass(frozen=True)
class EveryCut:
    """Everything of one plan with interleave 1 that no chip changes, for every cut.

    Attributes:
        shape: what the step is made of beside stages.
        kinds: of each place (first, between, last, or the only one) a stage with 0 .. L blocks, boundaries left out;
            where blocks differ, with every run of them, boundaries and all, and every stage is a place.
        place: of each stage, shape (stages,).
        transfers: boundaries of each stage that ``kinds`` leaves out, shape (stages,), s.
        column: of ``kinds``, for the blocks from each one on, by their number, shape (blocks + 1, blocks + 1).
    """

    shape: StepShape
    kinds: tuple[tuple[StageKind, ...], ...]
    place: Ints
    transfers: Floats
    column: Ints
    stack: TrainingStack

    def least(self, pace: LayerPace, most: Ints | Flags, *, is_bound: bool, limit: float = np.inf) -> float:
        """The least step over cuts and recomputation on one chip, s; infinite where none is below ``limit``.

        Args:
            pace: of the plan's layers on the chip.
            most: of `most_blocks`; where blocks differ, of `fitting_runs`.
            is_bound: `lower` in place of `price`.
            limit: steps as long as this are of no interest, s.
        """
        from phaze_opt.certify.check.plans.cut_labels import least_step

        rest = 1.0 + self.shape.waiting
        hidden = self.stack.data_overlap if is_bound else 0.0
        found = least_step(
            self._seconds(pace, is_bound=is_bound),
            self.place,
            self.transfers,
            self.column,
            self._fits(most),
            self.shape.num_micro_batches,
            hidden,
            limit / rest - self.stack.step_overhead_s,
        )
        return float((found + self.stack.step_overhead_s) * rest)

    def _fits(self, most: Ints | Flags) -> Flags:
        """Whether each stage may have each column with each recomputation."""
        if most.ndim > 2:  # noqa: PLR2004 - a flag for every run
            return np.asarray(most, np.bool_)
        return np.asarray(np.arange(len(self.column))[None, :, None] <= most[:, None])

    def _seconds(self, pace: LayerPace, *, is_bound: bool) -> Floats:
        """Forward, backward, and what is sent and updated once a step, as `cut_labels` takes them."""
        table = np.empty((len(self.kinds), len(self.kinds[0]), len(CHOICES), 4))
        for at, column in enumerate(self.columns):
            for number, recompute in enumerate(CHOICES):
                stage = stage_seconds(column, recompute, pace, self.shape, self.stack)
                sync = shown_s(stage.own_backward, column.gradient_s, self.stack.data_overlap)
                parts = (stage.load - stage.backward, stage.backward, sync + stage.update, sync + stage.update)
                if is_bound:
                    half, sure = stage.load / 2.0, (1.0 - self.stack.data_overlap) * column.gradient_s
                    parts = (half, half, column.gradient_s + stage.update, sure + stage.update)
                table[at, :, number] = np.stack(parts, axis=-1)
        return table

    @cached_property
    def columns(self) -> tuple[StageKind, ...]:
        """Of each place one kind whose numbers are arrays over blocks, so that all are priced at once."""
        return tuple(
            replace(
                kinds[0],
                blocks=tuple(np.array([kind.blocks for kind in kinds]).T),
                transfer_s=np.array([kind.transfer_s for kind in kinds]),
                parameter_s=np.array([kind.parameter_s for kind in kinds]),
                gather_s=np.array([kind.gather_s for kind in kinds]),
                reduction_s=np.array([kind.reduction_s for kind in kinds]),
                gradient_s=np.array([kind.gradient_s for kind in kinds]),
            )
            for kinds in self.kinds
        )


def cut_table(tabler: PlanTabler, plan: ParallelPlan, num_layers: int, stack: TrainingStack) -> EveryCut:
    """The table of a plan; its own recomputation and cuts do not count."""
    if tabler.layers_of(plan).differs:
        return _table_of_runs(tabler, plan, num_layers, stack)
    last = plan.pipeline - 1
    examples = (0,) if last == 0 else (0, last) if last == 1 else (0, 1, last)
    kinds = tuple(
        tuple(replace(tabler.kind(plan, stage, 0, count), transfer_s=0.0) for count in range(num_layers + 1))
        for stage in examples
    )
    place = [0 if stage == 0 else len(examples) - 1 if stage == last else 1 for stage in range(plan.pipeline)]
    column = np.tile(np.arange(num_layers + 1), (num_layers + 1, 1))
    return EveryCut(tabler.shape(plan), kinds, np.array(place), np.array(tabler.transfers_s(plan)), column, stack)


def list_runs(num_layers: int) -> list[tuple[int, int]]:
    """Every run of blocks, as the first and the one behind the last; none of them at either end."""
    return [
        (start, stop)
        for start in range(num_layers + 1)
        for stop in range(start, num_layers + 1)
        if start < stop or start in (0, num_layers)
    ]


def _table_of_runs(tabler: PlanTabler, plan: ParallelPlan, num_layers: int, stack: TrainingStack) -> EveryCut:
    """The table of a plan whose blocks differ."""
    runs, column = list_runs(num_layers), np.full((num_layers + 1, num_layers + 1), -1)
    for number, (start, stop) in enumerate(runs):
        column[start, stop - start] = number
    places = tabler.places(plan)
    examples = [places.index(place) for place in dict.fromkeys(places)]
    kinds = tuple(tuple(tabler.kind(plan, stage, start, stop) for start, stop in runs) for stage in examples)
    found = {places[stage]: at for at, stage in enumerate(examples)}
    place = np.array([found[each] for each in places])
    return EveryCut(tabler.shape(plan), kinds, place, np.zeros(plan.pipeline), column, stack)


def fitting_runs(
    tabler: PlanTabler, plan: ParallelPlan, num_layers: int, capacity_bytes: float, recompute: tuple[Recompute, ...]
) -> Flags:
    """Whether each stage has room for each run of blocks that differ, shape (stages, runs, recomputations)."""
    room, may, runs = tabler.room(plan), np.array([each in recompute for each in CHOICES]), list_runs(num_layers)
    known: dict[tuple[bool, bool], Floats] = {}
    held = []
    for stage in range(plan.pipeline):
        ends = (stage == 0, stage == plan.pipeline - 1)
        if ends not in known:
            known[ends] = np.array([room.span_parts(stage, *run) for run in runs])
        held.append(room.with_flights(known[ends], room.flights(stage)))
    return np.asarray((np.array(held) <= capacity_bytes) & may)


def most_blocks(
    tabler: PlanTabler, plan: ParallelPlan, num_layers: int, capacity_bytes: float, recompute: tuple[Recompute, ...]
) -> Ints:
    """Blocks that each stage has room for with each recomputation, -1 where not even none; shape (stages, 3).

    Memory never falls with the number of blocks.
    """
    room, counts = tabler.room(plan), np.arange(num_layers + 1.0)
    most: Ints = np.full((plan.pipeline, len(CHOICES)), -1)
    lasting: dict[tuple[bool, bool], Floats] = {}
    known: dict[tuple[float, bool, bool], Ints] = {}
    chosen = [number for number, each in enumerate(CHOICES) if each in recompute]
    for stage in range(plan.pipeline):
        ends, flights = (stage == 0, stage == plan.pipeline - 1), room.flights(stage)
        if ends not in lasting:
            lasting[ends] = room.lasting_bytes(stage, counts)
        key = (flights, *ends)
        if key not in known:
            held = np.array([room.with_kept(lasting[ends], stage, counts, CHOICES[number]) for number in chosen])
            known[key] = (held <= capacity_bytes).sum(axis=1) - 1
        most[stage, chosen] = known[key]
    return most


def has_room(most: Ints, num_layers: int) -> bool:
    """Whether some cut fits: every stage its other layers, those between the ends a block, all together all blocks."""
    fits = most.max(axis=1)
    is_filled = len(fits) - 2 <= num_layers <= fits.sum()
    return bool(is_filled and (fits >= 0).all() and (fits[1:-1] >= 1).all())
