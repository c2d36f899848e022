"""What costs nothing is taken out of a recorded graph, and nothing else."""

import pytest
from recorded_models import graph, node, tensor

from phaze_opt.extract.recorded_graph import simplify
from phaze_opt.graph.traced.traced_model import TracedDtype, TracedRole

INPUT = tensor("x", 4, 8, role=TracedRole.INPUT)
WEIGHT = tensor("w", 8, 8, role=TracedRole.PARAMETER, fqn="w")


def of(*nodes, tensors=(), ends=("y",)):
    return simplify(graph([INPUT, WEIGHT, *tensors], nodes, *ends))


@pytest.mark.parametrize(
    ("op", "more"),
    [
        ("aten.alias.default", ()),
        ("aten.contiguous.default", ()),
        ("aten.to.dtype", ("float32",)),
        ("aten.expand.default", ((4, 8),)),
        ("aten.dropout.default", (0.0, True)),
        ("aten.dropout.default", (0.5, False)),
    ],
)
def test_who_reads_a_copy_reads_what_was_copied(op, more):
    nodes = [node(op, "%x", *more, out="c"), node("aten.linear.default", "%c", "%w", out="y")]
    found = of(*nodes, tensors=[tensor("c", 4, 8), tensor("y", 4, 8)])
    assert [each.op for each in found.nodes] == ["aten.linear.default"]
    assert next(found.nodes[0].tensor_ids()) == "x"
    assert "c" not in found.tensors


@pytest.mark.parametrize(
    ("op", "more", "result"),
    [
        ("aten.to.dtype", ("float16",), tensor("c", 4, 8, dtype=TracedDtype.FLOAT16)),
        ("aten.expand.default", ((2, 4, 8),), tensor("c", 2, 4, 8)),
        ("aten.dropout.default", (0.1, True), tensor("c", 4, 8)),
    ],
)
def test_what_changes_a_tensor_stays(op, more, result):
    nodes = [node(op, "%x", *more, out="c"), node("aten.relu.default", "%c", out="y")]
    found = of(*nodes, tensors=[result, tensor("y", 4, 8)])
    assert [each.op for each in found.nodes] == [op, "aten.relu.default"]


def test_what_depends_on_nothing_is_a_constant():
    nodes = [
        node("aten.arange.default", 4, out="a"),
        node("aten.zeros_like.default", "%x", out="z"),
        node("aten.cos.default", "%a", out="c"),
        node("aten.mul.Tensor", "%x", "%c", out="p"),
        node("aten.add.Tensor", "%p", "%z", out="y"),
    ]
    made = [tensor(name, 4, 8) for name in ("z", "c", "p", "y")]
    found = of(*nodes, tensors=[tensor("a", 4), *made])
    assert [each.op for each in found.nodes] == ["aten.mul.Tensor", "aten.add.Tensor"]
    roles = {name: each.role for name, each in found.tensors.items()}
    assert roles["c"] == roles["z"] == TracedRole.CONSTANT
    assert "a" not in roles


def test_what_no_output_needs_is_dropped_but_parameters_are_listed():
    nodes = [node("aten.linear.default", "%x", "%w", out="dead"), node("aten.relu.default", "%x", out="y")]
    found = of(*nodes, tensors=[tensor("dead", 4, 8), tensor("y", 4, 8)])
    assert [each.op for each in found.nodes] == ["aten.relu.default"]
    assert set(found.tensors) == {"x", "w", "y"}
