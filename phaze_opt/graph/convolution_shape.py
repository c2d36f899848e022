"""Sizes of convolutions, and the three products that they are: forward, gradient of the input, gradient of the weight.

Each is a matmul whose left operand is made of patches on its way into the arrays (implicit im2col): HBM sees the tensor
behind them. All three have batch x out pixels x out channels x (in channels / groups) x kernel multiply-accumulates,
padding included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import Matmul

Edges = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """A convolution over images of one, two or three axes; every tuple has a number for each axis.

    Attributes:
        batch: images.
        in_channels, out_channels: of all groups together.
        in_size: edges of an image, without padding.
        kernel: edges of the kernel.
        stride: steps between patches; 1 everywhere if empty.
        padding: zeros before and behind each axis; none if empty.
        dilation: distance between taps; 1 everywhere if empty.
        groups: channels are split into so many parts that do not mix.
        given_out_size: edges of an image of the result where zeros before and behind an axis differ in number; what
            the other sizes say if empty.
    """

    batch: int
    in_channels: int
    out_channels: int
    in_size: Edges
    kernel: Edges
    stride: Edges = ()
    padding: Edges = ()
    dilation: Edges = ()
    groups: int = 1
    given_out_size: Edges = ()

    def __post_init__(self) -> None:
        """Fill in what is empty; refuse sizes that do not fit together."""
        rank = len(self.in_size)
        for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1)):
            object.__setattr__(self, name, tuple(getattr(self, name)) or (usual,) * rank)
        given = self.given_out_size or self.in_size
        axes = (self.in_size, self.kernel, self.stride, self.padding, self.dilation, given)
        counts = (self.batch, self.in_channels, self.out_channels, self.groups, *self.in_size, *self.kernel)
        if rank < 1 or any(len(each) != rank for each in axes):
            message = f"convolution {self}: every size must have a number for each axis of in_size"
            raise InputError(message)
        if min(*counts, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            message = f"convolution {self}: sizes must be positive, and padding not negative"
            raise InputError(message)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            message = f"convolution {self}: groups must divide the channels on both sides"
            raise InputError(message)
        if min(self.out_size) < 1:
            message = f"convolution {self}: the kernel must fit into the padded image"
            raise InputError(message)
        if any(not least <= size <= most for size, least, most in zip(self.out_size, *self._out_limits, strict=True)):
            message = f"convolution {self}: no padding by less than a patch gives images of {list(self.out_size)}"
            raise InputError(message)

    @property
    def reach(self) -> Edges:
        """Edges of a patch, from its first tap to its last."""
        return tuple(dilation * (taps - 1) + 1 for taps, dilation in zip(self.kernel, self.dilation, strict=True))

    @property
    def out_size(self) -> Edges:
        """Edges of an image of the result."""
        return self.given_out_size or self._padded_by([2 * padding for padding in self.padding])

    @property
    def _out_limits(self) -> tuple[Edges, Edges]:
        """Edges of a result without padding, and with a patch more of it on both sides than is stated."""
        most = [2 * (padding + reach) for padding, reach in zip(self.padding, self.reach, strict=True)]
        return self._padded_by([0] * len(most)), self._padded_by(most)

    def _padded_by(self, padding: Sequence[int]) -> Edges:
        """Edges of a result of images with so many zeros more on every axis."""
        axes = zip(self.in_size, self.reach, self.stride, padding, strict=True)
        return tuple((size + more - reach) // stride + 1 for size, reach, stride, more in axes)

    @property
    def pixels(self) -> int:
        """Of all images of the result."""
        return self.batch * prod(self.out_size)

    @property
    def in_elements(self) -> int:
        """Elements of the input."""
        return self.batch * self.in_channels * prod(self.in_size)

    @property
    def out_elements(self) -> int:
        """Elements of the result."""
        return self.pixels * self.out_channels

    @property
    def weight_elements(self) -> int:
        """Elements of the kernels."""
        return self.out_channels * (self.in_channels // self.groups) * prod(self.kernel)

    @property
    def forward(self) -> Matmul:
        """Patches of the input by kernels: a row for each pixel of the result."""
        channels = self.in_channels // self.groups
        shared = channels * _shared_pixels(self.in_size, self.reach, self.stride)
        return self._product(
            m=self.pixels,
            n=self.out_channels // self.groups,
            k=channels * prod(self.kernel),
            left_elements=self.in_elements // self.groups,
            left_overlap=shared,
        )

    @property
    def input_gradient(self) -> Matmul:
        """Patches of the result's gradient by kernels.

        A stride of s makes s products an axis, each with a share of the taps for a share of the pixels; together they
        have the rows of one product over the pixels of the result, and its taps.
        """
        channels = self.out_channels // self.groups
        reach = tuple(-(-edge // stride) for edge, stride in zip(self.reach, self.stride, strict=True))
        shared = channels * _shared_pixels(self.out_size, reach, (1,) * len(reach))
        return self._product(
            m=self.pixels,
            n=self.in_channels // self.groups,
            k=channels * prod(self.kernel),
            left_elements=self.out_elements // self.groups,
            left_overlap=shared,
        )

    @property
    def weight_gradient(self) -> Matmul:
        """Patches of the input, a row for each tap of each channel, by the result's gradient."""
        channels, taps = self.in_channels // self.groups, prod(self.kernel)
        elements = self.in_elements // self.groups
        return self._product(
            m=channels * taps,
            n=self.out_channels // self.groups,
            k=self.pixels,
            left_elements=elements,
            left_overlap=elements // channels,
        )

    def _product(self, *, m: int, n: int, k: int, left_elements: int, left_overlap: int) -> Matmul:
        """The product of every group; its left operand as it is where that has no more elements than the tensor."""
        if left_elements >= m * k:
            left_elements = left_overlap = 0
        shared = min(left_overlap, left_elements)
        return Matmul(
            self.groups, m, n, k, left_elements=left_elements, left_overlap=shared, is_grouped=self.groups > 1
        )


def _shared_pixels(size: Sequence[int], reach: Sequence[int], stride: Sequence[int]) -> int:
    """Most pixels of an image that patches before a cut and patches behind it share, in the order of the pixels.

    A cut lies within a row of patches. Whole rows are shared where a row's patches reach into those of the next, and
    the row that is cut shares what its own patches do, over at most the step between rows.
    """
    if not size:
        return 0
    rows = max(0, reach[0] - stride[0])
    return rows * prod(size[1:]) + min(reach[0], stride[0]) * _shared_pixels(size[1:], reach[1:], stride[1:])
