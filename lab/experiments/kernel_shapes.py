"""What the constants of shape in the laboratory's code are worth, as experiments/validation/shapes.py asks of others.

    python lab/experiments/kernel_shapes.py

Writes shapes.json and shapes.md beside this file.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "validation"))

from shapes import Shape, main

_SIMT, _FP32 = "phaze_opt_lab.estimate.machine_simt", "phaze_opt_lab.estimate.fp32_machine"
_VECTOR, _FAMILY = "phaze_opt.estimate.machine_operators", ("fp32_operators",)
SHAPES = (
    Shape(_VECTOR, "FLOOR_NORM", 3.0, 12.0, _FAMILY, "host's launch beside the device"),
    Shape(_VECTOR, "OVERLAP_NORM", 1.5, 6.0, _FAMILY, "stream beside the latency of rows"),
    Shape(_VECTOR, "MISS_STEEPNESS", 3.0, 12.0, _FAMILY, "second reading from cache to memory"),
    Shape(_SIMT, "SLICE_BANDWIDTH", 0.6, 1.0, _FAMILY, "memory share of partial sums"),
    Shape(_SIMT, "WIDE_COLUMNS", 32, 256, _FAMILY, "columns from which odd k matters"),
    Shape(_SIMT, "CONFLICT_K", 16384, 65536, _FAMILY, "row length that meets few channels"),
    Shape(_FP32, "POWER_NORM", 1.0, 4.0, _FAMILY, "power limit beside the pipelines'"),
)

if __name__ == "__main__":
    main(SHAPES, Path(__file__).with_name("shapes"), "lab/experiments/kernel_shapes.py")
