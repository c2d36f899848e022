"""The formulas of the analytic estimator (semantics 3) restated in plain loops, two-byte elements throughout."""

import math
from itertools import product

import numpy as np
import pytest

from phaze_opt.estimate.protocol import FillAndDrain, GlbLimit, GroupedProducts, Multicast
from phaze_opt.graph.operator import CoreType, OperatorKind
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import access_energies
from phaze_opt.hardware.pipelining import Pipelining, pipelining_of


def allowed_splits(num_tc):
    """Every split of at most ``num_tc`` arrays: powers of two, but for one dimension if the count is none itself."""
    powers = [2**e for e in range(num_tc.bit_length())]
    found = set(product(powers, repeat=4))
    if num_tc not in powers:
        for axis in range(4):
            choices = [range(1, num_tc + 1) if position == axis else powers for position in range(4)]
            found |= set(product(*choices))
    return [split for split in found if math.prod(split) <= num_tc]


def run_cycles(kind, *, folds, stream, width, depth, uses=1):
    """Cycles of folds one after the other, each operand that stands in the array used ``uses`` times in succession."""
    rows, loads = kind.rows(depth), -(-folds // uses)
    if kind is Pipelining.BASE:
        return folds * (stream + 2 * rows + width - 2)
    if kind.is_buffered:
        before = (loads - 1) * max(uses * stream, rows)
        return before + (folds - (loads - 1) * uses) * stream + 2 * rows + width - 2
    return folds * (stream + rows - 1) + (loads if kind >= Pipelining.WLBP else folds) * rows + width - 1


def side_by_side(down, across, depth, width):
    """Products whose blocks fit on the diagonal of an array, one by one; one where not even one fits."""
    count = 1
    while (count + 1) * down <= depth and (count + 1) * across <= width:
        count += 1
    return count


def priced_splits(  # noqa: PLR0917
    size, num_tc, width, depth, l2_bytes, bytes_per_cycle, fill, is_multicast, is_packed=False, kind=Pipelining.BASE
):
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
        ramp = 2 * kind.rows(depth) + width - 2
        flows = (
            (-(-kk // depth) * -(-nn // width), mm),
            (-(-mm // depth) * -(-nn // width), kk),
            (-(-kk // depth) * -(-mm // width), nn),
        )
        blocks = ((kk, nn), (mm, nn), (kk, mm))
        for dataflow, ((folds, stream), block) in enumerate(zip(flows, blocks, strict=True)):
            fills = folds * (-(-bb // side_by_side(*block, depth, width)) if is_packed else bb)
            beyond = {FillAndDrain.PER_OPERATOR: ramp, FillAndDrain.NONE: 0}.get(fill)
            if fill is FillAndDrain.PER_FOLD:
                run = run_cycles(kind, folds=fills, stream=stream, width=width, depth=depth)
                beyond = fills * ramp if kind is Pipelining.BASE else run - fills * stream
            compute = fills * stream + beyond
            l2 = 2 * used * fills * (stream * (width + depth) + width * depth)
            yield max(compute, glb / bytes_per_cycle), fills * stream, beyond, glb, l2, dataflow


def best_splits(*arguments):
    """Of `priced_splits` those of least cycles, ties included."""
    found = list(priced_splits(*arguments))
    least = min(found)[0]
    return [split for split in found if split[0] <= least * (1 + 1e-13)]


def least_traffic(size, room, left=None, overlap=0):
    """HBM elements by trying every width of an output tile, as tall as fits.

    ``left`` elements lie behind the left operand, and row strips share at most ``overlap`` with those before.
    """
    b, m, n, k = size
    left = m * k if left is None else left
    if min(left, k * n, m * n) <= room:
        return b * (left + k * n + m * n)
    tiles = ((-(-m // min(m, room // t_n)), -(-n // t_n)) for t_n in range(1, min(n, room) + 1))
    return b * (m * n + min(min(m * k, left + (q - 1) * overlap) * p + k * n * q for q, p in tiles))


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
    is_grouped = any(each.is_grouped for each in operator.matmuls)
    packed = [each.is_grouped and options.grouped is not GroupedProducts.ONE_BY_ONE for each in operator.matmuls]
    jobs = list(zip(sizes, packed, strict=True))
    kind = pipelining_of(chip.pipelining)
    spread = [best_splits(size, chip.num_tc, *array, bytes_per_cycle, *choices, each, kind) for size, each in jobs]
    alone = [best_splits(size, 1, *array, bytes_per_cycle / chip.num_tc, *choices, each, kind) for size, each in jobs]
    moved = restated_traffic(operator, chip.glb_bytes // 4)
    lane_cycles = sum(work.elements * constants.value(f"vector_cycles.{work.kind}") for work in operator.vector_works)
    num_sharing = chip.num_vc if operator.core_type is CoreType.VC else chip.num_tc
    macs, steps = operator.serial_steps * sum(map(math.prod, sizes)), operator.serial_steps
    kinds = {work.kind for work in operator.vector_works if work.elements}
    step_cycles = sum(constants.value(f"vector_cycles.{kind}") for kind in kinds) * steps if steps > 1 else 0.0
    product_cycles = math.inf
    if is_grouped and options.grouped in (GroupedProducts.FASTER, GroupedProducts.LANES):
        product_cycles = macs * constants.value("vector_cycles.add")

    def core_cycles(best, lanes):
        on_arrays, on_lanes = steps * sum(each[0][0] for each in best), max(lane_cycles / lanes, step_cycles)
        both = on_arrays + on_lanes if steps > 1 else max(on_arrays, on_lanes)
        if is_grouped and options.grouped is GroupedProducts.LANES:
            both = math.inf
        return both, (lane_cycles + product_cycles) / lanes

    one_core_s = max(
        min(core_cycles(alone, chip.vc_width)) / chip.clock_hz, moved * num_sharing / chip.hbm_bandwidth_bytes_per_s
    )
    both, lanes_only = core_cycles(spread, chip.num_vc * chip.vc_width)
    spread_s = max(min(both, lanes_only) / chip.clock_hz, moved / chip.hbm_bandwidth_bytes_per_s)
    energies = access_energies(AcceleratorTable.from_accelerators([chip]), constants)
    mac_j = energies.mac_j[0] + energies.l1_j_per_mac[0]
    moved_j = moved * energies.hbm_j_per_byte[0]
    fixed_j = macs * mac_j + moved_j + lane_cycles * energies.lane_j[0]
    buffers = product(*({(glb, l2) for _, _, _, glb, l2, _ in best} for best in spread))
    joules = {
        fixed_j + sum(steps * (glb * energies.glb_j_per_byte[0] + l2 * energies.l2_j_per_byte[0]) for glb, l2 in chosen)
        for chosen in buffers
    }
    if lanes_only <= both * (1 + 1e-13):
        on_lanes_j = moved_j + (lane_cycles + product_cycles) * energies.lane_j[0]
        joules = {on_lanes_j} if lanes_only < both * (1 - 1e-13) else {*joules, on_lanes_j}
    return one_core_s, spread_s, moved, joules


def restated_traffic(operator, room):
    """HBM bytes, tiles of ``room`` elements."""
    sizes = [(x.batch, x.m, x.n, x.k) for x in operator.matmuls]
    if operator.kind is OperatorKind.RECURRENT:
        missing = max(0, sum(b * k * n for b, _, n, k in sizes) - room)
        return operator.traffic_bytes + (operator.serial_steps - 1) * 2 * missing
    if operator.kind is not OperatorKind.MATMUL:
        return operator.traffic_bytes
    behind = [(x.left_elements or x.m * x.k, x.left_overlap) for x in operator.matmuls]
    operands = sum(2 * b * (left + k * n + m * n) for (b, m, n, k), (left, _) in zip(sizes, behind, strict=True))
    tiled = sum(2 * least_traffic(size, room, *each) for size, each in zip(sizes, behind, strict=True))
    return tiled + max(0.0, operator.traffic_bytes - operands)


def check_restated(estimator, operators, chips, constants, options):
    """All figures of an estimator are those of `restated`."""
    result = estimator.estimate(operators, AcceleratorTable.from_accelerators(chips))
    for (row, chip), (column, operator) in product(enumerate(chips), enumerate(operators)):
        one_core_s, spread_s, moved, joules = restated(operator, chip, constants, options)
        figures = [x[row, column] for x in (result.one_core_s, result.spread_s, result.traffic_bytes)]
        assert figures == pytest.approx([one_core_s, spread_s, moved], rel=1e-11)
        assert np.isclose(list(joules), result.energy_j[row, column], rtol=1e-11, atol=0.0).any()
