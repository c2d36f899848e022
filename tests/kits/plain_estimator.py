"""The formulas of the analytic estimator (semantics 3) restated in plain loops, two-byte elements throughout."""

import math
from itertools import product

import numpy as np
import pytest

from phaze_opt.estimate.options import FillAndDrain, GlbLimit, Multicast
from phaze_opt.graph.operator import CoreType, OperatorKind
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.energy import access_energies


def allowed_splits(num_tc):
    """Every split of at most ``num_tc`` arrays: powers of two, but for one dimension if the count is none itself."""
    powers = [2**e for e in range(num_tc.bit_length())]
    found = set(product(powers, repeat=4))
    if num_tc not in powers:
        for axis in range(4):
            choices = [range(1, num_tc + 1) if position == axis else powers for position in range(4)]
            found |= set(product(*choices))
    return [split for split in found if math.prod(split) <= num_tc]


def priced_splits(size, num_tc, width, depth, l2_bytes, bytes_per_cycle, fill, is_multicast):
    """(cycles, stream, fill, GLB bytes, L2 bytes, dataflow) of all splits and dataflows, by loops."""
    b, m, n, k = size
    for c_b, r_m, r_n, r_k in allowed_splits(num_tc):
        bb, mm, nn, kk = (-(-a // r) for a, r in zip(size, (c_b, r_m, r_n, r_k), strict=True))
        assert bb * c_b >= b and mm * r_m >= m and nn * r_n >= n and kk * r_k >= k
        capacity = l2_bytes // 4
        t = math.isqrt(capacity)
        t_m, t_n = (mm, capacity // mm) if mm < t else ((capacity // nn, nn) if nn < t else (t, t))
        share_m, share_n = (r_m, r_n) if is_multicast else (1, 1)
        elements = mm * kk * -(-nn // t_n) / share_n + kk * nn * -(-mm // t_m) / share_m
        elements += mm * nn * (3 if r_k > 1 else 1)
        used = c_b * r_m * r_n * r_k
        glb = used * 2 * bb * elements
        ramp = 2 * depth + width - 2
        flows = (
            (-(-kk // depth) * -(-nn // width), mm),
            (-(-mm // depth) * -(-nn // width), kk),
            (-(-kk // depth) * -(-mm // width), nn),
        )
        for dataflow, (folds, stream) in enumerate(flows):
            ramps = {FillAndDrain.PER_FOLD: bb * folds, FillAndDrain.PER_OPERATOR: 1, FillAndDrain.NONE: 0}[fill]
            compute = bb * folds * stream + ramps * ramp
            l2 = 2 * used * bb * folds * (stream * (width + depth) + width * depth)
            yield max(compute, glb / bytes_per_cycle), bb * folds * stream, ramps * ramp, glb, l2, dataflow


def best_splits(*arguments):
    """Of `priced_splits` those of least cycles, ties included."""
    found = list(priced_splits(*arguments))
    least = min(found)[0]
    return [split for split in found if split[0] <= least * (1 + 1e-13)]


def least_traffic(size, room):
    """HBM elements by trying every width of an output tile, as tall as fits."""
    b, m, n, k = size
    if min(m * k, k * n, m * n) <= room:
        return b * (m * k + k * n + m * n)
    tiles = ((min(m, room // t_n), t_n) for t_n in range(1, min(n, room) + 1))
    return b * (m * n + min(m * k * -(-n // t_n) + k * n * -(-m // t_m) for t_m, t_n in tiles))


def restated(operator, chip, constants, options):
    """(one-core seconds, spread seconds, HBM bytes, joules for each choice among equally quick splits)."""
    sizes = [(x.batch, x.m, x.n, x.k) for x in operator.matmuls]
    bytes_per_cycle = chip.glb_bandwidth_bytes_per_s / chip.clock_hz
    if options.glb_limit is GlbLimit.PROPORTIONAL:
        bytes_per_cycle *= chip.glb_bytes / constants.value("glb.proportional_reference_bytes")
    elif options.glb_limit is GlbLimit.NONE:
        bytes_per_cycle = math.inf
    array = (chip.tc_width, chip.tc_depth, chip.l2_bytes)
    choices = (options.fill_and_drain, options.multicast is Multicast.IDEAL)
    spread = [best_splits(size, chip.num_tc, *array, bytes_per_cycle, *choices) for size in sizes]
    alone = [best_splits(size, 1, *array, bytes_per_cycle / chip.num_tc, *choices) for size in sizes]
    moved = operator.traffic_bytes
    if operator.kind is OperatorKind.MATMUL:
        operands = sum(2 * b * (m * k + k * n + m * n) for b, m, n, k in sizes)
        moved = sum(2 * least_traffic(size, chip.glb_bytes // 4) for size in sizes) + max(0.0, moved - operands)
    lane_cycles = sum(work.elements * constants.value(f"vector_cycles.{work.kind}") for work in operator.vector_works)
    num_sharing = chip.num_vc if operator.core_type is CoreType.VC else chip.num_tc
    one_core_s = max(
        sum(best[0][0] for best in alone) / chip.clock_hz,
        lane_cycles / chip.vc_width / chip.clock_hz,
        moved * num_sharing / chip.hbm_bandwidth_bytes_per_s,
    )
    spread_s = max(
        sum(best[0][0] for best in spread) / chip.clock_hz,
        lane_cycles / (chip.num_vc * chip.vc_width) / chip.clock_hz,
        moved / chip.hbm_bandwidth_bytes_per_s,
    )
    energies = access_energies(AcceleratorTable.from_accelerators([chip]), constants)
    mac_j = energies.mac_j[0] + energies.l1_j_per_mac[0]
    fixed_j = sum(map(math.prod, sizes)) * mac_j + moved * energies.hbm_j_per_byte[0] + lane_cycles * energies.lane_j[0]
    buffers = product(*({(glb, l2) for _, _, _, glb, l2, _ in best} for best in spread))
    joules = {
        fixed_j + sum(glb * energies.glb_j_per_byte[0] + l2 * energies.l2_j_per_byte[0] for glb, l2 in chosen)
        for chosen in buffers
    }
    return one_core_s, spread_s, moved, joules


def check_restated(estimator, operators, chips, constants, options):
    """All figures of an estimator are those of `restated`."""
    result = estimator.estimate(operators, AcceleratorTable.from_accelerators(chips))
    for (row, chip), (column, operator) in product(enumerate(chips), enumerate(operators)):
        one_core_s, spread_s, moved, joules = restated(operator, chip, constants, options)
        figures = [x[row, column] for x in (result.one_core_s, result.spread_s, result.traffic_bytes)]
        assert figures == pytest.approx([one_core_s, spread_s, moved], rel=1e-11)
        assert np.isclose(list(joules), result.energy_j[row, column], rtol=1e-11, atol=0.0).any()
