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
from phaze_opt.space.band import compile_band, decode_architectures, encode_architecture
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TC_HALVINGS = "tc_halvings"
"""Steps below the largest num_tc with a kept design (see `band`)."""
VC_HALVINGS = "vc_halvings"
"""Steps below the largest num_vc that then fits; the last means one vector core."""
_GLB, _WIDTH, _DEPTH, _HBM, _MICRO_BATCH = range(5)


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
        *architecture, hbm, micro_batch = axis_parameters(self.space)
        band = compile_band(self.space)
        halvings = (Parameter(TC_HALVINGS, 0, band.num_tc_halvings), Parameter(VC_HALVINGS, 0, band.num_vc_halvings))
        return tuple(known for known in (*architecture, *halvings, hbm, micro_batch) if known.count > 1)

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
        row, vc, hbm, micro_batch = (int(column[0]) for column in self._decode_positions(columns, count=1))
        return self.space.point_at(row, vc, hbm=hbm, micro_batch=micro_batch)

    def decode_indices(self, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Indices of the points that many proposals mean; one column of shape (n,) per parameter, unchecked."""
        count = len(next(iter(columns.values()))) if columns else 1
        row, vc, hbm, micro_batch = self._decode_positions(columns, count=count)
        architecture = self.space.kept.index_of(row, vc)
        return (architecture * len(self.space.axes.hbm_bytes) + hbm) * len(self.space.axes.micro_batch) + micro_batch

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """A proposal that means the point; `decode` returns the point again.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        glb, width, depth, tc, vc, hbm, micro_batch = self.space.positions(point)
        row = int(np.ravel_multi_index((glb, width, depth, tc), self.space.axes.shape))
        axes = axis_parameters(self.space)
        values = {
            parameter.name: parameter.low + position
            for parameter, position in zip(axes, (glb, width, depth, hbm, micro_batch), strict=True)
        }
        values[TC_HALVINGS], values[VC_HALVINGS] = encode_architecture(self.space, row, vc)
        return {known.name: values[known.name] for known in self.parameters()}

    def _decode_positions(
        self, columns: Mapping[str, NDArray[np.int64]], *, count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Row, num_vc, HBM and micro-batch positions of proposals, each of shape (count,)."""
        zeros = np.zeros(count, dtype=np.int64)
        axes = axis_parameters(self.space)
        positions = [columns[axis.name] - axis.low if axis.name in columns else zeros for axis in axes]
        block = np.ravel_multi_index(tuple(positions[: _DEPTH + 1]), self.space.axes.shape[:3])
        row, vc = decode_architectures(
            self.space,
            np.asarray(block, dtype=np.int64),
            tc_halvings=columns.get(TC_HALVINGS, zeros),
            vc_halvings=columns.get(VC_HALVINGS, zeros),
        )
        return row, vc, positions[_HBM], positions[_MICRO_BATCH]


def axis_parameters(space: SearchSpace) -> tuple[Parameter, ...]:
    """Parameters of GLB, width, depth, HBM and micro-batch, in this order, single-valued ones included."""
    axes = space.axes
    return (
        axis_parameter("glb_mb", axes.glb_bytes, unit=MEBI),
        axis_parameter("tc_width", axes.tc_width),
        axis_parameter("tc_depth", axes.tc_depth),
        axis_parameter("hbm_gb", axes.hbm_bytes, unit=GIBI),
        axis_parameter("micro_batch", axes.micro_batch),
    )


def axis_parameter(name: str, values: Sequence[int], *, unit: int = 1) -> Parameter:
    """``log2_<name>`` for consecutive powers of two (times ``unit``), else ``<name>_index``."""
    is_power = values[0].bit_count() == 1 and all(b == 2 * a for a, b in zip(values, values[1:], strict=False))
    if is_power:
        return Parameter(f"log2_{name}", values[0].bit_length() - unit.bit_length(), len(values))
    return Parameter(f"{name}_index", 0, len(values))


def _checked(params: Mapping[str, Any], parameter: Parameter) -> int:
    """A parameter's value, if present, whole and in range."""
    value = params.get(parameter.name)
    high = parameter.low + parameter.count - 1
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and parameter.low <= value <= high:
        return int(value)
    message = f"parameter {parameter.name} = {value!r} must be an integer from {parameter.low} to {high}"
    raise InputError(message, key=parameter.name)
