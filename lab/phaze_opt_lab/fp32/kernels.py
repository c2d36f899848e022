"""Kernels of fp32 libraries as arrays, priced together by fp32 constants and added up by what they belong to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.estimate.machine_operators import elementwise_s, layer_norm_s, softmax_s
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt_lab.estimate.fp32_machine import Fp32Machines
from phaze_opt_lab.estimate.machine_simt import simt_matmul

ELEMENT_BYTES = 4
DTYPES = ("fp32", "float32")
KINDS = ("matmul", "softmax", "norm", "stream")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, or ``count`` equal ones.

    Attributes:
        kind: ``matmul``, ``softmax``, ``norm`` or ``stream``.
        sizes: batch, m, n, k of a matmul; rows and length of softmax and norm; bytes of a stream.
        count: how many.
    """

    kind: str
    sizes: tuple[float, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class PlacedKernel:
    """A kernel, the place of what its time is added to, and the device that it runs on."""

    kernel: Kernel
    place: int
    device: Device


class KernelTable:
    """Kernels on any number of devices, priced again and again under other constants."""

    def __init__(self, kernels: Sequence[PlacedKernel], num_places: int) -> None:
        """Sort them by kind, which one formula prices.

        Args:
            kernels: in no particular order.
            num_places: of what their times are added to.
        """
        self.devices = tuple({each.device.name: each.device for each in kernels}.values())
        self._num_places = num_places
        number = {device.name: index for index, device in enumerate(self.devices)}
        own = {kind: [each for each in kernels if each.kernel.kind == kind] for kind in KINDS}
        self._columns = {
            kind: (
                np.array([each.kernel.sizes for each in some], float),
                np.array([each.kernel.count for each in some], float),
                np.array([each.place for each in some], np.intp),
                np.array([number[each.device.name] for each in some], np.intp),
            )
            for kind, some in own.items()
            if some
        }

    def seconds(self, fitted: FittedConstants, *, streaming: Sequence[float] | None = None) -> Floats:
        """Time at every place, shape (num_places,), s.

        Args:
            fitted: constants of devices, makers and all.
            streaming: by device, share of their time alone that kernels take that multiply nothing; 1 unless given.
        """
        machines = Fp32Machines.look_up(self.devices, fitted)
        total = np.zeros(self._num_places)
        for kind, (sizes, count, place, device) in self._columns.items():
            if kind == "matmul":
                b, m, n, k = sizes.T
                each = simt_matmul(b, m, n, k, machines.simt(device)).seconds
            elif kind == "stream":
                each = elementwise_s(sizes[:, 0], machines.vector(device))
            else:
                price = softmax_s if kind == "softmax" else layer_norm_s
                rows, length = sizes.T
                each = price(rows, length, ELEMENT_BYTES, machines.vector(device))
            if streaming is not None and kind != "matmul":
                each = each * np.array(streaming)[device]
            total += np.bincount(place, each * count, minlength=self._num_places)
        return total


def device_refusal(device: Device) -> str:
    """Why fp32 kernels are not priced on a device; empty if they are: the constants are those of GPUs' libraries."""
    if device.style is not MatrixStyle.TILES:
        return f"{device.name} is no GPU; fp32 kernels are priced on GPUs alone"
    return "" if ComputePath.FP32 in device.peak_flops_per_s else f"{device.name} has no fp32 path"
