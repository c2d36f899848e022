"""Rows of fp32 operators, each one kernel: matmuls by `estimate.machine_simt`, others by `estimate.machine_vector`."""

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.fp32_machine import Fp32Machines
from phaze_opt.estimate.machine_simt import simt_matmul
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.units import MICRO
from phaze_opt.validation.family import Part
from phaze_opt.validation.fp32.kernels import DTYPES, ELEMENT_BYTES, Kernel, KernelTable, PlacedKernel, device_refusal
from phaze_opt.validation.measured_row import Row, read_rows

Floats = NDArray[np.float64]

KIND_OF = MappingProxyType(
    {
        **dict.fromkeys(("linear", "bmm", "matmul"), "matmul"),
        **dict.fromkeys(("ln", "layernorm"), "norm"),
        "softmax": "softmax",
        **dict.fromkeys(("add", "gelu", "relu", "gelu_new", "dropout"), "stream"),
    }
)
"""Kind of kernel of an operator."""
_PASSES = MappingProxyType({"add": 3.0})
"""Tensors that a kernel reads or writes; 2 of most."""


class CompiledFp32:
    """Rows of matmuls and row operators on any number of devices.

    Attributes:
        measured_s: measured time of every row, shape (num_rows,), s.
        unscored: why a row is not predicted, by its index.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """Read the rows.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        self.measured_s = np.array([row.number("latency_us") * MICRO for row in rows])
        kernels, self.unscored = read_rows(_read_kernel, rows)
        self._kernels = {index: PlacedKernel(kernel, index, rows[index].device()) for index, kernel in kernels.items()}
        self._streamed = {index: _streamed_bytes(rows[index]) for index in self._kernels}
        self._table = KernelTable(list(self._kernels.values()), len(rows))

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time, shape (num_rows,), s."""
        predicted = self._table.seconds(fitted)
        predicted[list(self.unscored)] = np.nan
        return predicted

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Launch, compute and memory; what overlaps is a negative part, so that they add up."""
        total = float(self.seconds(fitted)[index])
        placed = self._kernels[index]
        machines, only = Fp32Machines.look_up((placed.device,), fitted), np.array([0])
        if placed.kernel.kind == "matmul":
            b, m, n, k = np.array([placed.kernel.sizes], float).T
            machine = machines.simt(only)
            time = simt_matmul(b, m, n, k, machine)
            launch = float(np.asarray(machine.launch_s).reshape(-1)[0])
            parts = [("launch", launch), ("compute", float(time.compute_s[0])), ("memory", float(time.memory_s[0]))]
        else:
            vector = machines.vector(only)
            stream = float(self._streamed[index] / np.asarray(vector.bandwidth_bytes_per_s)[0])
            parts = [("launch", min(total, float(np.asarray(vector.launch_s)[0]))), ("one stream", stream)]
        rest = total - sum(seconds for _, seconds in parts)
        return tuple(Part(name, seconds) for name, seconds in [*parts, ("overlap" if rest < 0 else "rows", rest)])


def _streamed_bytes(row: Row) -> float:
    """Of the operator as one pass over its tensors."""
    elements = row.number("b", 1.0) * row.number("m") * row.number("n")
    return _PASSES.get(row.text("op").lower(), 2.0) * ELEMENT_BYTES * elements


def _read_kernel(row: Row) -> Kernel | str:
    """The kernel of a row, or why it cannot be predicted.

    Raises:
        InputError: a malformed value, by file, line and column; its machine is unknown.
    """
    name = row.text("op").lower()
    kind = KIND_OF.get(name, "")
    b, m, n = row.number("b", 1.0), row.number("m"), row.number("n")
    k = row.number("k", 1.0)
    if not kind:
        return f"no formula prices operator '{name}'"
    if kind == "matmul" and not row.text("k", ""):
        return "column 'k' is blank; a matmul needs its inner size"
    dtype = row.text("dtype", "fp32").lower()
    if dtype not in DTYPES:
        return f"operators in {dtype} are not priced here"
    sizes = {"matmul": (b, m, n, k), "stream": (_streamed_bytes(row),)}
    return device_refusal(row.device()) or Kernel(kind, sizes.get(kind, (m, n)))
