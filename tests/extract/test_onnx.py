"""ONNX files: what is recorded, what is refused, and damaged files (`make test-reference`; needs onnx alone)."""

import random

import pytest
from command_runs import refused, run_json

from phaze_opt.errors import InputError
from phaze_opt.extract.extracting import num_parameters
from phaze_opt.extract.onnx_file import read_onnx
from phaze_opt.graph.traced.traced_file import read_traced_model
from phaze_opt.graph.traced.traced_model import TracedRole
from phaze_opt.graph.traced.traced_writing import traced_model_text

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

MUTANTS = 400


@pytest.fixture
def saved(tmp_path):
    """Writes a model, and gives its file."""

    def save(model, name="model.onnx"):
        file = tmp_path / name
        file.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return file

    return save


@pytest.mark.parametrize("batch", [1, 16, "N"])
def test_a_network_of_images_is_recorded_with_its_loss(saved, batch):
    from onnx_models import small_cnn

    model = read_onnx(saved(small_cnn(batch=batch)))
    assert [(step.op, step.module) for step in model.steps] == [
        ("aten.conv2d.default", "conv1"),
        ("aten.batch_norm.default", "norm1"),
        ("aten.relu.default", "relu1"),
        ("aten.conv2d.default", "conv2"),
        ("aten.add.Tensor", "add2"),
        ("aten.adaptive_avg_pool2d.default", "pool"),
        ("aten.reshape.default", "flatten"),
        ("aten.linear.default", "fc"),
        ("aten.cross_entropy_loss.default", ""),
    ]
    shapes = {tensor.id: [str(size) for size in tensor.shape] for tensor in model.tensors}
    assert shapes[model.steps[0].outputs[0]] == ["b", "8", "8", "8"]
    assert shapes[model.steps[6].outputs[0]] == ["b", "8"]
    assert model.steps[0].inputs[3:] == ((2, 2), (1, 1), (1, 1), 1)
    assert model.steps[3].inputs[6] == 8
    assert sum(tensor.role is TracedRole.BUFFER for tensor in model.tensors) == 2
    assert num_parameters(model) == 3 * 9 * 8 + 2 * 8 + 9 * 8 + 8 + 8 * 10 + 10
    assert model.notes == ()


def test_convolutions_without_norms_are_said_to_be_folded(saved):
    from onnx_models import small_cnn

    (note,) = read_onnx(saved(small_cnn(has_norms=False))).notes
    assert "batch norms are folded" in note


def test_weights_may_lie_in_files_that_are_not_there(saved):
    from onnx import TensorProto
    from onnx_models import small_cnn

    model = small_cnn()
    for weight in model.graph.initializer:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="nowhere.bin")
    assert num_parameters(read_onnx(saved(model))) == 402


def test_the_command_writes_what_is_read_again(saved, tmp_path, capsys):
    from onnx_models import small_cnn

    file, out = saved(small_cnn(has_norms=False)), tmp_path / "out.json"
    answer = run_json(["extract", "--onnx", str(file), "--out", str(out), "--json"], capsys)
    assert answer["parameters"] == num_parameters(read_traced_model(out)) == 386
    assert len(answer["notes"]) == 1


def test_control_flow_and_models_without_scores_are_refused(saved, tmp_path, capsys):
    from onnx import TensorProto, helper
    from onnx_models import small_cnn

    looped, whole = small_cnn(), small_cnn()
    looped.graph.node[2].op_type = "If"
    kinds = helper.make_node("ArgMax", ["y"], ["k"], "argmax", axis=1, keepdims=0)
    whole.graph.node.append(kinds)
    whole.graph.output[0].CopyFrom(helper.make_tensor_value_info("k", TensorProto.INT64, None))
    for model, words in ((looped, "runs as data decides"), (whole, "nothing to train")):
        out = tmp_path / "out.json"
        refused(["extract", "--onnx", str(saved(model)), "--out", str(out)], capsys, words)
        assert not out.exists()
    refused(["extract", "--onnx", str(tmp_path), "--out", str(tmp_path / "o.json")], capsys, "ONNX file")


def test_constants_among_the_operators_are_not_trained_and_shapes_must_hold_any_batch(saved):
    from onnx import TensorProto, helper, numpy_helper
    from onnx_models import small_cnn

    with_constant, baked = small_cnn(), small_cnn()
    mask = numpy_helper.from_array(numpy_helper.to_array(with_constant.graph.initializer[-1]), "mask")
    nodes = [helper.make_node("Constant", [], ["mask"], value=mask), helper.make_node("Add", ["y", "mask"], ["z"])]
    with_constant.graph.node.extend(nodes)
    with_constant.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    assert num_parameters(read_onnx(saved(with_constant))) == num_parameters(read_onnx(saved(small_cnn())))
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [2], [1, 8])
    baked.graph.initializer.append(sizes)
    baked.graph.node[6].CopyFrom(helper.make_node("Reshape", ["p", "sizes"], ["f"], "flatten"))
    with pytest.raises(InputError, match="makes 8 elements of 16"):
        read_onnx(saved(baked))
    del with_constant.graph.node[-2].output[:]
    with pytest.raises(InputError, match="give a model that checks"):
        read_onnx(saved(with_constant))


def bytes_changed(content, draw):
    """A file with some bytes changed, cut off, left out or said twice."""
    changed = bytearray(content)
    first, second = draw.randrange(len(changed)), draw.randrange(len(changed))
    kind = draw.randrange(4)
    if kind == 0:
        for _ in range(draw.randint(1, 8)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    elif kind == 1:
        del changed[first:]
    elif kind == 2:
        del changed[first : first + draw.randint(1, 40)]
    else:
        changed[first:first] = changed[second : second + draw.randint(1, 60)]
    return bytes(changed)


def field_changed(model, draw):
    """A model that is well formed and says something odd."""
    odd = draw.choice([0, -1, 1, 2, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)])
    node, weight = draw.choice(model.graph.node), draw.choice(model.graph.initializer)
    kind = draw.randrange(7)
    if kind == 0:
        weight.dims[draw.randrange(len(weight.dims))] = odd
    elif kind == 1:
        weight.data_type = draw.randrange(40)
    elif kind == 2 and node.attribute:
        attribute = draw.choice(node.attribute)
        attribute.i = odd
        attribute.ints[:] = [odd] * len(attribute.ints)
    elif kind == 3:
        node.op_type = draw.choice(
            ["Conv", "Gemm", "Reshape", "Gather", "Concat", "Constant", "ReduceMean", "Foo", "Clip"]
        )
    elif kind == 4:
        node.input[draw.randrange(len(node.input))] = draw.choice(["", "x", "w1", "y", "f"])
    elif kind == 5:
        node.output[0] = draw.choice(["", "x", "c1"])
    else:
        del node.attribute[:]
    return model


@pytest.mark.parametrize("changes", [bytes_changed, field_changed])
def test_damaged_files_are_read_or_refused_in_one_sentence(changes, saved):
    from onnx_models import small_cnn

    draw, outcomes = random.Random(4), {"read": 0, "refused": 0}
    for _ in range(MUTANTS):
        whole = small_cnn()
        file = saved(changes(whole.SerializeToString() if changes is bytes_changed else whole, draw))
        try:
            traced_model_text(read_onnx(file))
            outcomes["read"] += 1
        except InputError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0
