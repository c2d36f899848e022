"""A weak pull of fitted constants towards what is expected, for those that the rows at hand do not determine.

A fold that keeps out the one small matmul leaves the launch undetermined, and least squares would push it to a bound to
gain a tenth of a per cent elsewhere. So each launch, latency and efficiency adds a row of small weight: the value
against its start, which is what `estimate.machine_expectations` states for a GPU, or against a constant of the same
device that is its kin (a matmul's memory efficiency against that of streams). Weights: decision 0199.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.machine import is_awaited_gpu
from phaze_opt.hardware.device import shipped_devices
from phaze_opt.hardware.device_catalogue import DeviceCatalogue
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import CompiledRows, Parameter, Part
from phaze_opt.validation.fit import fit_parameters

Floats = NDArray[np.float64]
WEIGHTS = MappingProxyType(
    {
        "launch_s": 0.1,
        "matmul_efficiency": 0.1,
        "matmul_memory_efficiency": 0.1,
        "overlap_norm": 0.1,
        "softmax_start_s": 0.1,
        "softmax_loop_s": 0.2,
        "layernorm_start_s": 0.1,
        "layernorm_launch_s": 0.1,
        "layernorm_block_s": 0.2,
        "gelu_start_s": 0.1,
        "gelu_launch_s": 0.1,
    }
)
"""Of a constant that is off by a factor of e from what is expected, against a row that is: the error of a row (3 to
5 %) over the logarithm of the factor that machines differ by (1.2 to 1.3 for 0.2, 1.5 for 0.1). Rows that show a
constant outweigh it."""
GPU_LAUNCH_WEIGHT = 0.2
"""Of the launch of a matmul on a GPU under the host's clock, which is the work of PyTorch and the host."""
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
    compiled: CompiledRows,
    parameters: Sequence[Parameter],
    start: FittedConstants,
    *,
    machines: DeviceCatalogue | None = None,
) -> FittedConstants:
    """Fit as `fit_parameters`, with the weak pull of this module.

    Args:
        compiled: rows, as of `fit_parameters`.
        parameters: what may move.
        start: constants that stay, and starting values.
        machines: those that the groups of constants name; the package's unless given.
    """
    known = shipped_devices() if machines is None else machines
    expected = tuple(parameter for parameter in parameters if parameter.name in WEIGHTS)
    pulls = [_weight(parameter, known) for parameter in expected]
    weights = np.concatenate([np.ones(len(compiled.measured_s)), pulls])
    return fit_parameters(_WithExpectations(compiled, expected), parameters, start, weights=weights)


def _weight(parameter: Parameter, known: DeviceCatalogue) -> float:
    if parameter.name != "launch_s":
        return WEIGHTS[parameter.name]
    _, device_name, setting = parameter.group.split("/")
    is_gpu = is_awaited_gpu(known.load(device_name), setting)
    return GPU_LAUNCH_WEIGHT if is_gpu else WEIGHTS[parameter.name]
