"""A product of matrices on a chip of one array: its latency is known in closed form."""

from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import Accelerator

CUBE = Operator("cube", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (Matmul(1, 1024, 1024, 1024),))
ONE_ARRAY = Accelerator(1, 1, 128, 128, 128, 128 << 20, 6144e9, 262144, 32 << 30, 800e9, clock_hz=1e9)
