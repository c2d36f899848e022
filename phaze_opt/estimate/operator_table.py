"""Operators as columns: each matmul shape once, vector work by kind, HBM bytes; tables that kernels read and fill.

What operators have to do with the buffer, as columns that kernels read.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, overload

import numpy as np

from phaze_opt.graph.operator import CoreType, Matmul, Operand, Operator, OperatorKind, VectorKind
from phaze_opt.record.arrays import Flags, Floats, Indices, Ints
from phaze_opt.workload.sparsity import Pattern

OPERANDS = tuple(Operand)
"""Order of what `BufferColumns.held` calls an operand."""


class BufferColumns(NamedTuple):
    """`BufferUse` of operators; operator o has rows starts[o] to starts[o + 1] of a table.

    Attributes:
        held_starts: of ``held``, shape (num_operators + 1,).
        held: address, size, bytes moved otherwise and place in `OPERANDS`, shape (num_held, 4).
        taken_starts: of ``taken``, shape (num_operators + 1,).
        taken: first address and the one behind the last, shape (num_ranges, 2).
        operand_bytes: of the left and the right operand of the matmul, shape (num_operators, 2).
    """

    held_starts: Ints
    held: Ints
    taken_starts: Ints
    taken: Ints
    operand_bytes: Ints


def compile_buffer_use(operators: Sequence[Operator]) -> BufferColumns:
    """Columns of a sequence of operators, in its order."""
    uses = [operator.buffer for operator in operators]
    held = [(one.address, one.size, one.num_bytes, OPERANDS.index(one.operand)) for use in uses for one in use.held]
    return BufferColumns(
        held_starts=_starts([len(use.held) for use in uses]),
        held=np.array(held, np.int64).reshape(-1, 4),
        taken_starts=_starts([len(use.taken) for use in uses]),
        taken=np.array([span for use in uses for span in use.taken], np.int64).reshape(-1, 2),
        operand_bytes=np.array([(use.left_bytes, use.right_bytes) for use in uses], np.int64).reshape(-1, 2),
    )


def _starts(counts: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


VECTOR_KINDS = tuple(VectorKind)
"""Order of the columns of `CompiledOperators.vector_elements`."""
_OFF_CORE = (CoreType.NETWORK, CoreType.NONE)


@dataclass(frozen=True, slots=True)
class MatmulShapes:
    """Distinct matmuls as columns, each of shape (num_matmuls,); fields as of `Matmul`.

    ``left_elements`` are those in memory behind a left operand, m x k where it lies there as it is. ``left_scale`` and
    ``right_scale`` are bytes of the operands over those of k steps, where k counts what an array keeps of a sparse
    product (`estimate.analytic`); 1 of any other.
    """

    batch: Ints
    m: Ints
    n: Ints
    k: Ints
    left_elements: Ints
    left_overlap: Ints
    is_grouped: Ints
    left_scale: Floats
    right_scale: Floats

    @classmethod
    def of(cls, matmuls: Sequence[Matmul]) -> "MatmulShapes":
        """Columns of matmuls, in their order."""
        rows = [(x.batch, x.m, x.n, x.k, x.distinct_left, x.left_overlap, int(x.is_grouped)) for x in matmuls]
        table = np.array(rows, dtype=np.int64).reshape(-1, 7)
        counted = (each.name for each in fields(cls) if not each.name.endswith("_scale"))
        ones = np.ones(len(rows))
        columns = dict(zip(counted, np.ascontiguousarray(table.T), strict=True))
        return cls(**columns, left_scale=ones, right_scale=ones)

    def table(self) -> Floats:
        """One row a matmul, shape (num_matmuls, 9), in the order of the fields."""
        return np.stack([getattr(self, each.name) for each in fields(self)], axis=1).astype(np.float64)

    def __len__(self) -> int:
        """Number of distinct matmuls."""
        return len(self.batch)


@dataclass(frozen=True, slots=True)
class SparseMatmuls:
    """Distinct matmuls whose right operand is N:M sparse, in order; empty where none is.

    Attributes:
        index: into the matmuls.
        patterns: of each.
        may_spare: whether each operator (shape (num_operators,)) reads its weights from HBM alone.
    """

    index: Indices
    patterns: tuple[Pattern, ...]
    may_spare: Flags

    @classmethod
    def of(cls, operators: Sequence[Operator], matmuls: Sequence[Matmul]) -> "SparseMatmuls":
        """Those of some operators, and of their distinct matmuls."""
        found = [(place, each.pattern) for place, each in enumerate(matmuls) if each.pattern is not None]
        from_hbm = [not any(each.operand is Operand.RIGHT for each in one.buffer.held) for one in operators]
        return cls(
            np.array([place for place, _ in found], dtype=np.intp),
            tuple(pattern for _, pattern in found),
            np.array(from_hbm, dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True)
class CompiledOperators(Sequence[Operator]):
    """Operators ready for estimating, again and again; independent of constants, options and accelerators.

    Attributes:
        operators: the operators, in order (the columns of every estimate).
        shapes: their distinct matmuls.
        terms: for j = 0, 1 ...: (operators that have a j-th matmul, its index into ``shapes``).
        macs: multiply-accumulates of all steps, shape (num_operators,).
        vector_elements: elements by `VECTOR_KINDS`, shape (num_operators, num_kinds); 0 off the cores.
        traffic_bytes: compulsory HBM bytes, shape (num_operators,); 0 off the cores.
        tiled_elements: for MATMUL operators the operand elements, whose traffic is tiled; for RECURRENT those of all
            steps, right operands once; else 0.
        is_tiled, on_tc: flags, shape (num_operators,).
        is_grouped: whether its products are groups of a convolution, which may run on lanes; same shape.
        serial_steps: how often its matmuls are done, one after the other; same shape.
        state_elements: of the right operands of a recurrence, which every step reads; else 0; same shape.
        buffer: what the buffer may hold for them.
        sparse: which of the matmuls have N:M sparse weights.
        priced: their costs on configurations that they were asked of (`pricing.kept_prices`).
    """

    operators: tuple[Operator, ...]
    shapes: MatmulShapes
    terms: tuple[tuple[Indices, Indices], ...]
    macs: Floats
    vector_elements: Floats
    traffic_bytes: Floats
    tiled_elements: Floats
    is_tiled: Flags
    on_tc: Flags
    is_grouped: Flags
    serial_steps: Floats
    state_elements: Floats
    buffer: BufferColumns
    sparse: "SparseMatmuls"
    priced: dict[tuple[Hashable, bytes], Floats] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        """Number of operators."""
        return len(self.operators)

    @overload
    def __getitem__(self, index: int) -> Operator: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Operator, ...]: ...

    def __getitem__(self, index: int | slice) -> Operator | tuple[Operator, ...]:
        """Operators by position."""
        return self.operators[index]

    def add_up(self, per_matmul: Floats) -> Floats:
        """Sum over each operator's matmuls and steps: (rows, num_matmuls) to (rows, num_operators)."""
        total = np.zeros((per_matmul.shape[0], len(self)))
        for owners, matmuls in self.terms:
            total[:, owners] += per_matmul[:, matmuls]
        total *= self.serial_steps
        return total

    @property
    def state_reads(self) -> "StateReads":
        """What recurrences read in every step but the first."""
        return StateReads(self.state_elements, self.serial_steps - 1.0)


class StateReads(NamedTuple):
    """Per operator: elements of the right operands of a recurrence, and in how many steps these are read again."""

    elements: Floats
    times: Floats


class RowTables(NamedTuple):
    """Operators on distinct rows or buffers, and which row and buffer each accelerator has.

    ``passed_bytes`` are those that the buffer holds for an operator and no product of it counts; without rows where
    buffers hold nothing.
    """

    row_of: Ints
    buffer_of: Ints
    cycles: Floats
    one_core_cycles: Floats
    glb_bytes: Floats
    l2_bytes: Floats
    traffic_bytes: Floats
    passed_bytes: Floats


class OperatorColumns(NamedTuple):
    """Per operator: lane cycles, MACs, 1.0 where it occupies a tensor core, and compulsory bytes.

    Where some operator is a recurrence or has grouped products, and else without rows: lane cycles that its products
    would take (infinite where they may not run there), cycles that its steps take at least on lanes, and 1.0 where
    products and lanes wait for each other.
    """

    lane_cycles: Floats
    macs: Floats
    on_tc: Floats
    compulsory_bytes: Floats
    product_lane_cycles: Floats
    step_cycles: Floats
    is_serial: Floats


class Results(NamedTuple):
    """The four matrices of `Estimates`, written by `combine`."""

    one_core_s: Floats
    spread_s: Floats
    energy_j: Floats
    traffic_bytes: Floats


def compile_operators(operators: Sequence[Operator]) -> CompiledOperators:
    """Columns of a sequence of operators, in its order."""
    operators = tuple(operators)
    index_of: dict[Matmul, int] = {}
    terms: list[tuple[list[int], list[int]]] = []
    for column, operator in enumerate(operators):
        for position, matmul in enumerate(operator.matmuls):
            if position == len(terms):
                terms.append(([], []))
            terms[position][0].append(column)
            terms[position][1].append(index_of.setdefault(matmul, len(index_of)))
    tiled = np.array([operator.kind is OperatorKind.MATMUL for operator in operators], dtype=np.bool_)
    has_operands = tiled | np.array([operator.kind is OperatorKind.RECURRENT for operator in operators], dtype=np.bool_)
    elements = np.array([_operand_elements(operator) for operator in operators], dtype=np.float64)
    return CompiledOperators(
        operators=operators,
        shapes=MatmulShapes.of(tuple(index_of)),
        terms=tuple((np.array(owners, np.intp), np.array(matmuls, np.intp)) for owners, matmuls in terms),
        macs=np.array([operator.macs for operator in operators], dtype=np.float64),
        vector_elements=_vector_elements(operators),
        traffic_bytes=np.array([o.traffic_bytes * (o.core_type not in _OFF_CORE) for o in operators], dtype=np.float64),
        tiled_elements=np.where(has_operands, elements, 0.0),
        is_tiled=tiled,
        on_tc=np.array([o.core_type in (CoreType.TC, CoreType.TC_AND_VC) for o in operators], dtype=np.bool_),
        is_grouped=np.array([any(m.is_grouped for m in o.matmuls) for o in operators], dtype=np.bool_),
        serial_steps=np.array([o.serial_steps for o in operators], dtype=np.float64),
        state_elements=np.array([_state_elements(o) for o in operators], dtype=np.float64),
        buffer=compile_buffer_use(operators),
        sparse=SparseMatmuls.of(operators, tuple(index_of)),
    )


def is_on_core(compiled: CompiledOperators) -> Flags:
    """Which operators occupy a core, shape (num_operators,)."""
    return np.array([operator.core_type not in _OFF_CORE for operator in compiled.operators], dtype=np.bool_)


def num_starts(compiled: CompiledOperators) -> Floats:
    """How often each operator is started: once, a recurrence in every step, none off the cores."""
    return np.where(is_on_core(compiled), compiled.serial_steps, 0.0)


def _operand_elements(operator: Operator) -> int:
    """Elements of operands and results of all steps, right operands once."""
    again = (operator.serial_steps - 1) * sum(x.batch * (x.distinct_left + x.m * x.n) for x in operator.matmuls)
    return again + sum(matmul.operand_elements() for matmul in operator.matmuls)


def _state_elements(operator: Operator) -> int:
    """Elements of the right operands that every step of a recurrence reads."""
    if operator.kind is not OperatorKind.RECURRENT:
        return 0
    return sum(matmul.batch * matmul.k * matmul.n for matmul in operator.matmuls)


def _vector_elements(operators: tuple[Operator, ...]) -> Floats:
    """Elements of each kind of vector work, shape (num_operators, num_kinds)."""
    column_of = {kind: column for column, kind in enumerate(VECTOR_KINDS)}
    table = np.zeros((len(operators), len(VECTOR_KINDS)))
    for row, operator in enumerate(operators):
        for work in operator.vector_works if operator.core_type not in _OFF_CORE else ():
            table[row, column_of[work.kind]] += work.elements
    return table
