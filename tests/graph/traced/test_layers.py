"""Layers of traced models as people count them: blocks, of stages that are lists of blocks those."""

import pytest

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layers import count_blocks
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import TensorRef, TracedDtype, TracedNode, TracedRole, TracedTensor


def chain(*products):
    """A graph of linear layers in a row, each given by its module and its width."""
    tensors, nodes, last = {}, [], "x"
    tensors["x"] = TracedTensor("x", (Polynomial.constant(4),), TracedDtype.FLOAT32, TracedRole.INPUT)
    for number, (module, width) in enumerate(products):
        name = f"y{number}"
        tensors[name] = TracedTensor(name, (Polynomial.constant(width),), TracedDtype.FLOAT32, TracedRole.ACTIVATION)
        nodes.append(TracedNode("aten.linear", (TensorRef(last),), (name,), module=module))
        last = name
    return FlatGraph(nodes=tuple(nodes), tensors=tensors, ends=(last,), parameter_of={})


def stage(path, width, *, depth, products=("up", "down")):
    return [(f"{path}.{block}.{product}", width) for block in range(depth) for product in products]


@pytest.mark.parametrize(
    ("products", "count"),
    [
        (stage("layers", 8, depth=5), 5),
        # Stages of growing width, with a product between them: a Swin, a ConvNeXt.
        ([*stage("stages.0.blocks", 8, depth=2), ("stages.0.down", 8), *stage("stages.1.blocks", 16, depth=3)], 5),
        # Blocks that are alike and are lists of parts that have several products: a T5.
        ([*stage("block.0.layer", 8, depth=2), *stage("block.1.layer", 8, depth=2)], 2),
        # Blocks of growing width that are lists of single products: a MobileNet.
        (
            [
                *stage("features.0.conv", 8, depth=3, products=("0",)),
                *stage("features.1.conv", 16, depth=3, products=("0",)),
            ],
            2,
        ),
        ([("encoder.up", 8), ("encoder.down", 8)], 0),
    ],
)
def test_blocks_are_counted_and_stages_and_parts_are_not(products, count):
    assert count_blocks(chain(*products)) == count
