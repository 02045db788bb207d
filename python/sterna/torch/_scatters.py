"""Rows of ops that put elements at places. Of several at one place the last one stands, as in torch.

What torch is faster at stays there: sums and other reductions at places, one number at many places, elements by
indices of several dims, and places along the first of several dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterna import Value

from ._convert import Lowering, NotTaken
from ._shapes import indices_of, place, shape_of


def scatter(c: Lowering, x: Value, axis: int, indices: Value, source: Value) -> Value:
    shape, dims = shape_of(x), shape_of(indices)
    if not shape or 0 in dims:
        raise NotTaken("a place in a single number, or none")
    if place(axis, len(shape)) == 0 and len(shape) > 1:
        raise NotTaken("places along the first of several dims")
    if shape_of(source) != dims:
        # torch reads no more of its source than there are indices.
        axes = list(range(len(dims)))
        source = c.op("Slice", source, starts=[0] * len(dims), ends=list(dims), steps=[1] * len(dims), axes=axes)
    return c.op("ScatterElements", x, indices_of(indices), source, axis=axis)


def index_put(
    c: Lowering, x: Value, indices: Sequence[Value | None], source: Value, accumulate: bool = False, *_: Any
) -> Value:
    if accumulate:
        raise NotTaken("sums at places")
    first, *more = indices
    if first is None or more:
        raise NotTaken("places by several indices, or along another dim than the first")
    if first.dtype == "boolean":
        return masked_put(c, x, first, source)
    shape, dims = shape_of(x), shape_of(first)
    if x.dtype in ("s64", "f64") or len(shape) == 1 or 0 in dims:
        raise NotTaken("places of single elements, or of wide ones")
    whole = (*dims, *shape[1:])
    source = c.reshape(source, (1,) * (len(whole) - len(shape_of(source))) + shape_of(source))
    places = c.reshape(indices_of(first), (*dims, 1))
    return c.op("ScatterND", x, places, c.full(source, whole))


def masked_put(c: Lowering, x: Value, mask: Value, source: Value) -> Value:
    """One number wherever a mask of the first dims is true."""
    shape = shape_of(x)
    if any(dim != 1 for dim in shape_of(source)):
        raise NotTaken("several elements by a mask")
    kept = c.reshape(mask, shape_of(mask) + (1,) * (len(shape) - len(shape_of(mask))))
    number = c.reshape(source, (1,) * len(shape))
    return c.full(c.op("Select", kept, number, x, auto_broadcast="multidirectional"), shape)
