"""Encodings of design points for samplers: the codec, and two others kept to measure what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from phaze_opt.hardware.chip_template import JOINED_AXES, SIZE_AXES, DesignPoint, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2
from phaze_opt.record.arrays import Ints
from phaze_opt.search.options import option
from phaze_opt.space.axes import ROW_AXES
from phaze_opt.space.codec import TC_HALVINGS, VC_HALVINGS, Codec, Parameter, axis_parameters, compile_band
from phaze_opt.space.search_space import Positions, SearchSpace
from phaze_opt.units import um2_to_mm2

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


CODEC, EXPONENTS, LIFTED = "codec", "exponents", "lifted"
ENCODINGS = (CODEC, EXPONENTS, LIFTED)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A proposal that means no kept point.

    Attributes:
        violation: by how much it breaks the area band, > 0; a share of the bound that it breaks.
    """

    violation: float


class Encoding(Protocol):
    """Fixed distributions, and what their values mean; every kept point can be proposed."""

    @property
    def space(self) -> SearchSpace:
        """The points."""
        ...

    def distributions(self) -> dict[str, BaseDistribution]:
        """Optuna's distribution of every parameter."""
        ...

    def decode(self, params: Mapping[str, Any], /) -> DesignPoint | Rejected:
        """What a proposal means."""
        ...

    def encode(self, point: DesignPoint, /) -> dict[str, int]:
        """A proposal that means a kept point."""
        ...


def distributions_of(parameters: Iterable[Parameter]) -> dict[str, BaseDistribution]:
    """One integer per parameter of several values."""
    from optuna.distributions import IntDistribution

    return {
        known.name: IntDistribution(known.low, known.low + known.count - 1) for known in parameters if known.count > 1
    }


def named(parameters: Sequence[Parameter], positions: Sequence[int]) -> dict[str, int]:
    """The proposal of some positions on the parameters' axes."""
    pairs = zip(parameters, positions, strict=True)
    return {known.name: known.low + position for known, position in pairs if known.count > 1}


def encoding_option() -> Any:
    """The option ``encoding`` of a strategy that proposes parameters."""
    return option(
        CODEC,
        "how points are encoded: codec proposes kept points only, exponents rejects the others, lifted moves them",
        choices=ENCODINGS,
    )


def build_encoding(name: str, space: SearchSpace) -> Encoding:
    """The encoding of a name among `ENCODINGS`; `resolve_options` has refused any other."""
    kinds: dict[str, Callable[[SearchSpace], Encoding]] = {EXPONENTS: ExponentEncoding, LIFTED: LiftedEncoding}
    return kinds.get(name, Codec)(space)


_ORDER = (*ROW_AXES, "num_vc", *JOINED_AXES)


@dataclass(frozen=True, slots=True)
class ExponentEncoding:
    """Every axis by itself; what lies outside the area band is rejected (61 % of the Phaze space's candidates).

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """The axes in the order (GLB, width, depth, tensor cores, vector cores, HBM, micro-batch)."""
        return tuple(axis_parameters(self.space, _ORDER).values())

    def distributions(self) -> dict[str, BaseDistribution]:
        """One integer per axis of several values."""
        return distributions_of(self.parameters())

    def decode(self, params: Mapping[str, Any]) -> DesignPoint | Rejected:
        """The point, or how far its area lies outside the band."""
        known = axis_parameters(self.space, _ORDER)
        positions = Positions(**{name: int(params.get(p.name, p.low)) - p.low for name, p in known.items()})
        point = self.space.point_at(positions)
        return point if self.space.keeps(positions) else Rejected(self._violation(point))

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """Its position on every axis.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        positions = self.space.positions(point)
        return named(self.parameters(), [getattr(positions, name) for name in _ORDER])

    def _violation(self, point: DesignPoint) -> float:
        """Area over the budget as a share of it, or area missing below the band as a share of the band's end."""
        chips = chips_of(PointColumns.of([point]), self.space.constants)
        area_mm2 = float(chip_area_mm2(chips, self.space.constants)[0])
        cap_mm2 = um2_to_mm2(min(self.space.area_budget_um2, self.space.max_area_um2))
        band_mm2 = um2_to_mm2(self.space.min_area_fraction * self.space.area_budget_um2)
        if area_mm2 > cap_mm2:
            return area_mm2 / cap_mm2 - 1.0
        # A die that finds no room for its stacks, links or banks is as bad as one outside the band altogether.
        return 1.0 - area_mm2 / band_mm2 if area_mm2 < band_mm2 else 1.0


# `LiftedEncoding`: halvings below the most cores that fit, then lifting what is under the band (semantics 8).
#
# Kept beside the codec, which does not lift, to measure one against the other.


@dataclass(frozen=True, slots=True)
class LiftedEncoding:
    """Halvings beyond the smallest value mean the smallest; a design under the area band is lifted into it.

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """GLB, width, depth, halvings of tensor and of vector cores, HBM, micro-batch."""
        sizes, joined = (axis_parameters(self.space, names).values() for names in (SIZE_AXES, JOINED_AXES))
        lifts = compile_lifts(self.space)
        halvings = (Parameter(TC_HALVINGS, 0, lifts.tc_halvings), Parameter(VC_HALVINGS, 0, lifts.vc_halvings))
        return (*sizes, *halvings, *joined)

    def distributions(self) -> dict[str, BaseDistribution]:
        """One integer per parameter of several values."""
        return distributions_of(self.parameters())

    def decode(self, params: Mapping[str, Any]) -> DesignPoint:
        """The kept point that a proposal means."""
        places = [int(params.get(known.name, known.low)) - known.low for known in self.parameters()]
        sizes, joined = places[: len(SIZE_AXES)], places[-len(JOINED_AXES) :]
        tc_halvings, vc_halvings = places[len(SIZE_AXES) : -len(JOINED_AXES)]
        block = np.ravel_multi_index(tuple(sizes), self.space.axes.shape[:-1])
        row, vc = decode_lifted(
            self.space,
            compile_band(self.space).block_of[[int(block)]],
            tc_halvings=np.array([tc_halvings]),
            vc_halvings=np.array([vc_halvings]),
        )
        index = int(self.space.kept.index_of(row, vc)[0])
        return self.space.point(int(np.ravel_multi_index((index, *joined), (index + 1, *self.space.axes.joined_shape))))

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """The halvings that mean the point without being lifted.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        at = self.space.positions(point)
        row = self.space.row_of(at)
        block, tc = divmod(row, self.space.axes.shape[-1])
        tc_halvings = int(compile_lifts(self.space).tc_fitting[block]) - 1 - tc
        vc_halvings = int(self.space.kept.high[row]) - 1 - at.num_vc
        sizes, joined = ([getattr(at, name) for name in names] for names in (SIZE_AXES, JOINED_AXES))
        return named(self.parameters(), [*sizes, tc_halvings, vc_halvings, *joined])


@dataclass(frozen=True, slots=True)
class Lifts:
    """What decoding needs beside the kept rows.

    Attributes:
        tc_fitting: counts of tensor cores that fit with the fewest vector cores, shape (num_blocks,).
        lifted_row: row that a design under the band is lifted to, shape (num_rows,).
        lifted_vc: index on the num_vc axis that it is lifted to, shape (num_rows,).
        tc_halvings: length of the range of tc_halvings.
        vc_halvings: length of the range of vc_halvings.
    """

    tc_fitting: Ints
    lifted_row: Ints
    lifted_vc: Ints
    tc_halvings: int
    vc_halvings: int


def clamped(halvings: Ints, count: Ints, length: int) -> Ints:  # noqa: ARG001
    """Steps below the largest of ``count`` values; what lies beyond the smallest means it, most of the range."""
    return np.minimum(halvings, count - 1)


def decode_lifted(
    space: SearchSpace,
    block: Ints,
    *,
    tc_halvings: Ints,
    vc_halvings: Ints,
    steps_below: Callable[[Ints, Ints, int], Ints] = clamped,
) -> tuple[Ints, Ints]:
    """Row of `SearchSpace.kept` and index on the num_vc axis of what each proposal means; always kept.

    Most tensor cores that fit, so many steps down; then most vector cores that then fit, so many steps down; a
    design that falls under the band is lifted.

    Args:
        space: the space.
        block: indices over (GLB, width, depth), flattened; shape (n,) as all arguments.
        tc_halvings: steps below most tensor cores.
        vc_halvings: steps below most vector cores.
        steps_below: what halvings (of a range of a length) mean where only a count of values fits.
    """
    lifts, kept = compile_lifts(space), space.kept
    fitting = lifts.tc_fitting[block]
    tc = fitting - 1 - steps_below(tc_halvings, fitting, lifts.tc_halvings)
    row = block * space.axes.shape[-1] + tc
    high = kept.high[row].astype(np.int64)
    vc = high - 1 - steps_below(vc_halvings, high, lifts.vc_halvings)
    is_kept = kept.index_of(row, vc) >= 0
    return np.where(is_kept, row, lifts.lifted_row[row]), np.where(is_kept, vc, lifts.lifted_vc[row])


@lru_cache(maxsize=8)
def compile_lifts(space: SearchSpace) -> Lifts:
    """Work out where proposals go that are not kept themselves."""
    kept, count = space.kept, space.axes.shape[-1]
    high = kept.high.reshape(-1, count)
    lifted_row, lifted_vc = _lift_targets(space)
    return Lifts(
        tc_fitting=np.maximum((high > 0).sum(axis=1), 1).astype(np.int64),
        lifted_row=lifted_row,
        lifted_vc=lifted_vc,
        tc_halvings=max(1, int((high > 0).sum(axis=1).max())),
        vc_halvings=max(1, int(high.max())),
    )


def _lift_targets(space: SearchSpace) -> tuple[Ints, Ints]:
    """Where a design under the band goes, by row: vector cores doubled, tensor cores doubled, then one vector core.

    Where none of these is kept (spaces without single cores) it goes to the nearest row below that keeps anything,
    and where there is none to one above.
    """
    kept, count = space.kept, space.axes.shape[-1]
    low, high = kept.low.reshape(-1, count), kept.high.reshape(-1, count)
    single = kept.has_single.reshape(-1, count)
    rows = np.arange(low.size, dtype=np.int64).reshape(-1, count)
    target_row, target_vc = np.full_like(rows, -1), np.zeros_like(rows)
    above_row, above_vc = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    for tc in range(count - 1, -1, -1):
        in_band = low[:, tc] < high[:, tc]
        alone = single[:, tc] & (above_row < 0)
        target_row[:, tc] = np.where(in_band | alone, rows[:, tc], above_row)
        target_vc[:, tc] = np.where(in_band, low[:, tc], np.where(alone, 0, above_vc))
        above_row = np.where(in_band, rows[:, tc], above_row)
        above_vc = np.where(in_band, high[:, tc] - 1, above_vc)
    for tc in range(1, count):
        unresolved = target_row[:, tc] < 0
        target_row[:, tc] = np.where(unresolved, target_row[:, tc - 1], target_row[:, tc])
        target_vc[:, tc] = np.where(unresolved, target_vc[:, tc - 1], target_vc[:, tc])
    for tc in range(count - 2, -1, -1):
        unresolved = target_row[:, tc] < 0
        target_row[:, tc] = np.where(unresolved, target_row[:, tc + 1], target_row[:, tc])
        target_vc[:, tc] = np.where(unresolved, target_vc[:, tc + 1], target_vc[:, tc])
    return target_row.ravel(), target_vc.ravel()
