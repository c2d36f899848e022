"""Damage to models that stays in their formats: traced models whose digest is done anew, ONNX files that are parsed."""

import json
import random

from phaze_opt.graph.traced.traced_file import digest_of

SIZES = (0, 1, 2, 3, 7, 1 << 10, 1 << 20, 1 << 31, "b", "b^2", "b*s", "s", "b-1", "b*4096/3", "2*b+1")
VALUES = (0, 1, -1, 2, 3.5, True, False, None, "sum", 1 << 40, [1], [0, 1], [1, 1, 1, 1], [], "=b", "=b*s")
OPERATIONS = (
    *("aten.linear.default", "aten.matmul.default", "aten.bmm.default", "aten.add.Tensor", "aten.mul.Tensor"),
    *("aten.conv2d.default", "aten.embedding.default", "aten.cat.default", "aten.reshape.default", "aten.softmax.int"),
    *("aten.transpose.int", "aten.permute.default", "aten.expand.default", "aten.sum.dim_IntList", "aten.topk.default"),
    *("aten.lstm.input", "aten.einsum.default", "aten.slice.Tensor", "aten.select.int", "aten.split.Tensor"),
    *("aten.scaled_dot_product_attention.default", "phaze.attention.default", "phaze.mamba_mixer.default"),
    *("aten.layer_norm.default", "aten.batch_norm.default", "aten.dropout.default", "aten.max_pool2d.default"),
    *("aten.cross_entropy_loss.default", "aten.index_put.default", "aten.gather.default", "aten.unknown.default"),
)


def change_traced(data: bytes, rng: random.Random) -> bytes:
    """Change a few values of a traced model so that it stays one, and do its digest anew."""
    tree = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice((_size, _size, _operation, _argument, _argument, _source, _graph))(tree, rng)
    tree["digest"] = digest_of(tree)
    return json.dumps(tree).encode()


def _part(tree: dict, rng: random.Random) -> dict:
    """The whole, or a block of it."""
    return rng.choice([tree, *tree["blocks"]])


def _size(tree: dict, rng: random.Random) -> None:
    tensor = rng.choice(_part(tree, rng)["tensors"])
    kind = rng.randrange(4)
    if kind == 0 and tensor["shape"]:
        tensor["shape"][rng.randrange(len(tensor["shape"]))] = rng.choice(SIZES)
    elif kind == 1:
        tensor["shape"] = [*tensor["shape"], rng.choice(SIZES)][-16:]
    elif kind == 2:
        tensor["shape"] = tensor["shape"][1:]
    else:
        tensor["shape"] = rng.sample(tensor["shape"], len(tensor["shape"]))


def _node(tree: dict, rng: random.Random) -> dict:
    nodes = [each for part in (tree, *tree["blocks"]) for each in part["nodes"] if "op" in each]
    return rng.choice(nodes)


def _operation(tree: dict, rng: random.Random) -> None:
    _node(tree, rng)["op"] = rng.choice((*OPERATIONS, _node(tree, rng)["op"]))


def _argument(tree: dict, rng: random.Random) -> None:
    inputs = _node(tree, rng)["inputs"]
    kind = rng.randrange(5)
    if not inputs or kind == 0:
        inputs.append(rng.choice(VALUES))
    elif kind == 1:
        del inputs[rng.randrange(len(inputs))]
    elif kind == 2:
        rng.shuffle(inputs)
    else:
        inputs[rng.randrange(len(inputs))] = rng.choice(VALUES)


def _source(tree: dict, rng: random.Random) -> None:
    """Read another tensor, one that is there: a parameter or an input."""
    part = _part(tree, rng)
    nodes = [each for each in part["nodes"] if "op" in each and each["inputs"]]
    there = [f"%{each['id']}" for each in part["tensors"] if each.get("role") in ("parameter", "input", "constant")]
    if nodes and there:
        inputs = rng.choice(nodes)["inputs"]
        inputs[rng.randrange(len(inputs))] = rng.choice(there)


def _graph(tree: dict, rng: random.Random) -> None:
    """Change what joins the parts."""
    kind = rng.randrange(6)
    repeats = [each for each in tree["nodes"] if "repeat" in each]
    if kind == 0 and repeats:
        rng.choice(repeats)["count"] = rng.choice((1, 2, 3, 100, 400))
    elif kind == 1:
        tree["symbols"] = {name: rng.choice((1, 2, 64, 1 << 20)) for name in tree["symbols"]}
    elif kind == 2:
        tree["num_positions"] = rng.choice((1, 2, 4096, 1 << 30))
    elif kind == 3:
        rng.choice(_part(tree, rng)["tensors"])["role"] = rng.choice(("parameter", "buffer", "input", "constant"))
    elif kind == 4:
        rng.choice(_part(tree, rng)["tensors"])["dtype"] = rng.choice(("int64", "bool", "complex64", "float8"))
    else:
        ready = [each["outputs"][0] for each in tree["nodes"] if each["outputs"]]
        tree["loss"] = rng.choice(ready)
        tree["outputs"] = [tree["loss"]]


def change_onnx(data: bytes, rng: random.Random) -> bytes:
    """Change a few fields of an ONNX file that is parsed as before."""
    import onnx

    model = onnx.load_model_from_string(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        change_field(model, rng)
    content: bytes = model.SerializeToString()
    return content


def change_field(model: object, rng: random.Random) -> object:
    """A model that is well formed and says something odd."""
    odd = rng.choice((0, -1, 1, 2, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)))
    graph = rng.choice([model.graph, *model.functions])
    node, weight = rng.choice(graph.node), rng.choice(model.graph.initializer)
    kind = rng.randrange(9)
    if kind == 0 and weight.dims:
        weight.dims[rng.randrange(len(weight.dims))] = odd
    elif kind == 1:
        weight.data_type = rng.randrange(40)
    elif kind == 2 and node.attribute:
        attribute = rng.choice(node.attribute)
        attribute.i = odd
        attribute.ints[:] = [odd] * len(attribute.ints)
    elif kind == 3:
        node.op_type = rng.choice(
            [each.op_type for each in graph.node] + ["Reshape", "Slice", "Div", "LSTM", "If", "Foo"]
        )
    elif kind == 4 and node.input:
        names = [name for each in graph.node for name in (*each.input, *each.output)]
        node.input[rng.randrange(len(node.input))] = rng.choice(["", *names])
    elif kind == 5 and node.output:
        node.output[0] = rng.choice(["", "x", rng.choice(graph.node).output[0]])
    elif kind == 6:
        del node.attribute[:]
    elif kind == 7 and model.graph.input:
        axes = rng.choice(model.graph.input).type.tensor_type.shape.dim
        if axes:
            rng.choice(axes).dim_value = odd
    else:
        graph.node.extend([node])
    return model
