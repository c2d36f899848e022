"""Between design points and Optuna: every proposal is a kept point, every kept point can be proposed (semantics 8).

The distributions are fixed, never conditional, so that samplers that model all parameters jointly (TPE with
multivariate kernels, CMA-ES, Gaussian processes, QMC, NSGA-II) see one space.

Inner half: for a block (one value of each of `SIZE_AXES`): ``vc_halvings`` at its last value means one vector core,
and ``tc_halvings`` then shares its range equally among all numbers of tensor cores that fit. Otherwise ``tc_halvings``
shares it among those with any design of two or more vector cores in the area band, and ``vc_halvings`` shares the
rest of its range among those numbers of vector cores; both count down from the largest. Where the axis of vector cores
does not begin with one, there is no last value apart. No proposal falls outside the kept designs, so nothing is lifted
(docs/decisions/0023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import AXIS, JOINED_AXES, SIZE_AXES, Axis, DesignPoint
from phaze_opt.record.arrays import Ints
from phaze_opt.space.search_space import SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TC_HALVINGS = "tc_halvings"
"""Steps below the largest num_tc with a kept design (see `band`)."""
VC_HALVINGS = "vc_halvings"
"""Steps below the largest num_vc that then fits; the last means one vector core."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One integer parameter: ``low`` .. ``low + count - 1``; a log2 where the axis is consecutive powers of two."""

    name: str
    low: int
    count: int


@dataclass(frozen=True, slots=True)
class Codec:
    """Encodes points of a space as Optuna parameters and decodes proposals into points.

    Parameters: log2 (or index) of the sizes, ``tc_halvings``, ``vc_halvings``, and log2 (or index) of HBM
    capacity and micro-batch. An axis with a single value has no parameter.

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in order, without those that have a single value."""
        return _parameters(self.space)

    def distributions(self) -> dict[str, BaseDistribution]:
        """Optuna's distribution of every parameter; fixed for the space."""
        from optuna.distributions import IntDistribution

        return {known.name: IntDistribution(known.low, known.low + known.count - 1) for known in self.parameters()}

    def decode(self, params: Mapping[str, Any]) -> DesignPoint:
        """The kept point that a proposal means.

        Raises:
            InputError: a parameter is missing, unknown, not an integer or out of its range.
        """
        known = {parameter.name: parameter for parameter in self.parameters()}
        for name in params:
            if name not in known:
                message = f"parameter {name} is not one of this space's: {', '.join(known) or 'none'}"
                raise InputError(message, key=name)
        columns = {name: np.array([_checked(params, parameter)]) for name, parameter in known.items()}
        return self.space.point(int(self.decode_indices(columns)[0]))

    def decode_indices(self, columns: Mapping[str, Ints]) -> Ints:
        """Indices of the points that many proposals mean; one column of shape (n,) per parameter, unchecked."""
        zeros = np.zeros(len(next(iter(columns.values()))) if columns else 1, dtype=np.int64)
        sizes, joined = (
            [
                columns[known.name] - known.low if known.name in columns else zeros
                for known in axis_parameters(self.space, names).values()
            ]
            for names in (SIZE_AXES, JOINED_AXES)
        )
        block = np.ravel_multi_index(tuple(sizes), self.space.axes.shape[:-1])
        row, vc = decode_architectures(
            self.space,
            np.asarray(block, dtype=np.int64),
            tc_halvings=columns.get(TC_HALVINGS, zeros),
            vc_halvings=columns.get(VC_HALVINGS, zeros),
        )
        index = self.space.kept.index_of(row, vc)
        for position, count in zip(joined, self.space.axes.joined_shape, strict=True):
            index = index * count + position
        return index

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """A proposal that means the point; `decode` returns the point again.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        positions = self.space.positions(point)
        values = {
            known.name: known.low + getattr(positions, name)
            for name, known in axis_parameters(self.space, (*SIZE_AXES, *JOINED_AXES)).items()
        }
        row = self.space.row_of(positions)
        values[TC_HALVINGS], values[VC_HALVINGS] = encode_architecture(self.space, row, positions.num_vc)
        return {known.name: values[known.name] for known in self.parameters()}


@lru_cache(maxsize=8)
def _parameters(space: SearchSpace) -> tuple[Parameter, ...]:
    band = compile_band(space)
    halvings = (Parameter(TC_HALVINGS, 0, band.num_tc_halvings), Parameter(VC_HALVINGS, 0, band.num_vc_halvings))
    sizes, joined = (axis_parameters(space, names).values() for names in (SIZE_AXES, JOINED_AXES))
    return tuple(known for known in (*sizes, *halvings, *joined) if known.count > 1)


@lru_cache(maxsize=32)
def axis_parameters(space: SearchSpace, names: tuple[str, ...]) -> Mapping[str, Parameter]:
    """Parameters of axes by the axis' name, in the given order, single-valued ones included."""
    return {name: axis_parameter(AXIS[name], getattr(space.axes, name)) for name in names}


def axis_parameter(axis: Axis, values: Sequence[int]) -> Parameter:
    """``log2_<key>`` for consecutive powers of two (times the axis' unit), else ``<key>_index``; so too of kinds."""
    is_power = bool(values) and not axis.choices and values[0].bit_count() == 1
    if is_power and all(b == 2 * a for a, b in zip(values, values[1:], strict=False)):
        return Parameter(f"log2_{axis.key}", values[0].bit_length() - (axis.unit or 1).bit_length(), len(values))
    return Parameter(f"{axis.key}_index", 0, max(1, len(values)))


def _checked(params: Mapping[str, Any], parameter: Parameter) -> int:
    """A parameter's value, if present, whole and in range."""
    value = params.get(parameter.name)
    high = parameter.low + parameter.count - 1
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and parameter.low <= value <= high:
        return int(value)
    message = f"parameter {parameter.name} = {value!r} must be an integer from {parameter.low} to {high}"
    raise InputError(message, key=parameter.name)


@dataclass(frozen=True, slots=True)
class BandIndex:
    """The choices of every block; indices are those of `KeptRows` and of the num_vc axis.

    Attributes:
        block_of: nearest block that keeps anything, shape (num_blocks,); in the Phaze space each block itself.
        num_fitting: numbers of tensor cores that fit beside one vector core, shape (num_blocks,).
        num_in_band: numbers of tensor cores with designs in the band, single vector cores apart, same shape.
        tc_in_band: their indices on the num_tc axis, ascending, shape (num_blocks, num_tc); filled up with zeros.
        vc_low: first index on the num_vc axis in the band, single vector cores apart, shape (num_rows,).
        has_single: whether the num_vc axis begins with one.
        num_tc_halvings: length of the range of tc_halvings.
        num_vc_halvings: length of the range of vc_halvings.
    """

    block_of: Ints
    num_fitting: Ints
    num_in_band: Ints
    tc_in_band: Ints
    vc_low: Ints
    has_single: bool
    num_tc_halvings: int
    num_vc_halvings: int


def decode_architectures(space: SearchSpace, block: Ints, *, tc_halvings: Ints, vc_halvings: Ints) -> tuple[Ints, Ints]:
    """Row of `SearchSpace.kept` and index on the num_vc axis of what each proposal means; always kept.

    Args:
        space: the space.
        block: indices over `SIZE_AXES`, flattened; shape (n,) as all arguments.
        tc_halvings: steps below the largest num_tc, in 0..num_tc_halvings-1.
        vc_halvings: steps below the largest num_vc, in 0..num_vc_halvings-1.
    """
    index = compile_band(space)
    live = index.block_of[block]
    fitting, in_band = index.num_fitting[live], index.num_in_band[live]
    last = index.num_vc_halvings - 1
    is_single = (index.has_single & (vc_halvings == last)) | (in_band == 0)
    choices = np.where(is_single, fitting, in_band)
    position = choices - 1 - tc_halvings * choices // index.num_tc_halvings
    tc = np.where(is_single, position, index.tc_in_band[live, position])
    row = live * len(space.axes.num_tc) + tc
    high, low = space.kept.high[row].astype(np.int64), index.vc_low[row]
    gap = space.kept.gap_high[row] - space.kept.gap_low[row]
    length = max(1, index.num_vc_halvings - index.has_single)
    vc = high - 1 - vc_halvings * (high - low - gap) // length
    vc -= np.where(vc < space.kept.gap_high[row], gap, 0)
    return row, np.where(is_single, 0, vc)


def encode_architecture(space: SearchSpace, row: int, vc: int) -> tuple[int, int]:
    """Halvings (tensor cores, vector cores) that mean a kept architecture: the middle of those that do.

    Args:
        space: the space.
        row: row of `SearchSpace.kept`.
        vc: index on the num_vc axis.
    """
    index = compile_band(space)
    block, tc = divmod(row, len(space.axes.num_tc))
    if index.has_single and vc == 0:
        fitting = int(index.num_fitting[block])
        return _middle(fitting - 1 - tc, fitting, length=index.num_tc_halvings), index.num_vc_halvings - 1
    in_band = int(index.num_in_band[block])
    position = int(np.searchsorted(index.tc_in_band[block, :in_band], tc))
    high, low = int(space.kept.high[row]), int(index.vc_low[row])
    gap = int(space.kept.gap_high[row]) - int(space.kept.gap_low[row])
    steps = high - 1 - vc - (gap if vc < int(space.kept.gap_low[row]) else 0)
    length = max(1, index.num_vc_halvings - index.has_single)
    return (
        _middle(in_band - 1 - position, in_band, length=index.num_tc_halvings),
        _middle(steps, high - low - gap, length=length),
    )


@lru_cache(maxsize=8)
def compile_band(space: SearchSpace) -> BandIndex:
    """Work out the choices of every block of a space."""
    kept, num_tc = space.kept, len(space.axes.num_tc)
    has_single = space.silicon is None and space.axes.num_vc[0] == 1
    vc_low = np.maximum(kept.low, 1 if has_single else 0).astype(np.int64)
    is_in_band = (vc_low < kept.high).reshape(-1, num_tc)
    fits = (kept.high > 0).reshape(-1, num_tc)
    num_in_band = is_in_band.sum(axis=1)
    order = np.argsort(~is_in_band, axis=1, kind="stable")
    widest = int((kept.high - vc_low).max())
    return BandIndex(
        block_of=_nearest_live_blocks(space),
        num_fitting=np.maximum(fits.sum(axis=1), 1),
        num_in_band=num_in_band,
        tc_in_band=np.where(np.arange(num_tc) < num_in_band[:, None], order, 0),
        vc_low=vc_low,
        has_single=has_single,
        num_tc_halvings=max(1, int((fits.sum(axis=1) if has_single else num_in_band).max())),
        num_vc_halvings=max(0, widest) + has_single,
    )


def _middle(steps: int, count: int, *, length: int) -> int:
    """Middle of the halvings h in 0..length-1 with floor(h count / length) = steps."""
    first = -(-steps * length // count)
    last = -(-(steps + 1) * length // count) - 1
    return (first + last) // 2


def _nearest_live_blocks(space: SearchSpace) -> Ints:
    """Nearest block, by steps on the axes, that keeps any architecture; each block itself in the Phaze space."""
    *shape, num_tc = space.axes.shape
    counts = np.diff(space.kept.starts).reshape(-1, num_tc).sum(axis=1)
    if counts.all():
        return np.arange(len(counts), dtype=np.int64)
    from scipy.ndimage import distance_transform_edt

    nearest = distance_transform_edt(counts.reshape(shape) == 0, return_distances=False, return_indices=True)
    blocks: Ints = np.ravel_multi_index(tuple(nearest), shape).ravel().astype(np.int64)
    return blocks
