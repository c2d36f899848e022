"""Traced models that are too large are refused in a sentence that names the bound, in seconds and little memory."""

import time

import pytest
from kits.traced import node, tensor, traced_text

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.layered_model import MAX_BESIDE, layered_model_of
from phaze_opt.graph.traced.traced_check import MAX_OPERATIONS
from phaze_opt.graph.traced.traced_file import MAX_DIFFERENT_SIZES

X = tensor("x", ["b", 8], "input")
CPU_LIMIT_S = 5.0


def branches(number):
    """Two products in a row, so often beside one another."""
    tensors, nodes = [X, tensor("o", ["b", 8 * number])], []
    for each in range(number):
        tensors += [tensor(f"{name}{each}", [8, 8], "parameter") for name in "wv"]
        tensors += [tensor(f"{name}{each}", ["b", 8]) for name in "pq"]
        nodes.append(node("aten.linear.default", ["%x", f"%w{each}"], f"p{each}"))
        nodes.append(node("aten.linear.default", [f"%p{each}", f"%v{each}"], f"q{each}"))
    nodes.append(node("aten.cat.default", [[f"%q{each}" for each in range(number)], 1], "o"))
    return traced_text(tensors, nodes, outputs=["o"])


def chain(number):
    """A product, then so many activations."""
    tensors = [X, tensor("w", [8, 8], "parameter"), *(tensor(f"a{each}", ["b", 8]) for each in range(number + 1))]
    nodes = [node("aten.linear.default", ["%x", "%w"], "a0")]
    nodes += [node("aten.relu.default", [f"%a{each}"], f"a{each + 1}") for each in range(number)]
    return traced_text(tensors, nodes, outputs=[f"a{number}"])


def repeated(number):
    """A block of an activation that runs so often, behind a product."""
    inside = [tensor("i", ["b", 8], "input"), tensor("o", ["b", 8])]
    block = {"id": "body", "inputs": ["i"], "outputs": ["o"], "tensors": inside, "nodes": []}
    block["nodes"] = [node("aten.relu.default", ["%i"], "o")]
    run = {"repeat": "body", "count": 5000, "carried": [[0, 0]]}
    places = range(number // run["count"] + 1)
    steps = [run | {"inputs": [f"a{each}"], "outputs": [f"a{each + 1}"]} for each in places]
    tensors = [X, tensor("w", [8, 8], "parameter"), *(tensor(f"a{each}", ["b", 8]) for each in range(len(steps) + 1))]
    nodes = [node("aten.linear.default", ["%x", "%w"], "a0"), *steps]
    return traced_text(tensors, nodes, outputs=[f"a{len(steps)}"], blocks=[block])


def sizes(number):
    """So many tensors, each of a size of its own."""
    tensors = [X, tensor("w", [8, 8], "parameter"), tensor("y", ["b", 8])]
    tensors += [tensor(f"c{each}", [f"b*{each + 2}+b^2*{each + 3}"], "constant") for each in range(number)]
    return traced_text(tensors, [node("aten.linear.default", ["%x", "%w"], "y")], outputs=["y"])


@pytest.mark.parametrize(
    ("made", "number", "bound"),
    [
        (branches, MAX_BESIDE + 50, f"at most {MAX_BESIDE} are priced"),
        (branches, 2000, f"at most {MAX_BESIDE} are priced"),
        (repeated, MAX_OPERATIONS, f"at most {MAX_OPERATIONS}"),
        (sizes, 5 * MAX_DIFFERENT_SIZES, f"{MAX_DIFFERENT_SIZES:,} different ones"),
    ],
)
def test_what_is_too_large_is_refused_in_seconds(made, number, bound):
    text = made(number)
    started = time.process_time()
    with pytest.raises(InputError, match=bound) as caught:
        layered_model_of(text, "made.json")
    assert time.process_time() - started < CPU_LIMIT_S
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("made", "number"), [(branches, 100), (chain, 3000), (sizes, 1000)])
def test_large_models_are_read(made, number):
    assert layered_model_of(made(number), "made.json").num_parameters > 0


def test_a_model_without_parameters_is_nothing_to_train():
    text = traced_text([X, tensor("y", ["b", 8])], [node("aten.relu.default", ["%x"], "y")], outputs=["y"])
    with pytest.raises(InputError, match="hold no parameter: there is nothing to train"):
        layered_model_of(text, "made.json")
