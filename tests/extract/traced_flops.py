"""Floating-point operations of the products of a traced model, counted from its shapes alone."""

from math import prod

from phaze_opt.graph.traced.flat_graph import flatten
from phaze_opt.graph.traced.traced_model import TensorRef


def forward_flops(model, values):
    """Of linear layers, matrix products, convolutions and attention, at values of the symbols."""
    flat = flatten(model)

    def shape(argument):
        return tuple(size.evaluate(values) for size in flat.tensors[argument.id].shape)

    total = 0
    for node in flat.nodes:
        name = node.op.split(".")[1]
        inputs = [each for each in node.inputs if isinstance(each, TensorRef)]
        result = prod(size.evaluate(values) for size in flat.tensors[node.outputs[0]].shape)
        if name in ("linear", "matmul", "mm", "bmm", "_grouped_mm", "grouped_mm_fallback"):
            total += 2 * result * shape(inputs[0])[-1]
        elif name in ("addmm", "baddbmm"):
            total += 2 * result * shape(inputs[1])[-1]
        elif name in ("conv1d", "conv2d"):
            total += 2 * result * prod(shape(inputs[1])[1:])
        elif name in ("scaled_dot_product_attention", "attention"):
            query, key, value = (shape(each) for each in inputs[:3])
            total += 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    return total
