"""Matmuls on systolic arrays against measurements: rows as operators of the estimator of designed chips."""

from dataclasses import dataclass, field

from phaze_opt.estimate.machine import ACCUMULATOR_BYTES, Floats
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.protocol import Bound
from phaze_opt.estimate.systolic_machine import SystolicOperators, systolic_terms
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.device import ComputePath, element_bytes
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import Part
from phaze_opt.validation.operators.blocks import OperatorCase

_PARTS = (
    (Bound.LAUNCH, "launch"),
    (Bound.COMPUTE, "arrays, all units busy"),
    (Bound.FILL_AND_DRAIN, "filling and draining"),
    (Bound.EDGE_WASTE, "edges and idle arrays"),
    (Bound.GLB, "buffer beyond the arrays"),
    (Bound.HBM, "memory beyond the arrays"),
)


@dataclass(frozen=True, slots=True, eq=False)
class SystolicBlock:
    """Matmuls; ``sizes`` has a column each for batch, m, n and k."""

    case: OperatorCase
    sizes: Floats
    operators: SystolicOperators = field(init=False)

    def __post_init__(self) -> None:
        """Price what no constant changes."""
        path = self.case.path
        rows = [matmul_operator(Matmul(*map(int, size)), path) for size in self.sizes]
        object.__setattr__(self, "operators", SystolicOperators(compile_operators(rows), self.case.device, path))

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Times of the estimator."""
        terms = systolic_terms(self.case.device, fitted=fitted, setting=self.case.setting)
        return self.operators.seconds(terms)

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """The estimator's own parts."""
        terms = systolic_terms(self.case.device, fitted=fitted, setting=self.case.setting)
        parts = dict(self.operators.explain(terms)[index].parts_s)
        return tuple(Part(name, parts.get(cause, 0.0)) for cause, name in _PARTS)


def matmul_operator(matmul: Matmul, path: ComputePath) -> Operator:
    """One call: both operands read and the result written once; int8 operands give int32."""
    size = element_bytes(path)
    batch, m, n, k = matmul.batch, matmul.m, matmul.n, matmul.k
    result_bytes = ACCUMULATOR_BYTES if path is ComputePath.INT8 else size
    return Operator(
        "matmul",
        Phase.FORWARD,
        OperatorKind.MATMUL,
        CoreType.TC,
        (matmul,),
        bytes_read=float(size * batch * (m * k + k * n)),
        bytes_written=float(result_bytes * batch * m * n),
    )
