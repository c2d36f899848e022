"""Activations made of comparisons and products alone: work and what backward reads, as `Elementwise` rules.

Each is priced by its lane operations; `operations.RELU` of transformer blocks takes the cycles of a smooth activation.
"""

from phaze_opt.graph.operations import Elementwise
from phaze_opt.graph.operator import VectorKind

PLAIN_RELU = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1}, needs_output=True)
"""max(x, 0): backward masks by the output, which the next product keeps too."""
RELU6 = Elementwise({VectorKind.ADD: 2}, {VectorKind.ADD: 2}, needs_input=True)
"""min(max(x, 0), 6): backward reads the input and compares it with both ends."""
HARD_SIGMOID = Elementwise({VectorKind.ADD: 4}, {VectorKind.ADD: 3}, needs_input=True)
"""relu6(x + 3) / 6: backward passes a sixth on between both ends."""
HARD_SWISH = Elementwise({VectorKind.ADD: 5}, {VectorKind.ADD: 5}, needs_input=True)
"""x relu6(x + 3) / 6: backward's slope is (2 x + 3) / 6 between both ends."""
