"""Plans whose stages are cut anywhere and recompute as each of them must: which fit, and the least of all."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.check.plans.paces import LayerPace
from phaze_opt.certify.check.plans.pipeline import StageKind, StepShape, shown_s, stage_seconds
from phaze_opt.certify.check.plans.tabled import PlanTabler
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CHOICES = tuple(Recompute)
"""Recomputations, in the order of the last axis of `most_blocks`."""


@dataclass(frozen=True)
class EveryCut:
    """Everything of one plan with interleave 1 that no chip changes, for every cut.

    Attributes:
        shape: what the step is made of beside stages.
        kinds: of each place (first, between, last, or the only one) a stage with 0 .. L blocks, boundaries left out.
        place: of each stage, shape (stages,).
        transfers: boundaries of each stage, shape (stages,), s.
    """

    shape: StepShape
    kinds: tuple[tuple[StageKind, ...], ...]
    place: Ints
    transfers: Floats
    stack: TrainingStack

    def least(self, pace: LayerPace, most: Ints, *, is_bound: bool, limit: float = np.inf) -> float:
        """The least step over cuts and recomputation on one chip, s; infinite where none is below ``limit``.

        Args:
            pace: of the plan's layers on the chip.
            most: of `most_blocks`.
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
            most,
            self.shape.num_micro_batches,
            hidden,
            limit / rest - self.stack.step_overhead_s,
        )
        return float((found + self.stack.step_overhead_s) * rest)

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
                blocks=np.array([kind.blocks for kind in kinds]),
                parameter_s=np.array([kind.parameter_s for kind in kinds]),
                gather_s=np.array([kind.gather_s for kind in kinds]),
                reduction_s=np.array([kind.reduction_s for kind in kinds]),
                gradient_s=np.array([kind.gradient_s for kind in kinds]),
            )
            for kinds in self.kinds
        )


def cut_table(tabler: PlanTabler, plan: ParallelPlan, num_layers: int, stack: TrainingStack) -> EveryCut:
    """The table of a plan; its own recomputation and cuts do not count."""
    last = plan.pipeline - 1
    examples = (0,) if last == 0 else (0, last) if last == 1 else (0, 1, last)
    kinds = tuple(
        tuple(replace(tabler.kind(plan, stage, count), transfer_s=0.0) for count in range(num_layers + 1))
        for stage in examples
    )
    place = [0 if stage == 0 else len(examples) - 1 if stage == last else 1 for stage in range(plan.pipeline)]
    return EveryCut(tabler.shape(plan), kinds, np.array(place), np.array(tabler.transfers_s(plan)), stack)


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
