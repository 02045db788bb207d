"""Rows of pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sterna import Value

from ._convert import Lowering, NotTaken
from ._rows import PRODUCTS
from ._shapes import shape_of

aten = torch.ops.aten

#: Fewest channels and elements of an image that is worth copying for a pool with its places (decision: torch-places).
CHANNELS, ELEMENTS = 16, 1 << 14


def listed(given: Sequence[int] | int, count: int) -> list[int]:
    """A number for each spatial dim, where torch takes one for all."""
    numbers = [given] if isinstance(given, int) else list(given)
    return numbers * count if len(numbers) == 1 else numbers


def check_type(x: Value) -> None:
    if x.dtype not in PRODUCTS:
        raise NotTaken(f"windows of {x.dtype}")


def steps(count: int, stride: Any, padding: Any) -> dict[str, Any]:
    """The attributes that all pools share, for so many spatial dims."""
    pads = listed(padding, count)
    return {"strides": listed(stride, count), "pads_begin": pads, "pads_end": pads, "data_format": "NCX"}


def max_pool(
    c: Lowering, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple[Value | None, Value | None]:
    if c.used(1):
        raise NotTaken("the places of the largest elements")
    rounding = "ceil" if ceil else "floor"
    dilations = listed(dilation, spatial_dims(c))
    return pool(c, "MaxPool", x, kernel, stride, padding, dilations=dilations, rounding_type=rounding), None


def max_pool_in_torch(x: torch.Tensor, *given: Any, **more: Any) -> Any:
    """The pool of torch with its places, by the kernel for channels that are neighbours: the other one takes several
    times as long as that and two copies."""
    if x.dim() == 4 and x.shape[1] >= CHANNELS and x.numel() >= ELEMENTS and x.is_contiguous():
        x = x.contiguous(memory_format=torch.channels_last)
    return aten.max_pool2d_with_indices.default(x, *given, **more)


def spatial_dims(c: Lowering) -> int:
    return 3 if c.node.target in (aten.max_pool3d_with_indices.default, aten.avg_pool3d.default) else 2


def pool(c: Lowering, kind: str, x: Value, kernel: Any, stride: Any, padding: Any, **more: Any) -> Value:
    """A pool of images, of which torch may leave out the batch."""
    check_type(x)
    count, shape = spatial_dims(c), shape_of(x)
    has_batch = len(shape) == count + 2
    if not has_batch:
        x = c.reshape(x, (1, *shape))
    kernel = listed(kernel, count)
    made = c.op(kind, x, kernel=kernel, **steps(count, stride or kernel, padding), **more)
    return made if has_batch else c.reshape(made, shape_of(made)[1:])


def avg_pool(
    c: Lowering,
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    # Where a window reaches beyond the padding, torch counts what lies within it.
    if ceil or divisor is not None:
        raise NotTaken("means by another number of elements")
    return pool(c, "AvgPool", x, kernel, stride, padding, exclude_pad=not count_padding)


def adaptive_avg_pool(c: Lowering, x: Value, sizes: Sequence[int]) -> Value:
    image = shape_of(x)[-2:]
    if any(size == 0 or dim == 0 or dim % size for dim, size in zip(image, sizes, strict=True)):
        raise NotTaken("windows of several sizes")
    kernel = [dim // size for dim, size in zip(image, sizes, strict=True)]
    return pool(c, "AvgPool", x, kernel, kernel, 0, exclude_pad=False)


def avg_pool_backward(
    c: Lowering,
    grad: Value,
    x: Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Value:
    check_type(x)
    shape, rank = shape_of(x), len(shape_of(x))
    if ceil or divisor is not None or rank < 4:
        raise NotTaken("means by another number of elements")
    kernel = listed(kernel, rank - 2)
    attributes = steps(rank - 2, stride or kernel, padding)
    more: dict[str, Any] = {"exclude_pad": not count_padding, "src_shape": list(shape)}
    return c.op("AvgPoolBackward", grad, kernel=kernel, **attributes, **more)
