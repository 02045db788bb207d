"""Rows of convolutions, transposed ones, and their gradients.

All of them are products, whose columns are channels of the result. torch keeps those that its kernels are faster at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sterna import Value

from ._convert import Lowering, NotTaken
from ._pools import check_type, listed, steps
from ._shapes import shape_of

aten = torch.ops.aten

#: Most channels of a result that do not fill the columns of a tile (decision: torch-columns).
COLUMNS = 32
#: Channels of groups that have a kernel of their own in f32.
SMALL_GROUPS = (4, 8)
#: Most elements of a window of a channel on its own, if it has more than one dim (decision: torch-windows).
WINDOW = 24
#: Fewest channels of an image whose gradient of weights is taken: those on their own, those of a group, and all of them
#: (decision: torch-weights).
ALONE, GROUPED, CHANNELS = 128, 64, 256
#: How many times the elements of a result weights may be that are packed for each call (decision: torch-scattered).
PACKED = 3


@dataclass(frozen=True)
class Layer:
    """What decides who computes a convolution: channels of a group on both sides, its window and its type."""

    dtype: str
    groups: int
    of_source: int
    of_result: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]

    @staticmethod
    def of(x: Value, weight: Value, stride: Sequence[int], transposed: bool, groups: int) -> Layer:
        shape, rank = shape_of(weight), len(shape_of(x))
        of_source, of_result = (shape[0] // groups, shape[1]) if transposed else (shape[1], shape[0] // groups)
        return Layer(x.dtype, groups, of_source, of_result, shape[2:], tuple(listed(stride, rank - 2)))

    @property
    def window(self) -> int:
        return math.prod(self.kernel)

    @property
    def is_alone(self) -> bool:
        """If each channel has a kernel of its own."""
        return self.groups > 1 and self.of_source == 1

    @property
    def has_own_kernel(self) -> bool:
        """If its groups have a kernel of their own, or torch has none for its dims."""
        is_small = self.groups > 1 and self.of_source == self.of_result and self.of_source in SMALL_GROUPS
        return self.dtype == "f32" and (is_small or len(self.kernel) == 3)

    def check_columns(self, columns: int) -> None:
        """Refuses a product of windows that torch is faster at."""
        if self.is_alone:
            if self.window > WINDOW and len(self.kernel) > 1 and math.prod(self.stride) == 1:
                raise NotTaken("large windows of single channels")
        elif columns <= COLUMNS and self.window > 1 and not self.has_own_kernel:
            raise NotTaken(f"windows that give {COLUMNS} channels or fewer")

    def check_scattered(self, weight: Value, shape: Sequence[int]) -> None:
        """Refuses weights that are packed anew for each remainder of places by the stride, if they are many."""
        if math.prod(self.stride) > 1 and math.prod(shape_of(weight)) > PACKED * math.prod(shape):
            raise NotTaken("many weights of strides that change")

    def check_weights(self, is_last: bool) -> None:
        """Refuses a gradient of weights that torch is faster at."""
        if self.window == 1 or self.has_own_kernel:
            return
        if self.is_alone:
            if self.groups < ALONE and self.window <= WINDOW:
                raise NotTaken(f"weights of fewer than {ALONE} single channels")
        elif not is_last:
            raise NotTaken("weights of windows whose channels lie apart")
        elif self.of_source < GROUPED or self.of_source * self.groups < CHANNELS:
            raise NotTaken(f"weights of windows of fewer than {CHANNELS} channels, or {GROUPED} of a group")


def attributes(rank: int, stride: Any, padding: Any, dilation: Any, groups: int, weights_format: str) -> dict[str, Any]:
    """The attributes that convolutions and their gradients share, for images of a rank."""
    made = steps(rank - 2, stride, padding)
    return made | {"dilations": listed(dilation, rank - 2), "groups": groups, "weights_format": weights_format}


def convolution(
    c: Lowering,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    check_type(x)
    rank = len(shape_of(x))
    layer = Layer.of(x, weight, stride, transposed, groups)
    layer.check_columns(layer.of_result)
    shared = attributes(rank, stride, padding, dilation, groups, "IOX" if transposed else "OIX")
    operands = [x, weight] if bias is None else [x, weight, bias]
    if not transposed:
        return c.op("Convolution", *operands, **shared)
    if not c.keeps_packed(c.node.args[1]):
        layer.check_scattered(weight, c.meta().shape)
    return c.op("ConvTranspose", *operands, output_padding=listed(output_padding, rank - 2), **shared)


def convolution_backward(
    c: Lowering,
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Value | None, ...]:
    check_type(x)
    shape, rank = shape_of(x), len(shape_of(x))
    layer = Layer.of(x, weight, stride, transposed, groups)
    shared = attributes(rank, stride, padding, dilation, groups, "IOX" if transposed else "OIX")
    made: list[Value | None] = [None, None, None]
    if wanted[0]:
        layer.check_columns(layer.of_source)
        if transposed:
            made[0] = c.op("ConvTransposeBackwardData", grad, weight, **shared)
        else:
            layer.check_scattered(weight, shape)
            made[0] = c.op("ConvolutionBackwardData", grad, weight, dst_shape=list(shape), **shared)
    if wanted[1]:
        layer.check_weights(c.meta(c.node.args[1]).strides[1] == 1)
        kind = "ConvTransposeBackwardWeights" if transposed else "ConvolutionBackwardWeights"
        made[1] = c.op(kind, x, grad, weights_shape=list(shape_of(weight)), **shared)
    if wanted[2]:
        made[2] = c.op("ReduceSum", grad, axes=[0, *range(2, rank)], keep_dims=False)
    return tuple(made)


def gradients_apart(*args: Any) -> Any:
    """The gradient of data and those of weights and bias as two nodes, of which torch may keep one."""
    *given, wanted = args
    if not wanted[0] or not (wanted[1] or wanted[2]):
        return NotImplemented
    of_data = aten.convolution_backward.default(*given, [True, False, False])[0]
    _, of_weights, of_bias = aten.convolution_backward.default(*given, [False, *wanted[1:]])
    return of_data, of_weights, of_bias
