"""Between design points and Optuna: every proposal is a kept point, every kept point can be proposed (semantics 8).

The distributions are fixed, never conditional, so that samplers that model all parameters jointly (TPE with
multivariate kernels, CMA-ES, Gaussian processes, QMC, NSGA-II) see one space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.hardware.template import AXIS, JOINED_AXES, SIZE_AXES, Axis, DesignPoint
from phaze_opt.space.band import compile_band, decode_architectures, encode_architecture
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

    Parameters: log2 (or index) of GLB, width and depth, ``tc_halvings``, ``vc_halvings``, and log2 (or index) of HBM
    capacity and micro-batch. An axis with a single value has no parameter.

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in order, without those that have a single value."""
        band = compile_band(self.space)
        halvings = (Parameter(TC_HALVINGS, 0, band.num_tc_halvings), Parameter(VC_HALVINGS, 0, band.num_vc_halvings))
        sizes, joined = (axis_parameters(self.space, names).values() for names in (SIZE_AXES, JOINED_AXES))
        every = (*sizes, *halvings, *joined)
        return tuple(known for known in every if known.count > 1)

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

    def decode_indices(self, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
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


def axis_parameters(space: SearchSpace, names: Sequence[str]) -> dict[str, Parameter]:
    """Parameters of axes by the axis' name, in the given order, single-valued ones included."""
    return {name: axis_parameter(AXIS[name], getattr(space.axes, name)) for name in names}


def axis_parameter(axis: Axis, values: Sequence[int]) -> Parameter:
    """``log2_<key>`` for consecutive powers of two (times the axis' unit), else ``<key>_index``."""
    is_power = bool(values) and values[0].bit_count() == 1
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
