"""A weak pull of fitted constants towards what is expected, for those that the rows at hand do not determine.

A fold that keeps out the one small matmul leaves the launch undetermined, and least squares would push it to a bound to
gain a tenth of a per cent elsewhere. So a matmul's launch and efficiencies add a row of small weight each: the value
against its start, or against a constant of the same device that is its kin (a matmul's memory efficiency against that
of streams). Latencies of row operators differ more from machine to machine and are pulled less: enough that one which
no row shows does not drift by a factor of ten (decision 0194).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import CompiledRows, Parameter, Part
from phaze_opt.validation.fit import fit_parameters

Floats = NDArray[np.float64]
WEIGHT, LATENCY_WEIGHT = 0.1, 0.04
"""Of a constant that is off by a factor of e, against a row that is: a row decides where it says anything at all."""
EXPECTED = ("launch_s", "matmul_efficiency", "matmul_memory_efficiency", "overlap_norm")
"""Constants that are near their start on every machine: launches, shares of a peak, orders of a norm."""
LATENCIES = (
    "softmax_start_s",
    "softmax_loop_s",
    "layernorm_start_s",
    "layernorm_launch_s",
    "layernorm_block_s",
    "gelu_start_s",
    "gelu_launch_s",
)
"""Constants of row operators that are within a factor of a few of their start."""
KIN = MappingProxyType({"matmul_memory_efficiency": "vector_memory_efficiency"})
"""Constants expected near another of the same group."""


@dataclass(frozen=True, slots=True, eq=False)
class _WithExpectations:
    """Rows, and one more for each expectation: a constant over what it is expected to be."""

    rows: CompiledRows
    parameters: tuple[Parameter, ...]

    @property
    def measured_s(self) -> Floats:
        """Of rows in seconds; 1 of expectations."""
        return np.concatenate([self.rows.measured_s, np.ones(len(self.parameters))])

    @property
    def unscored(self) -> Mapping[int, str]:
        """As of the rows."""
        return self.rows.unscored

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Of rows in seconds; ratios to what is expected."""
        return np.concatenate([self.rows.seconds(fitted), [self._ratio(one, fitted) for one in self.parameters]])

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """As of the rows."""
        return self.rows.explain(fitted, index)

    def _ratio(self, parameter: Parameter, fitted: FittedConstants) -> float:
        values = fitted.group(parameter.group)
        return values[parameter.name] / values.get(KIN.get(parameter.name, ""), parameter.start)


def fit_with_expectations(
    compiled: CompiledRows, parameters: Sequence[Parameter], start: FittedConstants
) -> FittedConstants:
    """Fit as `fit_parameters`, with the weak pull of this module."""
    expected = tuple(parameter for parameter in parameters if parameter.name in (*EXPECTED, *LATENCIES))
    pulls = [WEIGHT if parameter.name in EXPECTED else LATENCY_WEIGHT for parameter in expected]
    weights = np.concatenate([np.ones(len(compiled.measured_s)), pulls])
    return fit_parameters(_WithExpectations(compiled, expected), parameters, start, weights=weights)
