"""What is missing of NVDLA's speed: its published frames/s by four readings of how its layers spend their time.

- ``package``: what `phaze-opt validate --dataset nvdla_estimates` predicts (im2col on one square array).
- ``atomics``: Atomic-C x Atomic-K multipliers: input channels and kernels round up; the first layer's image mode lays a
  row of its kernel along the channels. Inputs, filters and outputs cross DRAM once, beside the layer's multiplying.
- ``adds``: the same, and the sixteen residual adds read their second operand after that.
- ``in turn``: traffic of a layer and its multiplying follow one another, nothing overlaps.

Batch 1, int8, 1 GHz. How the multipliers divide into channels and kernels is assumed. Nothing is fitted.

Run: python experiments/validation/nvdla.py
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phaze_opt.record.whole_file import replace_file
from phaze_opt.units import GIGA
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.silicon import Convolution, nvdla_chip, price_layers, resnet50

OUT = Path(__file__).with_suffix(".json")
ATOMICS = {2048: (64, 32), 1024: (64, 16), 512: (32, 16), 64: (8, 8)}
"""Multipliers: channels and kernels at a time."""
LAYERS = resnet50()


def multiplying_s(layer: Convolution, channels: int, kernels: int, clock_hz: float) -> float:
    """Cycles of a convolution on channels x kernels multipliers, s."""
    if layer.in_channels * layer.kernel <= channels:
        steps = layer.kernel
    else:
        steps = math.ceil(layer.in_channels / channels) * layer.kernel**2
    return steps * math.ceil(layer.out_channels / kernels) * layer.out_size**2 / clock_hz


def frames(row: Row) -> dict[str, float]:
    """Published frames/s, and by every reading."""
    channels, kernels = ATOMICS[row.integer("macs_int8")]
    rate, clock_hz = row.number("dram_gbytes_per_s") * GIGA, row.number("clock_ghz") * GIGA
    busy = [multiplying_s(layer, channels, kernels, clock_hz) for layer in LAYERS]
    traffic = [layer.elements / rate for layer in LAYERS]
    added = math.fsum(each.out_channels * each.out_size**2 for each in LAYERS if each.name.endswith("c")) / rate
    hidden_s = math.fsum(map(max, busy, traffic))
    seconds = {
        "package": float(price_layers(LAYERS, nvdla_chip(row)).latency_s.sum()),
        "atomics": hidden_s,
        "adds": hidden_s + added,
        "in turn": math.fsum(busy) + math.fsum(traffic),
    }
    return {"published": row.number("resnet50_frames_per_s")} | {name: 1.0 / each for name, each in seconds.items()}


def mean_error(rows: Sequence[dict[str, float]], name: str) -> float:
    """Mean absolute error of the time of a frame, per cent."""
    return 100.0 * math.fsum(abs(row["published"] / row[name] - 1.0) for row in rows) / len(rows)


def main() -> None:
    """Work out, print, write."""
    datasets, _ = read_datasets(None)
    (rows,) = (data.rows for data in datasets if data.name == "nvdla_estimates")
    found = {row.integer("macs_int8"): frames(row) for row in rows}
    names = [name for name in next(iter(found.values())) if name != "published"]
    figures: dict[str, Any] = {
        "frames_per_s": {
            str(macs): {name: float(f"{each:.4g}") for name, each in row.items()} for macs, row in found.items()
        },
        "mean_error_of_time": {name: float(f"{mean_error(list(found.values()), name):.4g}") for name in names},
    }
    text = json.dumps(figures, indent=1)
    print(text)
    replace_file(OUT, text + "\n")


if __name__ == "__main__":
    main()
