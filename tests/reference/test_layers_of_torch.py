"""Layers on the tape against PyTorch's: parameters, FLOPs, and what autograd keeps (`make test-reference`).

torch is imported inside the tests, so that the default run, which deselects them, does not need it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from kits.tape_layers import flops, lowered, record

from phaze_opt.graph import operations as ops
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import batch_norm, convolution, max_pool, transposed_convolution
from phaze_opt.graph.operations import HARD_SIGMOID, HARD_SWISH, RELU6
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.rules.recurrent import RecurrentShape, gru, lstm

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

PLAIN = ConvolutionShape(2, 6, 10, (13, 12), (3, 5), (2, 1), (1, 2), (1, 2))
GROUPED = ConvolutionShape(2, 6, 12, (13, 12), (3, 3), padding=(1, 1), groups=3)
LINE = ConvolutionShape(2, 6, 4, (40,), (4,), (2,), (1,))
VOLUME = ConvolutionShape(1, 2, 3, (6, 7, 8), (3, 3, 3), padding=(1, 1, 1))


def torch_convolution(shape: ConvolutionShape, kind: str = "Conv", *, has_bias: bool = True) -> Callable[[Any], Any]:
    channels = (shape.in_channels, shape.out_channels)
    if kind == "ConvTranspose":
        channels = channels[::-1]

    def build(nn: Any) -> Any:
        module = getattr(nn, f"{kind}{len(shape.kernel)}d")
        sizes = {"stride": shape.stride, "padding": shape.padding, "dilation": shape.dilation}
        return module(*channels, shape.kernel, groups=shape.groups, bias=has_bias, **sizes)

    return build


@dataclass(frozen=True, slots=True)
class Case:
    """A layer here and there, its input, and elements that autograd keeps besides (a pool's input)."""

    size: tuple[int, ...]
    record: Callable[[Tape, Tensor], Tensor]
    build: Callable[[Any], Any]
    has_right_flops: bool = True


def of_convolution(shape: ConvolutionShape) -> Case:
    return Case(
        (shape.batch, shape.in_channels, *shape.in_size),
        lambda tape, tensor: convolution(tape, "c", tensor, shape, has_bias=True),
        torch_convolution(shape),
        has_right_flops=shape.groups == 1,
    )


def of_rule(rule: ops.Elementwise, name: str) -> Case:
    return Case(
        (4, 30), lambda tape, tensor: ops.elementwise(tape, "r", (tensor,), rule), lambda nn: getattr(nn, name)()
    )


CASES = {
    "plain": of_convolution(PLAIN),
    "grouped": of_convolution(GROUPED),
    "line": of_convolution(LINE),
    "volume": of_convolution(VOLUME),
    "transposed": Case(
        (LINE.batch, LINE.out_channels, *LINE.out_size),
        lambda tape, tensor: transposed_convolution(tape, "c", tensor, LINE, has_bias=True),
        torch_convolution(LINE, "ConvTranspose"),
    ),
    "batch norm": Case(
        (4, 6, 5, 5), lambda tape, tensor: batch_norm(tape, "n", tensor, channels=6), lambda nn: nn.BatchNorm2d(6)
    ),
    "relu": of_rule(ops.RELU, "ReLU"),
    "relu6": of_rule(RELU6, "ReLU6"),
    "hard swish": of_rule(HARD_SWISH, "Hardswish"),
    "hard sigmoid": of_rule(HARD_SIGMOID, "Hardsigmoid"),
}


def kept_by_autograd(module: Any, size: tuple[int, ...]) -> int:
    """Bytes that forward saves for backward and that no parameter or buffer holds."""
    import torch

    own = {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        if tensor.data_ptr() not in own:
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    start = torch.randn(*size, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        end = module(start)
    end.sum().backward()
    return sum(saved.values())


@pytest.mark.parametrize("name", CASES)
def test_parameters_flops_and_what_is_kept(name: str) -> None:
    """FLOPs of grouped convolutions are compared forward alone: backward, torch 2.3 to 2.14 counts no groups."""
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    case = CASES[name]
    module = case.build(nn)
    elements = 1
    for edge in case.size:
        elements *= edge
    layer = lowered(record(elements, case.record, dtype_bytes=4))
    assert layer.num_parameters == sum(each.numel() for each in module.parameters())
    assert layer.stash_bytes == kept_by_autograd(module, case.size)
    counts = counted_flops(module, case.size, FlopCounterMode)
    assert flops(layer)[: 1 + case.has_right_flops] == counts[: 1 + case.has_right_flops]


def counted_flops(module: Any, size: tuple[int, ...], mode: Any) -> tuple[int, int]:
    """By torch, forward and backward."""
    import torch

    start = torch.randn(*size, requires_grad=True)
    with mode(display=False) as forward:
        end = module(start)
    with mode(display=False) as backward:
        end.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


def test_a_pool_keeps_its_input_in_torch_and_places_of_eight_bytes() -> None:
    """Here a byte a window and nothing of the input: its shape is all that backward needs."""
    from torch import nn

    elements = 2 * 3 * 8 * 8
    layer = lowered(record(elements, lambda t, x: max_pool(t, "p", x, elements=elements // 4, window=4), dtype_bytes=4))
    kept = kept_by_autograd(nn.MaxPool2d(2), (2, 3, 8, 8))
    assert (kept, layer.stash_bytes) == (4 * elements + 8 * elements // 4, elements // 4)


@pytest.mark.parametrize(("layer", "name"), [(lstm, "LSTM"), (gru, "GRU")])
@pytest.mark.parametrize("has_bias", [False, True])
def test_recurrent_layers_have_the_parameters_and_forward_flops_of_torch(layer: Any, name: str, has_bias: bool) -> None:
    """Cells step by step: torch counts the product of the input and the one of the state in every step."""
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    steps, batch, width, hidden = 5, 4, 10, 6
    shape = RecurrentShape(steps, batch, width, hidden)
    found = lowered(record(steps * batch * width, lambda t, x: layer(t, "r", x, shape, has_bias=has_bias)))
    whole = getattr(nn, name)(width, hidden, bias=has_bias)
    assert found.num_parameters == sum(each.numel() for each in whole.parameters())
    cell = getattr(nn, f"{name}Cell")(width, hidden, bias=has_bias)
    with FlopCounterMode(display=False) as counter:
        state = None
        for step in torch.randn(steps, batch, width):
            state = cell(step, state)
    assert flops(found)[0] == counter.get_total_flops()
