"""ONNX models made by hand, without weights' values: what exporters write, in small."""

from onnx import TensorProto, helper


def _weight(name, *dims):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    size = 4
    for each in dims:
        size *= each
    tensor.raw_data = bytes(size)
    return tensor


def small_cnn(*, has_norms=True, batch=1):
    """Two convolutions, one of them grouped, with batch norms and a classifier of ten."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c1", "g1", "b1", "m1", "v1"], ["n1"], "norm1"),
        helper.make_node("Relu", ["n1" if has_norms else "c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "d2"], ["c2"], "conv2", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8),
        helper.make_node("Add", ["c2", "r1"], ["a2"], "add2"),
        helper.make_node("GlobalAveragePool", ["a2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "d3"], ["y"], "fc", transB=1),
    ]
    if not has_norms:
        del nodes[1]
    norms = [_weight(name, 8) for name in ("g1", "b1", "m1", "v1")] if has_norms else []
    weights = [_weight("w1", 8, 3, 3, 3), *norms, _weight("w2", 8, 1, 3, 3), _weight("d2", 8)]
    weights += [_weight("w3", 10, 8), _weight("d3", 10)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "small-cnn", [x], [y], weights)
    return helper.make_model(graph, producer_name="by-hand", opset_imports=[helper.make_opsetid("", 17)])
