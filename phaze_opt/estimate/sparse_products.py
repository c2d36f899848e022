"""Products with N:M sparse weights on arrays that skip zeros (docs/decisions/0309).

An array that keeps j of every M inputs takes k' = (k / M) j steps along k where a dense one takes k. The left operand
comes whole, m k elements, and every weight kept comes with its place in the block: 16 + log2 M bits. A product that is
as fast with its zeros multiplied runs so: no sparse product takes longer than the dense one. From HBM weights come as
stored, whichever way they run, unless that is more than dense ones are; a tiled product saves so only the first time
that it reads them, and one whose weights the buffer holds saves nothing.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from phaze_opt.estimate.operator_table import CompiledOperators, MatmulShapes
from phaze_opt.estimate.pricing import ArrayRows, MatmulPrices, price_matmuls
from phaze_opt.estimate.protocol import EstimatorOptions
from phaze_opt.graph.operator import OperatorKind
from phaze_opt.hardware.sparse_array import SparseArray, sparse_array_of
from phaze_opt.record.arrays import Floats, Indices, Ints
from phaze_opt.workload.sparsity import WEIGHT_BITS, Pattern


@dataclass(frozen=True, slots=True)
class SparseWork:
    """What one kind of array makes of operators.

    Attributes:
        matmuls: which of the distinct matmuls it runs in fewer steps.
        shapes: those, with the steps that it takes along k.
        skipped_macs: multiply-accumulates that each of those has less, shape (len(matmuls),).
        spared_elements: elements of weights that each operator need not read, shape (num_operators,).
    """

    matmuls: Indices
    shapes: MatmulShapes
    skipped_macs: Floats
    spared_elements: Floats


def sparse_work(compiled: CompiledOperators, array: SparseArray) -> SparseWork:
    """What an array makes of operators."""
    sparse, shapes = compiled.sparse, compiled.shapes
    kept = [array.kept_of(each.kept, each.of) for each in sparse.patterns]
    gains = [place for place, each in enumerate(kept) if each < array.of]
    index = sparse.index[gains]
    full = shapes.k[index]
    steps = np.array([array.inner(int(k), kept[place]) for k, place in zip(full, gains, strict=True)], dtype=np.int64)
    spared_share = [max(0.0, 1.0 - float(Pattern(kept[place], array.of).stored_share)) for place in gains]
    spared = np.zeros((1, len(shapes)))
    outer = shapes.batch[index] * shapes.n[index]
    spared[0, index] = (outer * full) * np.array(spared_share)
    is_tiled = np.array([each.kind is OperatorKind.MATMUL for each in compiled.operators], dtype=np.bool_)
    place_bits = (array.of - 1).bit_length()
    few = MatmulShapes(**{each.name: getattr(shapes, each.name)[index] for each in fields(MatmulShapes)})
    return SparseWork(
        matmuls=index,
        shapes=replace(
            few,
            k=steps,
            left_scale=full / steps,
            right_scale=np.full(len(index), (WEIGHT_BITS + place_bits) / WEIGHT_BITS),
        ),
        skipped_macs=(outer * shapes.m[index] * (full - steps)).astype(np.float64),
        spared_elements=np.where(is_tiled & compiled.sparse.may_spare, compiled.add_up(spared)[0], 0.0),
    )


def sparse_codes(codes: Ints) -> tuple[int, ...]:
    """Numbers of the kinds among arrays that skip zeros."""
    return tuple(int(code) for code in np.unique(codes) if code > 1)


def run_sparse(
    prices: MatmulPrices, compiled: CompiledOperators, rows: ArrayRows, options: EstimatorOptions, *, threads: int
) -> Floats:
    """Put what is faster with zeros skipped into dense prices, of all arrays and of one alone each by itself.

    Returns:
        Multiply-accumulates that operators have less, shape (rows, num_operators).
    """
    skipped = np.zeros((len(rows.sparse_array), len(compiled.shapes)))
    for code in sparse_codes(rows.sparse_array):
        work = sparse_work(compiled, sparse_array_of(code))
        if not len(work.matmuls):
            continue
        at = np.flatnonzero(rows.sparse_array == code)
        found = price_matmuls(work.shapes, rows.take(at), options, threads=threads)
        cells = np.ix_(at, work.matmuls)
        is_faster = found.cycles < prices.cycles[cells]
        alone = np.minimum(found.one_core_cycles, prices.one_core_cycles[cells])
        for each in fields(MatmulPrices):
            table = getattr(prices, each.name)
            table[cells] = np.where(is_faster, getattr(found, each.name), table[cells])
        prices.one_core_cycles[cells] = alone
        skipped[cells] = np.where(is_faster, work.skipped_macs, 0.0)
    return compiled.add_up(skipped)


def spared_bytes(compiled: CompiledOperators, codes: Ints, dtype_bytes: Ints) -> Floats:
    """HBM bytes that operators save on distinct buffers of chips whose arrays skip zeros, shape (rows, num_operators).

    Args:
        compiled: operators.
        codes: kind of the arrays beside each buffer.
        dtype_bytes: of an element beside each.
    """
    spared = np.zeros((len(codes), len(compiled)))
    for code in sparse_codes(codes):
        at = np.flatnonzero(codes == code)
        spared[at] = sparse_work(compiled, sparse_array_of(code)).spared_elements * dtype_bytes[at, None]
    return spared
