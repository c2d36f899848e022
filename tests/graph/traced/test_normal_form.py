"""What frameworks and models write differently comes into one form; small graphs, written by hand."""

from dataclasses import replace

import pytest

from phaze_opt.errors import InputError
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.program import TensorRole
from phaze_opt.graph.traced.flat_graph import flatten
from phaze_opt.graph.traced.folding import fold_layers
from phaze_opt.graph.traced.layered_model import normalised
from phaze_opt.graph.traced.polynomial import parse_polynomial
from phaze_opt.graph.traced.traced_file import traced_model_text
from phaze_opt.graph.traced.traced_model import (
    TensorRef,
    TracedBody,
    TracedDtype,
    TracedModel,
    TracedNode,
    TracedRepeat,
    TracedRole,
    TracedTensor,
)
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.workload.training import TrainingSpec

ROLES = {"w": TracedRole.PARAMETER, "c": TracedRole.CONSTANT, "in": TracedRole.INPUT}


def tensors(shapes):
    """Tensors by ``name``; one that begins with w is a parameter, with c a constant, with in an input."""
    for name, shape in shapes.items():
        role = next((role for start, role in ROLES.items() if name.startswith(start)), TracedRole.ACTIVATION)
        dtype = TracedDtype.INT64 if name.startswith("in_ids") else TracedDtype.FLOAT32
        sizes = tuple(parse_polynomial(str(size)) for size in shape)
        yield TracedTensor(name, sizes, dtype, role)


def value(argument):
    if isinstance(argument, str) and argument.startswith("%"):
        return TensorRef(argument[1:])
    return tuple(map(value, argument)) if isinstance(argument, tuple) else argument


def operations(*steps):
    """Operations, as (outputs, operation, arguments ...); outputs are one name, or several with commas."""
    return tuple(
        TracedNode(f"aten.{op}.default", tuple(map(value, arguments)), tuple(names.split(",")))
        for names, op, *arguments in steps
    )


def model(shapes, steps, end):
    return TracedModel("m", {}, {"b": 1, "s": 8}, tuple(tensors(shapes)), operations(*steps), (end,))


def forms(shapes, steps, end):
    """Operations of the normal form."""
    nodes = normalised(flatten(model({"in_x": ("b", "s", 16), **shapes}, steps, end))).nodes
    return [node.op for node in nodes if node.op != "aten.view"]


X = ("b", "s", 16)
ROW = ("b", "s", 1)
LINEAR = (("x", "linear", "%in_x", "%w_in"),)
SHAPES = {"w_in": (16, 16), "x": X}


def test_a_norm_of_eight_operations_is_one_and_takes_its_weight():
    shapes = (
        SHAPES
        | {name: X for name in ("cast", "sq", "xn", "back", "y")}
        | {"mean": ROW, "eps": ROW, "r": ROW, "w_n": (16,)}
    )
    steps = [
        *LINEAR,
        ("cast", "to", "%x", "float32"),
        ("sq", "pow", "%cast", 2),
        ("mean", "mean", "%sq", (-1,), True),
        ("eps", "add", "%mean", 1e-6),
        ("r", "rsqrt", "%eps"),
        ("xn", "mul", "%cast", "%r"),
        ("back", "to", "%xn", "float32"),
        ("y", "mul", "%w_n", "%back"),
    ]
    assert forms(shapes, steps, "y") == ["aten.linear", "phaze.norm"]


def test_a_gelu_written_out_is_one_activation():
    shapes = SHAPES | {name: X for name in ("p", "k", "a", "m", "t", "u", "h", "y")}
    steps = [
        *LINEAR,
        ("p", "pow", "%x", 3.0),
        ("k", "mul", "%p", 0.044715),
        ("a", "add", "%x", "%k"),
        ("m", "mul", "%a", 0.79788),
        ("t", "tanh", "%m"),
        ("u", "add", "%t", 1.0),
        ("h", "mul", "%x", 0.5),
        ("y", "mul", "%h", "%u"),
    ]
    assert forms(shapes, steps, "y") == ["aten.linear", "phaze.activation"]


@pytest.mark.parametrize("is_interleaved", [False, True])
def test_rotations_of_both_kinds_are_one_operation(is_interleaved):
    half = ("b", "s", 8)
    shapes = SHAPES | {"one": half, "two": half, "neg": half, "turned": X, "c_cos": ("s", 16), "c_sin": ("s", 16)}
    shapes |= {name: X for name in ("p", "q", "y")}
    ends = ((0, 2**40, 2), (1, 2**40, 2)) if is_interleaved else ((0, 8, 1), (8, 2**40, 1))
    joined = ("turned", "stack" if is_interleaved else "cat", ("%neg", "%one"), -1)
    steps = [
        *LINEAR,
        ("p", "mul", "%x", "%c_cos"),
        ("one", "slice", "%x", 2, *ends[0]),
        ("two", "slice", "%x", 2, *ends[1]),
        ("neg", "neg", "%two"),
        joined,
        ("q", "mul", "%turned", "%c_sin"),
        ("y", "add", "%p", "%q"),
    ]
    assert forms(shapes, steps, "y") == ["aten.linear", "phaze.rotary"]


def test_a_gate_of_two_products_and_of_two_halves():
    shapes = SHAPES | {"w_up": (16, 16), "up": X, "act": X, "y": X}
    steps = [*LINEAR, ("up", "linear", "%in_x", "%w_up"), ("act", "silu", "%x"), ("y", "mul", "%act", "%up")]
    assert forms(shapes, steps, "y") == ["aten.linear", "aten.linear", "phaze.gate"]
    half = ("b", "s", 8)
    halves = [*LINEAR, ("one,two", "chunk", "%x", 2, -1), ("act", "silu", "%one"), ("y", "mul", "%act", "%two")]
    assert forms(SHAPES | {name: half for name in ("one", "two", "act", "y")}, halves, "y") == [
        "aten.linear",
        "phaze.gate",
    ]


def test_attention_written_out_is_one_operation_of_query_key_value_and_bias():
    heads, keys, scores = ("b", 2, "s", 8), ("b", 2, 8, "s"), ("b", 2, "s", "s")
    shapes = SHAPES | {"w_k": (16, 16), "k": X, "w_bias": (1, 2, 8, 8), "y": heads}
    shapes |= {"q4": heads, "k4": heads, "v4": heads, "qs": heads, "kt": keys}
    shapes |= {name: scores for name in ("dot", "masked", "biased", "p", "dropped")} | {"c_mask": (1, 1, "s", "s")}
    steps = [
        *LINEAR,
        ("k", "linear", "%in_x", "%w_k"),
        ("q4", "view", "%x", (1, 2, 8, 8)),
        ("k4", "view", "%k", (1, 2, 8, 8)),
        ("v4", "view", "%x", (1, 2, 8, 8)),
        ("qs", "mul", "%q4", 0.35),
        ("kt", "transpose", "%k4", 2, 3),
        ("dot", "matmul", "%qs", "%kt"),
        ("masked", "add", "%dot", "%c_mask"),
        ("biased", "add", "%masked", "%w_bias"),
        ("p", "softmax", "%biased", -1),
        ("dropped", "dropout", "%p", 0.1, True),
        ("y", "matmul", "%dropped", "%v4"),
    ]
    graph = normalised(flatten(model({"in_x": X, **shapes}, steps, "y")))
    attention = graph.nodes[-1]
    assert attention.op == "phaze.attention"
    assert dict(attention.attrs) == {"dropout": True}
    assert [graph.role(each.id) for each in attention.inputs] == [TracedRole.ACTIVATION] * 3 + [TracedRole.PARAMETER]
    assert "aten.mul" not in [node.op for node in graph.nodes]


def test_what_depends_on_nothing_is_dropped_and_views_of_parameters_are_none():
    shapes = SHAPES | {
        "c_ids": ("s",),
        "mask": ("s",),
        "w_p": (64, 16),
        "rows": ("s", 16),
        "y": X,
        "z": X,
        "in_ids": ("b", "s"),
    }
    steps = [
        ("mask", "cumsum", "%c_ids", 0),
        ("rows", "embedding", "%w_p", "%mask"),
        *LINEAR,
        ("y", "add", "%x", "%rows"),
        ("z", "dropout", "%y", 0.0, True),
    ]
    assert forms(shapes, steps, "z") == ["aten.linear", "aten.add"]


def test_slices_that_cover_a_tensor_are_a_split_others_are_parts():
    half, first = ("b", "s", 8), ("b", 1, 16)
    shapes = SHAPES | {"one": half, "two": half, "y": half}
    steps = [*LINEAR, ("one", "slice", "%x", 2, 0, 8), ("two", "slice", "%x", 2, 8, 16), ("y", "mul", "%one", "%two")]
    assert "phaze.gate" in forms(shapes, steps, "y")
    kept = [*steps[:3], ("y", "linear", "%one", "%w_8"), ("z", "linear", "%two", "%w_9"), ("t", "add", "%y", "%z")]
    wide = shapes | {"w_8": (8, 8), "w_9": (8, 8), "z": half, "t": half}
    assert "phaze.split" in forms(wide, kept, "t")
    assert forms(SHAPES | {"one": first}, [*LINEAR, ("one", "slice", "%x", 1, 0, 1)], "one")[-1] == "phaze.part"


@pytest.mark.parametrize(
    ("last", "form"),
    [(("y", "mul", "%h", "%x"), "product"), (("y", "abs", "%h"), "rectifier"), (("y", "mul", "%h", 2.0), "scale")],
)
def test_what_multiplies_what_varies_is_no_scale(last, form):
    steps = [*LINEAR, ("h", "mul", "%x", 0.5), last]
    assert forms(SHAPES | {"h": X, "y": X}, steps, "y") == ["aten.linear", f"phaze.{form}"]


def written(shapes, steps, **changes):
    """A workload whose last step is its loss."""
    made = model({"in_x": ("b", 16), "in_y": ("b", 16), "l": (), **shapes}, steps, "l")
    return TracedWorkload("m", traced_model_text(replace(made, symbols={"b": 2}, loss="l", **changes)))


def recorded(workload):
    training = TrainingSpec(2, workload.own_sequence_length, 2)
    return workload.record_layers(training, tensor_parallel=1, options=ShardingOptions())


LOSS = ("l", "mse_loss", "%y", "%in_y")


def test_a_constant_operand_has_no_gradient():
    shapes = {"w_in": (16, 16), "x": ("b", 16), "c_m": (16, 16), "y": ("b", 16)}
    workload = written(shapes, [*LINEAR, ("y", "mm", "%x", "%c_m"), LOSS])
    results = [each for layer in recorded(workload) for node in layer.nodes for each in node.outputs]
    assert workload.num_parameters == 256
    assert [each.elements for each in results if each.role is TensorRole.WEIGHT_GRADIENT] == [256]


@pytest.mark.parametrize(
    ("shapes", "step", "words"),
    [
        ({"w_in": (16,), "y": ("b", 8)}, ("y", "layer_norm", "%in_x", (16,), "%w_in"), "where the file has 16"),
        ({"w_in": (16, 3, 4), "y": ("b", 9)}, ("y", "conv1d", "%in_x", "%w_in"), "a number for each axis"),
        ({"w_in": ("b", 16), "y": ("b", 16)}, ("y", "mul", "%in_x", "%w_in"), "sizes are numbers"),
        ({"w_in": (64, 16), "y": ("b", 16)}, ("y", "lstm", "%in_x", (), ("%w_in",), True, 2), "where 1 weights"),
    ],
)
def test_sizes_that_no_operation_gives_are_refused(shapes, step, words):
    with pytest.raises(InputError, match=words):
        recorded(written(shapes, [step, LOSS]))


def test_experts_of_a_token_of_fixed_sizes_are_those_of_a_token():
    """Two samples of four positions, each sent to two of eight experts: sixteen rows."""
    shapes = {"in_x": ("b*8", 16), "in_y": ("b*8", 16), "w_in": (16, 16), "x": ("b*8", 16), "w_e": (8, 16, 16)}
    steps = [*LINEAR, ("y", "_grouped_mm", "%x", "%w_e"), LOSS]
    workload = written(shapes | {"y": ("b*8", 16)}, steps, num_positions=4)
    assert (workload.num_experts, workload.num_active_experts) == (8, 2)


def test_a_residual_is_no_region():
    shapes = SHAPES | {"w_2": (16, 16), "more": X, "y": X, "z": X}
    steps = [*LINEAR, ("more", "linear", "%x", "%w_2"), ("y", "add", "%x", "%more"), ("z", "relu", "%y")]
    assert forms(shapes, steps, "z") == ["aten.linear", "aten.linear", "aten.add", "aten.relu"]


def repeated(count):
    """A table, blocks of a product and a residual, and a product."""
    inner = {"in_y": X, "w_block": (16, 16), "p": X, "a": X, "y": X}
    body = TracedBody(
        "block",
        ("in_y",),
        ("y",),
        tuple(tensors(inner)),
        operations(("p", "linear", "%in_y", "%w_block"), ("a", "gelu", "%p"), ("y", "add", "%a", "%in_y")),
    )
    shapes = {"in_ids": ("b", "s"), "w_table": (64, 16), "x": X, "last": X, "w_out": (64, 16), "logits": ("b", "s", 64)}
    first = operations(("x", "embedding", "%w_table", "%in_ids"))
    last = operations(("logits", "linear", "%last", "%w_out"))
    repeat = TracedRepeat("block", count, ("x",), ("last",), ((0, 0),))
    made = replace(model(shapes, (), "logits"), steps=(*first, repeat, *last), bodies=(body,))
    return TracedWorkload("m", traced_model_text(made))


@pytest.mark.parametrize("count", [2, 5, 300])
def test_repeats_are_layers_and_their_parameters_are_counted(count):
    workload = repeated(count)
    assert workload.num_parameters == 2 * 64 * 16 + count * 256
    assert workload.cut.chain == (0, *(1,) * count, 2)
    assert workload.num_units == count


def test_repeats_are_what_is_written_out():
    folded = fold_layers(normalised(flatten(repeated(3).layered.model)))
    assert [len(layer.nodes) for layer in folded.layers] == [1, 3, 1]
    assert [(len(layer.inputs), len(layer.outputs)) for layer in folded.layers] == [(0, 1), (1, 1), (1, 1)]


def test_what_layers_share_is_held_once():
    """An encoder and a decoder read one table in front; three blocks share a product, two layers behind another.

    The first layer holds the blocks' product for them.
    """
    names = ("x", "a", "e", "f", "u1", "v1", "u2", "v2", "u3", "v3", "h1", "h2", "o1", "o2")
    shapes = {"in_ids": ("b", "s"), "in_ids2": ("b", "s"), "logits": ("b", "s", 64), "w_table": (64, 16)}
    shapes |= {name: X for name in names} | {name: (16, 16) for name in ("w_a", "w_unit", "w_back")}
    blocks = [
        step
        for number, taken in enumerate(("f", "v1", "v2"), 1)
        for step in ((f"u{number}", "linear", f"%{taken}", "%w_unit"), (f"v{number}", "gelu", f"%u{number}"))
    ]
    steps = [
        ("x", "embedding", "%w_table", "%in_ids"),
        ("a", "linear", "%x", "%w_a"),
        ("e", "embedding", "%w_table", "%in_ids2"),
        ("f", "add", "%a", "%e"),
        *blocks,
        ("h1", "linear", "%v3", "%w_back"),
        ("o1", "tanh", "%h1"),
        ("h2", "linear", "%o1", "%w_back"),
        ("o2", "silu", "%h2"),
        ("logits", "linear", "%o2", "%w_table"),
    ]
    workload = TracedWorkload("m", traced_model_text(model(shapes, steps, "logits")))
    layers = build_model_graph(workload, TrainingSpec(1, 8, 1), tensor_parallel=1).parts
    front, unit, back = (sum(layer.num_parameters for layer in part.layers) for part in layers)
    assert (front, unit, back) == (64 * 16 + 256 + 256, 0, 256 + 64 * 16)
    assert front + back - 64 * 16 == workload.num_parameters == 1792
    assert [part.num_tied_parameters for part in layers] == [0, 0, 64 * 16]
    assert workload.num_units == 3
    assert "share 256 parameters" in workload.notes[0]
    assert repeated(3).notes == ()


def test_a_model_of_nothing_is_refused():
    with pytest.raises(InputError, match="no operation"):
        normalised(flatten(model({"in_x": X, "y": X}, [("y", "relu", "%in_x")], "in_x")))


def test_times_one_and_tensors_brought_to_the_shape_they_have_are_nothing():
    shapes = SHAPES | {"one": X, "p": X, "q": X, "y": X}
    steps = [*LINEAR, ("one", "mul", "%x", 1.0), ("p,q", "broadcast_tensors", ("%one", "%x")), ("y", "relu", "%p")]
    assert forms(shapes, steps, "y") == ["aten.linear", "aten.relu"]


def test_a_bias_of_each_expert_is_the_bias_of_their_product():
    """It is gathered for every row; the weighted sum behind it is of experts still."""
    rows = ("b*s", 16)
    shapes = {
        **{"in_ids_e": ("b*s",), "in_ids_o": (4,), "w_up": (4, 16, 16), "w_bias": (4, 16), "w_in": (16, 16)},
        **{"x": X, "flat": rows, "up": rows, "picked": rows, "biased": rows, "scores": ("b*s", 1)},
        **{"w_gate": (1, 16), "weighted": rows, "seen": ("b*s", 1, 16), "y": rows},
    }
    steps = [
        *LINEAR,
        ("flat", "view", "%x", ("=b*s", 16)),
        ("scores", "linear", "%flat", "%w_gate"),
        ("up", "_grouped_mm", "%flat", "%w_up", "%in_ids_o"),
        ("picked", "index", "%w_bias", ("%in_ids_e",)),
        ("biased", "add", "%up", "%picked"),
        ("weighted", "mul", "%biased", "%scores"),
        ("seen", "view", "%weighted", ("=b*s", 1, 16)),
        ("y", "sum", "%seen", (1,)),
    ]
    assert forms(shapes, steps, "y") == ["aten.linear", "aten.linear", "aten._grouped_mm", "aten.add", "phaze.combine"]


def test_places_that_constants_name_are_parts_of_a_split():
    """Queries, keys and values of a product in groups; a matrix of parameters makes them, however it was written."""
    shapes = {
        **{"w_all": (16, 40), "all": ("b", "s", 40), "cut": ("b", "s", 5, 8), "c_key": (1,), "c_value": (1,)},
        **{"q": ("b", "s", 3, 8), "k": ("b", "s", 1, 8), "v": ("b", "s", 1, 8), "y": ("b", "s", 5, 8)},
    }
    steps = [
        ("all", "matmul", "%in_x", "%w_all"),
        ("cut", "view", "%all", ("=b", "=s", 5, 8)),
        ("q", "slice", "%cut", 2, 0, -2),
        ("k", "index", "%cut", (None, None, "%c_key")),
        ("v", "index", "%cut", (None, None, "%c_value")),
        ("y", "cat", ("%v", "%q", "%k"), 2),
    ]
    found = forms({"w_in": (16, 16)} | shapes, [*LINEAR[:0], *steps], "y")
    assert found == ["aten.matmul", "phaze.split", "aten.cat"]


def test_a_bias_of_all_pairs_is_looked_up_once_and_lent():
    """Three blocks read what the first one looks up; all rotate and attend, none but the first holds the table."""
    heads = ("b", 2, "s", 8)
    shapes = {"in_ids": ("b", "s"), "w_table": (64, 16), "w_bias": (32, 2), "c_pairs": ("s", "s"), "x0": X}
    shapes |= {"found": ("s", "s", 2), "turned": (2, "s", "s"), "bias": (1, 2, "s", "s"), "logits": ("b", "s", 64)}
    steps = [("x0", "embedding", "%w_table", "%in_ids"), ("found", "embedding", "%w_bias", "%c_pairs")]
    steps += [("turned", "permute", "%found", (2, 0, 1)), ("bias", "unsqueeze", "%turned", 0)]
    for n in range(3):
        names = [f"{part}{n}" for part in ("q", "h", "t", "a", "u", "m")]
        q, h, t, a, u, m = names
        shapes |= {
            q: X,
            h: ("b", "s", 2, 8),
            t: heads,
            a: heads,
            u: ("b", "s", 2, 8),
            m: X,
            f"x{n + 1}": X,
            f"w_q{n}": (16, 16),
        }
        steps += [
            (q, "linear", f"%x{n}", f"%w_q{n}"),
            (h, "view", f"%{q}", (1, 8, 2, 8)),
            (t, "transpose", f"%{h}", 1, 2),
            (a, "scaled_dot_product_attention", f"%{t}", f"%{t}", f"%{t}", "%bias"),
            (u, "transpose", f"%{a}", 1, 2),
            (m, "view", f"%{u}", (1, 8, 16)),
            (f"x{n + 1}", "add", f"%x{n}", f"%{m}"),
        ]
    steps.append(("logits", "linear", "%x3", "%w_table"))
    workload = TracedWorkload("m", traced_model_text(model(shapes, steps, "logits")))
    graph = build_model_graph(workload, TrainingSpec(2, 8, 2), tensor_parallel=1)
    held = sum(graph.layers[kind].num_parameters for kind in graph.chain) - 64 * 16
    assert held == workload.num_parameters == 64 * 16 + 64 + 3 * 256
    lookups = [
        each.name for kind in graph.chain for each in graph.layers[kind].forward.operators if "embedding" in each.name
    ]
    assert len(lookups) == 2


def test_a_product_of_a_constant_and_a_parameter_is_work():
    """Positions that are projected, as XLNet's: forward and the gradient of the weight, none of the positions."""
    shapes = {"w_in": (16, 16), "w_r": (16, 16), "c_p": ("b", 16), "x": ("b", 16), "r": ("b", 16), "y": ("b", 16)}
    steps = [*LINEAR, ("r", "linear", "%c_p", "%w_r"), ("y", "add", "%x", "%r")]
    assert forms(shapes, steps, "y") == ["aten.linear", "aten.linear", "aten.add"]
    macs = [
        matmul.macs
        for layer in recorded(written(shapes, [*steps, LOSS]))
        for node in layer.nodes
        for matmul in node.matmuls
    ]
    assert len(macs) == 4
    assert len(set(macs)) == 1


def test_parts_of_a_split_parameter_are_views_of_it():
    shapes = {"w_all": (32, 16), "q": (16, 16), "k": (16, 16), "x": ("b", 16), "y": ("b", 16)}
    steps = [("q,k", "split", "%w_all", 16), ("x", "linear", "%in_x", "%q"), ("y", "linear", "%x", "%k")]
    assert forms(shapes, steps, "y") == ["aten.linear", "aten.linear"]
    workload = written(shapes, [*steps, LOSS])
    results = [each for layer in recorded(workload) for node in layer.nodes for each in node.outputs]
    assert workload.num_parameters == 512
    assert [each.elements for each in results if each.role is TensorRole.WEIGHT_GRADIENT] == [256, 256]


def test_a_constant_with_the_type_of_another_tensor_is_constant():
    shapes = SHAPES | {"c_m": X, "m": X, "wide": X, "y": X}
    steps = [*LINEAR, ("m", "type_as", "%c_m", "%x"), ("wide", "expand_as", "%m", "%x"), ("y", "mul", "%x", "%wide")]
    assert forms(shapes, steps, "y") == ["aten.linear", "aten.mul"]


def test_two_vectors_added_to_one_tensor_give_two_sums():
    """As XLNet's queries, with a vector for contents and one for positions."""
    shapes = {"w_in": (16, 16), "w_a": (16,), "w_b": (16,), **dict.fromkeys(("x", "one", "other", "y"), ("b", 16))}
    steps = [
        *LINEAR,
        ("one", "add", "%x", "%w_a"),
        ("other", "add", "%x", "%w_b"),
        ("y", "mul", "%one", "%other"),
        LOSS,
    ]
    for layer in recorded(written(shapes, steps)):
        names = [each.name for node in layer.nodes for each in node.outputs]
        assert len(names) == len(set(names))
