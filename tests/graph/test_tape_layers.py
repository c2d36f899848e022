"""Layers of convolutional and recurrent nets on the tape: parameters, FLOPs, fusion, and what backward keeps."""

import pytest
from kits.tape_layers import flops, lowered, record

from phaze_opt.errors import InputError
from phaze_opt.graph import operations as ops
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import average_pool, batch_norm, convolution, max_pool, transposed_convolution
from phaze_opt.graph.operations import HARD_SIGMOID, HARD_SWISH, RELU6
from phaze_opt.graph.operator import CoreType, Operator, OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.rules.moves import embedding_bag
from phaze_opt.graph.traced.rules.recurrent import RecurrentShape, ScanShape, gru, lstm, selective_scan

IMAGES = ConvolutionShape(8, 16, 32, (14, 14), (3, 3), padding=(1, 1))


def conv_norm(tape: Tape, name: str, tensor: Tensor, shape: ConvolutionShape, **options: bool) -> Tensor:
    result = convolution(tape, name, tensor, shape, **options)
    return batch_norm(tape, f"{name}.norm", result, channels=shape.out_channels)


def relu(tape: Tape, name: str, tensor: Tensor) -> Tensor:
    return ops.elementwise(tape, name, (tensor,), ops.RELU)


def resnet18(tape: Tape, images: Tensor) -> Tensor:
    """He et al. 2016, at 224 x 224."""
    first = ConvolutionShape(1, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3))
    end = relu(tape, "relu", conv_norm(tape, "first", images, first, is_differentiable=False))
    end = max_pool(tape, "pool", end, elements=64 * 56 * 56, window=9)
    channels, size = 64, 56
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name, stride = f"{stage}{block}", 2 if stage and not block else 1
            start, edges = end, (size, size)
            one = ConvolutionShape(1, channels, width, edges, (3, 3), (stride, stride), (1, 1))
            size = one.out_size[0]
            two = ConvolutionShape(1, width, width, (size, size), (3, 3), padding=(1, 1))
            end = relu(tape, f"{name}.relu", conv_norm(tape, f"{name}.one", end, one))
            end = conv_norm(tape, f"{name}.two", end, two)
            if channels != width:
                down = ConvolutionShape(1, channels, width, edges, (1, 1), (stride, stride))
                start = conv_norm(tape, f"{name}.down", start, down)
            end = relu(tape, f"{name}.end", ops.add(tape, f"{name}.sum", end, start))
            channels = width
    end = average_pool(tape, "mean", end, elements=512, window=49)
    return ops.linear(tape, "classes", end, rows=1, inner=512, width=1000, has_bias=True)


def test_resnet18_has_its_published_size():
    """11,689,512 parameters (torchvision) and 1.8 G multiply-accumulates.

    Backward takes twice the FLOPs but for the gradient of the images.
    """
    program = record(3 * 224 * 224, resnet18)
    assert program.num_parameters == 11_689_512
    forward, backward = flops(lowered(program))
    assert forward == 3_628_146_688
    assert backward == 2 * forward - 2 * 118_013_952


def test_a_batch_norm_is_no_epilogue_and_takes_the_rectifier():
    """Its statistics need the whole result first; without one the rectifier is the convolution's epilogue."""
    layer = lowered(record(IMAGES.in_elements, lambda t, x: relu(t, "relu", conv_norm(t, "c", x, IMAGES))))
    assert [each.name for each in layer.forward.operators] == ["c", "c.norm.statistics", "c.norm+relu"]
    assert [each.name for each in layer.backward.operators] == [
        *("relu.gradient", "c.norm.reductions", "c.norm.gradient", "c.input_gradient", "c.weight_gradient")
    ]
    assert layer.forward.edges == ((0, 1), (0, 2), (1, 2))
    plain = lowered(
        record(IMAGES.in_elements, lambda t, x: relu(t, "relu", convolution(t, "c", x, IMAGES, has_bias=True)))
    )
    (operator,) = plain.forward.operators
    assert (operator.name, operator.core_type) == ("c+c_bias+relu", CoreType.TC_AND_VC)
    assert operator.traffic_bytes == 2 * (IMAGES.in_elements + IMAGES.out_elements + IMAGES.weight_elements + 32)


def test_a_batch_norm_reads_its_input_twice_each_way():
    layer = lowered(record(1000, lambda t, x: batch_norm(t, "n", x, channels=10)))
    assert sum(each.traffic_bytes for each in layer.forward.operators) == 2 * 3 * 1000 + 80 + 80 + 40
    assert layer.stash_bytes == 2 * 1000 + 80
    read = sum(each.bytes_read for each in layer.backward.operators)
    assert read == 2 * 2 * 2 * 1000 + 2 * 80 + 40 + 80
    assert layer.num_parameters == 20


KEPT = {
    "convolution": (lambda t, x: convolution(t, "c", x, IMAGES), 2 * IMAGES.in_elements),
    "max pool": (lambda t, x: max_pool(t, "p", x, elements=IMAGES.in_elements // 4, window=4), IMAGES.in_elements // 4),
    "average pool": (lambda t, x: average_pool(t, "p", x, elements=64, window=4), 0),
    "relu": (lambda t, x: relu(t, "r", x), 2 * IMAGES.in_elements),
    "relu6": (lambda t, x: ops.elementwise(t, "r", (x,), RELU6), 2 * IMAGES.in_elements),
    "hard swish": (lambda t, x: ops.elementwise(t, "r", (x,), HARD_SWISH), 2 * IMAGES.in_elements),
    "hard sigmoid": (lambda t, x: ops.elementwise(t, "r", (x,), HARD_SIGMOID), 2 * IMAGES.in_elements),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_backward_keeps(name):
    """As PyTorch's autograd, but for a pool: a byte a window, and nothing of its input (tests/reference)."""
    layer, kept = KEPT[name]
    found = lowered(record(IMAGES.in_elements, layer))
    assert found.stash_bytes == kept
    assert found.stash_bytes == sum(each.stash_bytes for each in found.forward.operators)
    assert any("d_x" in output.name for node in record(IMAGES.in_elements, layer).nodes for output in node.outputs)


def test_transposed_is_the_other_way_round():
    """Same products with forward and input gradient exchanged; the weight gradient reads patches of the gradient."""
    plain = record(IMAGES.in_elements, lambda t, x: convolution(t, "c", x, IMAGES))
    other = record(IMAGES.out_elements, lambda t, x: transposed_convolution(t, "c", x, IMAGES, has_bias=True))
    shapes = [[node.matmuls[0] for node in program.nodes if node.matmuls] for program in (plain, other)]
    assert shapes[0] == [IMAGES.forward, IMAGES.input_gradient, IMAGES.weight_gradient]
    assert shapes[1] == [IMAGES.input_gradient, IMAGES.forward, IMAGES.weight_gradient]
    assert (plain.num_parameters, other.num_parameters) == (32 * 16 * 9, 32 * 16 * 9 + 16)


def test_a_grouped_convolution_may_use_lanes():
    shape = ConvolutionShape(8, 16, 16, (14, 14), (3, 3), padding=(1, 1), groups=16)
    layer = lowered(record(shape.in_elements, lambda t, x: convolution(t, "c", x, shape)))
    operators = (*layer.forward.operators, *layer.backward.operators)
    assert [each.core_type for each in operators] == [CoreType.TC_AND_VC] * 3
    assert flops(layer) == (2 * 8 * 16 * 196 * 9, 4 * 8 * 16 * 196 * 9)


@pytest.mark.parametrize(("layer", "gates", "own"), [(lstm, 4, 0), (gru, 3, 3)])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("has_initial", [False, True])
def test_recurrent_layers(layer, gates, own, steps, has_initial):
    """Parameters as PyTorch's layers, a product a step forward, and one less backward where no state was given."""
    shape = RecurrentShape(steps, batch=6, input_size=10, hidden_size=7)
    inputs = steps * 6 * 10

    def run(tape: Tape, tensor: Tensor) -> Tensor:
        initial = tape.tensor("state", 2 * 6 * 7) if has_initial else None
        return layer(tape, "r", tensor, shape, initial=initial)

    found = lowered(record(inputs, run))
    width, rows, back = gates * 7, steps * 6, steps if has_initial else steps - 1
    assert found.num_parameters == width * (10 + 7 + 2)
    state_flops = 2 * 6 * 7 * width
    assert flops(found) == (2 * rows * 10 * width + steps * state_flops, 4 * rows * 10 * width + 2 * back * state_flops)
    by_name = {each.name: each for each in (*found.forward.operators, *found.backward.operators)}
    assert (by_name["r"].kind, by_name["r"].serial_steps) == (OperatorKind.RECURRENT, steps)
    assert by_name["r.gradient"].kind is (OperatorKind.RECURRENT if back else OperatorKind.VECTOR)
    assert by_name["r.gradient"].serial_steps == max(1, back)
    assert ("r.weight_gradient" in by_name) == bool(back)
    states = 2 * rows * 7
    assert found.stash_bytes == 2 * inputs + states * (gates + 2) + has_initial * 2 * 2 * 6 * 7
    written = {0: rows * width, 3: 2 * rows * width}[own] * 2 + has_initial * 2 * 2 * 6 * 7
    assert by_name["r.gradient"].bytes_written == written


def test_a_recurrence_is_never_fused():
    """Neither with the product of its input nor with what follows."""
    shape = RecurrentShape(5, 6, 10, 7)
    layer = lowered(record(300, lambda t, x: relu(t, "relu", lstm(t, "r", x, shape))))
    assert [each.name for each in layer.forward.operators] == ["r.input+r.bias", "r", "relu"]


def test_a_scan_walks_its_steps_and_backward_twice():
    """Its states are made again: nothing but its inputs is kept."""
    shape = ScanShape(steps=32, batch=2, channels=24, states=16)

    def run(tape: Tape, tensor: Tensor) -> Tensor:
        others = [tape.tensor(name, 32 * 2 * size) for name, size in (("d", 24), ("B", 16), ("C", 16))]
        return selective_scan(tape, "s", (tensor, *others), shape)

    layer = lowered(record(shape.elements, run))
    (forward,), (backward,) = layer.forward.operators, layer.backward.operators
    assert (forward.serial_steps, backward.serial_steps) == (32, 64)
    assert layer.num_parameters == 24 * 16 + 24
    assert layer.stash_bytes == 2 * 64 * (24 + 24 + 16 + 16)
    assert forward.vector_works[0] == VectorWork(VectorKind.ACTIVATION_FORWARD, 64 * 24 * 16)


def test_an_embedding_bag_touches_the_rows_it_names():
    """DLRM's: a bag of 10 rows of 64 for each of 128 samples, of a table of a million."""
    program = record(1280, lambda t, x: embedding_bag(t, "e", x, rows=10**6, width=64, bags=128), input_bytes=8)
    layer = lowered(program)
    assert layer.num_parameters == 64 * 10**6
    (forward,), (backward,) = layer.forward.operators, layer.backward.operators
    assert (forward.bytes_read, forward.bytes_written) == (8 * 1280 + 2 * 1280 * 64, 2 * 128 * 64)
    assert (backward.bytes_read, backward.bytes_written) == (8 * 1280 + 2 * 128 * 64, 2 * 1280 * 64)
    assert layer.stash_bytes == 8 * 1280


def test_steps_belong_to_recurrences_and_vector_work():
    operator = lowered(record(300, lambda t, x: lstm(t, "r", x, RecurrentShape(5, 6, 10, 7)))).forward.operators[0]
    assert operator.kind is OperatorKind.MATMUL
    with pytest.raises(InputError, match="serial_steps = 2"):
        Operator(operator.name, operator.phase, operator.kind, CoreType.TC, operator.matmuls, serial_steps=2)


@pytest.mark.parametrize("shape", [(RecurrentShape, (0, 1, 1, 1)), (ScanShape, (1, 1, 1, 0))])
def test_empty_layers_are_refused(shape):
    kind, sizes = shape
    with pytest.raises(InputError, match="every size must be positive"):
        kind(*sizes)
