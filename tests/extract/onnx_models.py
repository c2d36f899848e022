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


TOKENS, HEADS, CHANNELS, STATES = 5, 4, 16, 8


def small_encoder(*, batch="N", directions=1):
    """Attention, a gated MLP as a function of the file, an LSTM and an Einsum; at a number its views hold it."""
    size = CHANNELS // HEADS
    functions = [
        helper.make_function(
            "own",
            "gated",
            ["x", "gate", "up", "down"],
            ["y"],
            [
                helper.make_node("MatMul", ["x", "gate"], ["g"]),
                helper.make_node("Sigmoid", ["g"], ["s"]),
                helper.make_node("MatMul", ["x", "up"], ["u"]),
                helper.make_node("Mul", ["s", "u"], ["m"]),
                helper.make_node("MatMul", ["m", "down"], ["y"]),
            ],
            [helper.make_opsetid("", 17)],
        )
    ]
    nodes = [helper.make_node("MatMul", ["x", f"w{name}"], [name], name) for name in "qkv"]
    held = []
    for name, sizes in (("heads", (TOKENS, HEADS, size)), ("rows", (TOKENS, CHANNELS))):
        if isinstance(batch, int):
            held.append(helper.make_tensor(name, TensorProto.INT64, [len(sizes) + 1], [batch, *sizes]))
            continue
        # As exporters compute it: an element of the shape, halved and doubled, beside what is known.
        held.append(helper.make_tensor(f"{name}_rest", TensorProto.INT64, [len(sizes)], sizes))
        nodes += [
            helper.make_node("Shape", ["x"], [f"{name}_shape"]),
            helper.make_node("Slice", [f"{name}_shape", "zero", "one"], [f"{name}_first"]),
            helper.make_node("Mul", [f"{name}_first", "two"], [f"{name}_twice"]),
            helper.make_node("Div", [f"{name}_twice", "two"], [f"{name}_batch"]),
            helper.make_node("Concat", [f"{name}_batch", f"{name}_rest"], [name], axis=0),
        ]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("Reshape", [name, "heads"], [f"{name}_heads"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_heads"], [f"{name}_by_head"], perm=order))
    weights = [_weight(f"w{name}", CHANNELS, CHANNELS) for name in "qkv"]
    weights += [_weight("gate", CHANNELS, 32), _weight("up", CHANNELS, 32), _weight("down", 32, CHANNELS)]
    ways = {1: "forward", 2: "bidirectional"}[directions]
    nodes += [
        helper.make_node("MatMul", ["q_by_head", "k_by_head"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v_by_head"], ["context"]),
        helper.make_node("Transpose", ["context"], ["by_token"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["by_token", "rows"], ["attended"]),
        helper.make_node("Add", ["attended", "x"], ["sum"]),
        helper.make_node("gated", ["sum", "gate", "up", "down"], ["mlp"], domain="own"),
        helper.make_node("Transpose", ["mlp"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "lw", "lr", "lb"], ["states"], hidden_size=STATES, direction=ways),
        helper.make_node("Transpose", ["states"], ["by_way"], perm=[2, 0, 1, 3]),
        helper.make_node("Einsum", ["by_way", "out"], ["y"], equation="bswh,hc->bswc"),
    ]
    weights += [_weight("lw", directions, 4 * STATES, CHANNELS), _weight("lr", directions, 4 * STATES, STATES)]
    weights += [_weight("lb", directions, 8 * STATES), _weight("out", STATES, 3), *held]
    weights += [helper.make_tensor(name, TensorProto.INT64, [1], [each]) for name, each in _NUMBERS.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, TOKENS, CHANNELS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "small-encoder", [x], [y], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions)


_NUMBERS = {"zero": 0, "one": 1, "two": 2}


def doubling(levels):
    """Functions that call the one before twice: 2 to the levels operators in place; fewer than none call themselves."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for level in range(abs(levels) + 1):
        kind, domain = ("Relu", "") if level == 0 and levels > 0 else (f"f{max(level - 1, 0)}", "own")
        calls = [
            helper.make_node(kind, ["x"], ["t"], domain=domain),
            helper.make_node(kind, ["t"], ["y"], domain=domain),
        ]
        functions.append(helper.make_function("own", f"f{level}", ["x"], ["y"], calls, imports))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node(f"f{abs(levels)}", ["a"], ["y"], domain="own"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in "xy")
    graph = helper.make_graph(nodes, "doubling", [x], [y], [_weight("w", 8, 8)])
    return helper.make_model(graph, opset_imports=imports, functions=functions)
