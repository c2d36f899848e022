"""Chips whose counts are powers of two keep the figures they had before other counts could be used whole."""

import hashlib
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.pricing import MatmulPrices, build_array_rows, price_matmuls
from phaze_opt.estimate.protocol import EstimatorOptions, FillAndDrain, GlbLimit, Multicast
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.constants import load_constants
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.units import gib_to_bytes

GOLDEN = Path(__file__).parent / "data" / "power_of_two_counts.json"
OPTIONS = {
    "default": EstimatorOptions(),
    "other": EstimatorOptions(GlbLimit.PROPORTIONAL, FillAndDrain.PER_OPERATOR, Multicast.IDEAL),
}
SHAPES = (
    (1, 4096, 1024, 1024), (1, 4096, 4096, 1024), (1, 1024, 1024, 4096), (128, 512, 512, 64), (128, 512, 64, 512),
    (1, 8, 30522, 1024), (12, 1000, 777, 513), (96, 2048, 2048, 128), (1, 2048, 49152, 12288), (3, 7, 5, 9),
    (1, 16384, 1, 4097), (64, 64, 64, 64),
)  # fmt: skip


def figures(options: EstimatorOptions) -> dict[str, str]:
    """A digest of every figure that is exact arithmetic (energies go through logarithms), over all 29,360 designs."""
    operators = []
    for shape in (Matmul(*extents) for extents in SHAPES):
        read = 2.0 * shape.operand_elements()
        operators.append(Operator("x", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (shape,), bytes_read=read))
    constants = load_constants()
    space = phaze_space(hbm_bytes=(gib_to_bytes(64),), micro_batches=(8,))
    table = space.accelerator_table(constants)
    rows, row_of = build_array_rows(
        table, options.glb_limit, reference_glb_bytes=constants.value("glb.proportional_reference_bytes")
    )
    prices = price_matmuls(compile_operators(operators).shapes, rows, options)
    order = np.lexsort([getattr(rows, field.name) for field in fields(rows)])
    digests = {
        field.name: _digest(getattr(prices, field.name)[order].astype(np.float64)) for field in fields(MatmulPrices)
    }
    estimates = AnalyticEstimator(options=options).estimate(operators, table)
    assert len(table) == 29_360
    return digests | {name: _digest(getattr(estimates, name)) for name in ("one_core_s", "spread_s", "traffic_bytes")}


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


@pytest.mark.parametrize("name", OPTIONS)
def test_all_of_the_phaze_space_is_as_it_was(name):
    assert figures(OPTIONS[name]) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
