"""Activations of convolutional nets made of comparisons and products alone, beside `operations.RELU`.

Each is priced by its lane operations.
"""

from phaze_opt.graph.operations import Elementwise
from phaze_opt.graph.operator import VectorKind

RELU6 = Elementwise({VectorKind.ADD: 2}, {VectorKind.ADD: 2}, needs_input=True)
"""min(max(x, 0), 6): backward reads the input and compares it with both ends."""
HARD_SIGMOID = Elementwise({VectorKind.ADD: 4}, {VectorKind.ADD: 3}, needs_input=True)
"""relu6(x + 3) / 6: backward passes a sixth on between both ends."""
HARD_SWISH = Elementwise({VectorKind.ADD: 5}, {VectorKind.ADD: 5}, needs_input=True)
"""x relu6(x + 3) / 6: backward's slope is (2 x + 3) / 6 between both ends."""
