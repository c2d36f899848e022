"""ONNX files: what is recorded, what is refused, and damaged files (`make test-reference`; needs onnx alone)."""

import random
import time

import pytest
from command_runs import refused, run_json
from model_mutations import change_field

from phaze_opt.errors import InputError
from phaze_opt.extract.extracting import num_parameters
from phaze_opt.extract.onnx_file import read_onnx
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.traced.traced_file import read_traced_model, traced_model_text
from phaze_opt.graph.traced.traced_model import TracedRole
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.workload.training import TrainingSpec

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("ignore")]

MUTANTS = 200
VIEWS = {"rows": (32, 64), "samples": (2, 16, 8)}


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
    said = f"the first axis of its inputs, {batch}, is read as the micro-batch"
    assert [note.endswith(said) for note in model.notes] == [True] * (batch != "N")


def test_convolutions_without_norms_are_said_to_be_folded(saved):
    from onnx_models import small_cnn

    (note,) = read_onnx(saved(small_cnn(has_norms=False, batch="N"))).notes
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
    assert len(answer["notes"]) == 2


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
    assert forward_macs(read_onnx(saved(baked)), batch=3) == forward_macs(read_onnx(saved(small_cnn())), batch=3)
    spread = small_cnn(batch=4)
    spread.graph.node[5].output[0] = "narrow"
    spread.graph.node.insert(6, helper.make_node("Expand", ["narrow", "wide"], ["p"], "spread"))
    spread.graph.initializer.append(helper.make_tensor("wide", TensorProto.INT64, [4], [4, 8, 1, 1]))
    with pytest.raises(InputError, match="dynamic_shapes, and with dynamo=False dynamic_axes"):
        read_onnx(saved(spread))
    without_sizes = small_cnn(batch=4)
    without_sizes.graph.node[6].CopyFrom(helper.make_node("Reshape", ["p"], ["f"], "flatten"))
    with pytest.raises(InputError, match="'flatten' has inputs that do not go together"):
        read_onnx(saved(without_sizes))
    del with_constant.graph.node[-2].output[:]
    with pytest.raises(InputError, match="give a model that checks"):
        read_onnx(saved(with_constant))


def forward_macs(model, **sizes):
    """Multiply-accumulates forward of a traced model, as it is priced."""
    workload = TracedWorkload("m", traced_model_text(model))
    graph = build_model_graph(workload, TrainingSpec(sizes.get("batch", 1), 1, 8), tensor_parallel=1)
    return sum(each.macs for kind in graph.chain for each in graph.layers[kind].forward.operators)


def test_a_view_of_the_input_itself_that_holds_the_micro_batch_is_read(saved):
    from onnx import TensorProto, helper
    from onnx_models import _weight

    sizes = [helper.make_tensor(name, TensorProto.INT64, [len(dims)], dims) for name, dims in VIEWS.items()]
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("Reshape", ["m", "samples"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "rows", [x], [y], [_weight("w", 64, 8), *sizes])
    model = read_onnx(saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])))
    assert [forward_macs(model, batch=each) for each in (1, 3)] == [16 * 64 * 8, 3 * 16 * 64 * 8]


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("batch", ["N", 1, 4])
def test_views_of_any_micro_batch_functions_and_recurrent_layers_are_priced(saved, batch, directions):
    """Whatever micro-batch the file holds. By hand: projections, scores and context, MLP, LSTM, outputs."""
    from onnx_models import CHANNELS, STATES, TOKENS, small_encoder

    model = read_onnx(saved(small_encoder(batch=batch, directions=directions)))
    lstm = directions * 4 * STATES * (CHANNELS + STATES)
    weights = 3 * CHANNELS**2 + 3 * CHANNELS * 32 + lstm
    assert num_parameters(model) == weights + directions * 8 * STATES + STATES * 3
    macs = TOKENS * (weights + directions * STATES * 3) + 2 * TOKENS**2 * CHANNELS
    assert [forward_macs(model, batch=each) for each in (1, 3)] == [macs, 3 * macs]


def test_a_gru_is_a_recurrent_layer_too(saved):
    from onnx import helper
    from onnx_models import CHANNELS, STATES, TOKENS, small_encoder

    model = small_encoder()
    for weight in model.graph.initializer:
        if weight.name in ("lw", "lr", "lb"):
            weight.dims[1] = weight.dims[1] * 3 // 4
            weight.raw_data = weight.raw_data[: len(weight.raw_data) * 3 // 4]
    place = next(at for at, node in enumerate(model.graph.node) if node.op_type == "LSTM")
    model.graph.node[place].CopyFrom(
        helper.make_node("GRU", ["steps", "lw", "lr", "lb"], ["states"], hidden_size=STATES)
    )
    lstm = forward_macs(read_onnx(saved(small_encoder())))
    assert lstm - forward_macs(read_onnx(saved(model))) == TOKENS * STATES * (CHANNELS + STATES)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij, jk"])
def test_an_einsum_is_a_product(saved, equation):
    from onnx import TensorProto, helper
    from onnx_models import _weight

    node = helper.make_node("Einsum", ["x", "w"], ["y"], equation=equation)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["N", 64]), ("y", None))
    )
    graph = helper.make_graph([node], "einsum", [x], [y], [_weight("w", 64, 256)])
    model = read_onnx(saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])))
    assert forward_macs(model) == 64 * 256


@pytest.mark.parametrize(
    ("levels", "words"), [(30, "holds 2,147,483,649 operators"), (200, "more than 100 functions"), (-2, "calls itself")]
)
def test_functions_are_counted_before_they_are_put_in_place(saved, levels, words):
    from onnx_models import doubling

    assert num_parameters(read_onnx(saved(doubling(3)))) == 64
    started = time.process_time()
    with pytest.raises(InputError, match=words):
        read_onnx(saved(doubling(levels)))
    assert time.process_time() - started < 5


def test_what_has_no_parameters_is_nothing_to_train(saved, tmp_path, capsys):
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", [x], [y])
    file = saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    refused(["extract", "--onnx", str(file), "--out", str(tmp_path / "o.json")], capsys, "there is nothing to train")


@pytest.mark.parametrize("batch", [1, 4, None])
def test_an_encoder_of_the_older_exporter_is_taken(tmp_path, batch):
    """Exported at one micro-batch, at several, and with a free one: 33,472 parameters, 167,040 products of 5 tokens."""
    torch = pytest.importorskip("torch")

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.TransformerEncoderLayer(64, 8, 128, dropout=0.0, batch_first=True)

        def forward(self, x):
            return self.layer(x, src_mask=torch.zeros(x.shape[1], x.shape[1]))

    axes = {"x": {0: "batch"}} if batch is None else None
    options = {"dynamo": False, "input_names": ["x"], "dynamic_axes": axes, "do_constant_folding": False}
    training = {"training": torch.onnx.TrainingMode.TRAINING}
    file = tmp_path / "encoder.onnx"
    torch.onnx.export(Encoder().train(), torch.randn(batch or 1, 5, 64), str(file), **options, **training)
    model = read_onnx(file)
    assert num_parameters(model) == 33_472
    assert forward_macs(model) == 5 * (4 * 64**2 + 2 * 64 * 128) + 2 * 5**2 * 64


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


@pytest.mark.parametrize("changes", [bytes_changed, change_field])
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
