"""Recorded graphs made by hand: chains of layers in which one thing at a time may differ."""

from phaze_opt.extract.recorded_graph import RecordedGraph, RecordedTensor
from phaze_opt.graph.traced.traced_model import TensorRef, TracedDtype, TracedNode, TracedRole

WIDTH = 8


def tensor(name, *shape, role=TracedRole.ACTIVATION, fqn="", dtype=TracedDtype.FLOAT32):
    return RecordedTensor(name, shape, dtype, role, fqn)


def node(op, *inputs, out, module=""):
    arguments = tuple(TensorRef(each[1:]) if isinstance(each, str) and each[:1] == "%" else each for each in inputs)
    return TracedNode(op, arguments, (out,), (), module)


def graph(tensors, nodes, *outputs):
    return RecordedGraph({each.id: each for each in tensors}, tuple(nodes), outputs)


def chain(*, batch, num_layers, odd="", reads_all=False):
    """Layers of a product and an activation with a residual, then a loss.

    Args:
        batch: rows.
        num_layers: layers of ``layers``.
        odd: index of the layer that differs.
        reads_all: whether the last operation also reads what the first layer gives.
    """
    tensors = [tensor("x0", batch, WIDTH, role=TracedRole.INPUT)]
    nodes = []
    for index in range(num_layers):
        path = f"layers.{index}"
        tensors += [
            tensor(f"w{index}", WIDTH, WIDTH, role=TracedRole.PARAMETER, fqn=f"{path}.fc.weight"),
            *(tensor(f"{kind}{index}", batch, WIDTH) for kind in "uvz"),
            tensor(f"x{index + 1}", batch, WIDTH),
        ]
        kind = "aten.silu.default" if str(index) == odd else "aten.gelu.default"
        nodes += [
            node("aten.linear.default", f"%x{index}", f"%w{index}", out=f"u{index}", module=f"{path}.fc"),
            node(kind, f"%u{index}", out=f"v{index}", module=path),
            node("aten.mul.Tensor", f"%v{index}", 0.5, out=f"z{index}", module=path),
            node("aten.add.Tensor", f"%z{index}", f"%x{index}", out=f"x{index + 1}", module=path),
        ]
    tensors += [tensor("end", batch, WIDTH), tensor("loss")]
    other = "%x1" if reads_all else f"%x{num_layers}"
    nodes.append(node("aten.add.Tensor", f"%x{num_layers}", other, out="end"))
    nodes.append(node("aten.mse_loss.default", "%end", "%x0", out="loss"))
    return graph(tensors, nodes, "loss")
