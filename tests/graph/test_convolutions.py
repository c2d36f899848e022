"""Convolutions against loop nests: sizes, multiply-accumulates, and what strips of a product's rows have in memory."""

from collections.abc import Iterator
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.operator import Matmul

Place = tuple[int, ...]
Rows = list[frozenset[Place]]


def taps(shape: ConvolutionShape, pixel: Place) -> Iterator[tuple[Place, Place]]:
    """(tap, place in the image) of a pixel of the result; places in the padding too."""
    for tap in product(*map(range, shape.kernel)):
        axes = zip(pixel, tap, shape.stride, shape.padding, shape.dilation, strict=True)
        yield tap, tuple(out * stride + at * dilation - padding for out, at, stride, padding, dilation in axes)


def is_inside(shape: ConvolutionShape, place: Place) -> bool:
    return all(0 <= at < size for at, size in zip(place, shape.in_size, strict=True))


def pixels(shape: ConvolutionShape) -> Iterator[tuple[int, Place]]:
    """Image and pixel of the result, in their order in memory."""
    for image in range(shape.batch):
        for pixel in product(*map(range, shape.out_size)):
            yield image, pixel


def forward_rows(shape: ConvolutionShape) -> Rows:
    """Elements of the input of one group that each pixel of the result reads."""
    channels = range(shape.in_channels // shape.groups)
    return [
        frozenset(
            (image, channel, *place)
            for _, place in taps(shape, pixel)
            if is_inside(shape, place)
            for channel in channels
        )
        for image, pixel in pixels(shape)
    ]


def weight_rows(shape: ConvolutionShape) -> Rows:
    """Elements of the input of one group that the gradient of each tap of each channel reads."""
    channels = shape.in_channels // shape.groups
    read: dict[tuple[int, Place], set[Place]] = {}
    for channel, tap in product(range(channels), product(*map(range, shape.kernel))):
        read[channel, tap] = set()
    for (image, pixel), channel in product(pixels(shape), range(channels)):
        for tap, place in taps(shape, pixel):
            if is_inside(shape, place):
                read[channel, tap].add((image, channel, *place))
    return [frozenset(each) for each in read.values()]


def input_rows(shape: ConvolutionShape) -> Rows:
    """Elements of the result's gradient of one group that blocks of the input's gradient read.

    A block has the pixels of one step of the stride; blocks in their order in memory.
    """
    channels = range(shape.out_channels // shape.groups)
    read: dict[Place, set[Place]] = {}
    for place in product(range(shape.batch), *map(range, shape.in_size)):
        read.setdefault(_block(shape, place), set())
    for image, pixel in pixels(shape):
        for _, place in taps(shape, pixel):
            if is_inside(shape, place):
                block = _block(shape, (image, *place))
                read[block] |= {(image, channel, *pixel) for channel in channels}
    return [frozenset(read[block]) for block in sorted(read)]


def _block(shape: ConvolutionShape, place: Place) -> Place:
    axes = zip(place[1:], shape.padding, shape.stride, strict=True)
    return (place[0], *((at + padding) // stride for at, padding, stride in axes))


def moved(rows: Rows, height: int) -> int:
    """Elements that strips of so many rows read, each strip its own once."""
    strips = [rows[start : start + height] for start in range(0, len(rows), height)]
    return sum(len(frozenset().union(*strip)) for strip in strips)


def shape_of(rank: int, numbers: list[int]) -> ConvolutionShape:
    """A shape that exists, from small numbers."""
    draw = iter(numbers)
    kernel, stride, dilation = (tuple(1 + next(draw) % top for _ in range(rank)) for top in (3, 3, 2))
    padding = tuple(next(draw) % (edge + 1) for edge in kernel)
    reach = [step * (edge - 1) + 1 for edge, step in zip(kernel, dilation, strict=True)]
    in_size = tuple(edge + next(draw) % (6 if rank < 3 else 3) for edge in reach)  # noqa: PLR2004
    groups = 1 + next(draw) % 3
    return ConvolutionShape(
        1 + next(draw) % 2, groups * (1 + next(draw) % 3), groups * (1 + next(draw) % 3),
        in_size, kernel, stride, padding, dilation, groups,
    )  # fmt: skip


shapes = st.builds(shape_of, st.integers(1, 3), st.lists(st.integers(0, 30), min_size=20, max_size=20))
ROWS = {"forward": forward_rows, "input_gradient": input_rows, "weight_gradient": weight_rows}


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_multiply_accumulates_are_those_of_the_loop_nest(shape):
    """Padding counted; the same in all three products."""
    per_group = sum(1 for image, pixel in pixels(shape) for _ in taps(shape, pixel))
    channels = (shape.in_channels // shape.groups) * (shape.out_channels // shape.groups)
    expected = shape.groups * channels * per_group
    assert [getattr(shape, which).macs for which in ROWS] == [expected] * 3
    reached = max(place[0] for _, pixel in pixels(shape) for _, place in taps(shape, pixel))
    assert reached < shape.in_size[0] + shape.padding[0]
    assert reached + shape.stride[0] >= shape.in_size[0] + shape.padding[0]


@settings(max_examples=200, deadline=None)
@given(shapes, st.sampled_from(sorted(ROWS)), st.integers(1, 40))
def test_strips_move_no_more_than_is_counted(shape, which, height):
    """q strips u + (q - 1) h, or what their rows have; and u is the tensor, where that is less than the matrix."""
    matmul: Matmul = getattr(shape, which)
    rows = ROWS[which](shape)
    tensor = (shape.out_elements if which == "input_gradient" else shape.in_elements) // shape.groups
    assert matmul.distinct_left == min(tensor, matmul.m * matmul.k)
    assert len(frozenset().union(*rows)) <= tensor
    if matmul.left_elements:
        num_strips = -(-len(rows) // height)
        assert moved(rows, height) <= tensor + (num_strips - 1) * matmul.left_overlap
    elif which != "input_gradient":
        assert moved(rows, height) <= matmul.m * matmul.k


def test_the_overlap_is_reached():
    """A row of 3x3 patches cut in its midst shares two rows of the image and two pixels more."""
    shape = ConvolutionShape(1, 2, 3, (9, 8), (3, 3))
    rows = forward_rows(shape)
    cut = 3 * shape.out_size[1] + 2
    shared = frozenset().union(*rows[:cut]) & frozenset().union(*rows[cut:])
    assert len(shared) == shape.forward.left_overlap == 2 * (2 * 8 + 2)


def test_published_sizes():
    """ResNet-18's first layer (He et al. 2016) and a transposed, a dilated and a grouped one (PyTorch's formula)."""
    first = ConvolutionShape(1, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3))
    assert (first.out_size, first.forward.macs, first.weight_elements) == ((112, 112), 118_013_952, 9_408)
    assert ConvolutionShape(1, 1, 1, (10,), (3,), dilation=(4,)).out_size == (2,)
    grouped = ConvolutionShape(2, 256, 256, (14, 14), (3, 3), padding=(1, 1), groups=32)
    assert grouped.weight_elements == 256 * 8 * 9
    assert grouped.forward.macs == 2 * 14 * 14 * 256 * 8 * 9


def test_a_product_with_nothing_to_share_is_a_plain_matmul():
    """1x1 of any stride; and patches that do not overlap."""
    plain = ConvolutionShape(4, 64, 256, (56, 56), (1, 1)).forward
    assert plain == Matmul(1, m=4 * 56 * 56, n=256, k=64)
    patches = ConvolutionShape(4, 3, 768, (224, 224), (16, 16), (16, 16)).forward
    assert patches == Matmul(1, m=4 * 196, n=768, k=prod((3, 16, 16)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernel": (3,)}, "every size must have a number for each axis"),
        ({"groups": 3}, "groups must divide the channels"),
        ({"kernel": (9, 9)}, "kernel must fit into the padded image"),
        ({"stride": (0, 1)}, "must be positive"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, words):
    sizes = {"batch": 1, "in_channels": 4, "out_channels": 4, "in_size": (6, 6), "kernel": (3, 3)} | changes
    with pytest.raises(InputError, match=words):
        ConvolutionShape(**sizes)


def test_a_matmul_refuses_more_elements_than_its_operand():
    with pytest.raises(InputError, match="left_elements = 7"):
        Matmul(1, 2, 2, 3, left_elements=7)
    with pytest.raises(InputError, match="left_overlap = 5"):
        Matmul(1, 2, 2, 3, left_elements=4, left_overlap=5)
