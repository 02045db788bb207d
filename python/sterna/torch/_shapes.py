"""Rows of ops that move elements, and of lookups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sterna import Value

from ._convert import TYPES, Lowering, NotTaken, is_view
from ._sizes import Meta


def shape_of(value: Value) -> tuple[int, ...]:
    """The dims of a value, which are all known."""
    shape = value.shape
    if shape is None or any(dim is None for dim in shape):
        raise NotTaken("a shape that is not known")
    return shape  # type: ignore[return-value]


def place(axis: int, rank: int) -> int:
    """An axis, counted from the first one."""
    return axis + rank if axis < 0 else axis


def source_meta(c: Lowering) -> Meta:
    """How the first argument was traced."""
    return c.meta(c.node.args[0])


def view(c: Lowering, x: Value, *_: Any) -> Value:
    if shape_of(x) != source_meta(c).shape:
        return lazy_view(c, x)
    return c.reshape(x, c.meta().shape)


def lazy_view(c: Lowering, x: Value) -> Value:
    """A view of what still lacks repetitions: dims of 1 that come and go change nothing about them."""
    before, after = source_meta(c).shape, c.meta().shape
    if [dim for dim in before if dim != 1] == [dim for dim in after if dim != 1]:
        kept = iter([have for have, dim in zip(shape_of(x), before, strict=True) if dim != 1])
        return c.reshape(x, [1 if dim == 1 else next(kept) for dim in after])
    return c.reshape(c.full(x, before), after)


def permute(c: Lowering, x: Value, order: Sequence[int]) -> Value:
    rank = len(shape_of(x))
    order = [place(axis, rank) for axis in order]
    return x if order == list(range(rank)) else c.op("StaticTranspose", x, order=order)


def transpose(c: Lowering, x: Value, a: int, b: int) -> Value:
    order = list(range(len(shape_of(x))))
    if not order:
        return x
    order[a], order[b] = order[b], order[a]
    return permute(c, x, order)


def transpose_all(c: Lowering, x: Value) -> Value:
    return permute(c, x, list(range(len(shape_of(x))))[::-1])


def expand(c: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    shape = shape_of(x)
    return c.reshape(x, (1,) * (len(c.meta().shape) - len(shape)) + shape)


def repeat(c: Lowering, x: Value, counts: Any) -> Value:
    """A tensor behind itself along each dim: a dim of its own for each count, then one dim of both."""
    dims = (1,) * (len(counts) - len(shape_of(x))) + shape_of(x)
    apart = [size for count, dim in zip(counts, dims, strict=True) for size in (count, dim)]
    single = [size for dim in dims for size in (1, dim)]
    return c.reshape(c.full(c.reshape(x, single), apart), c.meta().shape)


def unsqueeze(c: Lowering, x: Value, axis: int) -> Value:
    shape = list(shape_of(x))
    shape.insert(place(axis, len(shape) + 1), 1)
    return c.reshape(x, shape)


def squeeze(c: Lowering, x: Value, axes: Any = None) -> Value:
    traced = source_meta(c).shape
    rank = len(traced)
    chosen = range(rank) if axes is None else (axes,) if isinstance(axes, int) else axes
    gone = {place(axis, rank) for axis in chosen if rank and traced[axis] == 1}
    return c.reshape(x, [dim for axis, dim in enumerate(shape_of(x)) if axis not in gone])


def cut(c: Lowering, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """A range of a dim of a value that may lack repetitions; bounds lie within what was traced."""
    shape = shape_of(x)
    if start == 0 and step == 1 and end >= shape[axis] and shape[axis] != 1:
        return x
    if shape[axis] == 1 and end > start:
        return x
    return c.op("Slice", x, starts=[start], ends=[end], steps=[step], axes=[axis])


def bounded(number: Any, size: int, default: int) -> int:
    if number is None:
        return default
    place = int(number)
    return max(0, min(size, place + size if place < 0 else place))


def slice_of(c: Lowering, x: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    traced = source_meta(c).shape
    axis = place(axis, len(traced))
    size = traced[axis]
    start = bounded(start, size, 0)
    end = max(start, bounded(end, size, size))
    if shape_of(x)[axis] != size and c.meta().shape[axis] == 0:
        x = c.full(x, traced)
    return cut(c, x, axis, start, end, step)


def select(c: Lowering, x: Value, axis: int, index: int) -> Value:
    traced = source_meta(c).shape
    axis = place(axis, len(traced))
    index = place(index, traced[axis])
    piece = cut(c, x, axis, index, index + 1)
    shape = list(shape_of(piece))
    del shape[axis]
    return c.reshape(piece, shape)


def split(c: Lowering, x: Value, sizes: Any, axis: int = 0) -> tuple[Value | None, ...]:
    traced = source_meta(c).shape
    axis = place(axis, len(traced))
    if isinstance(sizes, int):
        count = max(1, -(-traced[axis] // max(sizes, 1)))
        sizes = [min(sizes, traced[axis] - index * sizes) for index in range(count)]
    pieces: list[Value | None] = []
    start = 0
    for index, size in enumerate(sizes):
        if size == 0:
            raise NotTaken("a piece without elements")
        pieces.append(cut(c, x, axis, start, start + size) if c.used(index) else None)
        start += size
    return tuple(pieces)


def unbind(c: Lowering, x: Value, axis: int = 0) -> tuple[Value | None, ...]:
    count = source_meta(c).shape[axis]
    return tuple(select(c, x, axis, index) if c.used(index) else None for index in range(count))


def as_strided(c: Lowering, x: Value, shape: Any, strides: Any, offset: Any = None) -> Value:
    """A view by strides that says of a new tensor what holds already; torch makes any other one, which copies nothing."""
    source: Any = c.node.args[0]
    meta = source_meta(c)
    pairs = zip(meta.shape, meta.strides, strides, strict=False)
    is_same = tuple(shape) == meta.shape and all(dim == 1 or one == other for dim, one, other in pairs)
    if not is_same or offset or source.op != "call_function" or is_view(source):
        raise NotTaken("another view of the same memory")
    return x


def cat(c: Lowering, values: Sequence[Value], axis: int = 0) -> Value:
    meta = c.meta()
    kept = [c.cast(value, TYPES[meta.dtype]) for value in values if shape_of(value) != (0,) or len(meta.shape) == 1]
    if len(kept) == 1:
        return kept[0]
    if len(kept) > 64:
        raise NotTaken("more than 64 pieces")
    return c.op("Concat", *kept, axis=place(axis, len(meta.shape)))


def pad(c: Lowering, x: Value, pads: Sequence[int], number: Any = 0) -> Value:
    rank = len(shape_of(x))
    for pair in range(len(pads) // 2):
        axis = rank - 1 - pair
        before, after = pads[2 * pair], pads[2 * pair + 1]
        size = shape_of(x)[axis]
        if before < 0 or after < 0:
            x = cut(c, x, axis, max(0, -before), size - max(0, -after))
        shape = shape_of(x)

        def margin(width: int) -> list[Value]:
            return [c.fill(number, x.dtype, (*shape[:axis], width, *shape[axis + 1 :]))] if width > 0 else []

        parts = [*margin(before), x, *margin(after)]
        x = c.op("Concat", *parts, axis=axis) if len(parts) > 1 else x
    return x


def slice_scatter(
    c: Lowering, x: Value, source: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    if step != 1:
        raise NotTaken("a step that is not 1")
    shape = shape_of(x)
    axis = place(axis, len(shape))
    start = bounded(start, shape[axis], 0)
    end = max(start, bounded(end, shape[axis], shape[axis]))
    return put(c, x, c.cast(source, x.dtype), axis, start, end)


def select_scatter(c: Lowering, x: Value, source: Value, axis: int, index: int) -> Value:
    shape = list(shape_of(x))
    axis = place(axis, len(shape))
    index = place(index, shape[axis])
    shape[axis] = 1
    return put(c, x, c.reshape(c.cast(source, x.dtype), shape), axis, index, index + 1)


def put(c: Lowering, x: Value, source: Value, axis: int, start: int, end: int) -> Value:
    """A value with another one in place of a range."""
    size = shape_of(x)[axis]
    parts = [source] if end > start else []
    if start > 0:
        parts.insert(0, c.op("Slice", x, starts=[0], ends=[start], steps=[1], axes=[axis]))
    if end < size:
        parts.append(c.op("Slice", x, starts=[end], ends=[size], steps=[1], axes=[axis]))
    return c.op("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


def indices_of(value: Value) -> Value:
    if value.dtype not in ("s32", "s64"):
        raise NotTaken(f"indices of type {value.dtype}")
    return value


def from_first(c: Lowering, node: Any, indices: Value, size: int) -> Value:
    """Indices that torch counts from the first element alone: those below 0, which a lookup would count from the end,
    become one that it refuses."""
    known = c.known(node)
    if known is not None and bool((known >= 0).all()):
        return indices_of(indices)
    rank = (1,) * len(shape_of(indices))
    is_below = c.op("Less", indices_of(indices), c.fill(0, indices.dtype, rank))
    beyond = c.fill(size, indices.dtype, rank)
    return c.op("Select", is_below, beyond, indices, auto_broadcast="multidirectional")


def embedding(c: Lowering, weight: Value, indices: Value, *_: Any) -> Value:
    return c.op("Gather", weight, from_first(c, c.node.args[1], indices, shape_of(weight)[0]), axis=0)


def embedding_backward(c: Lowering, grad: Value, indices: Value, count: int, padding: int, by_count: bool) -> Value:
    if by_count:
        raise NotTaken("gradients divided by counts")
    indices = indices_of(indices)
    rank = len(shape_of(indices))
    if padding >= 0:
        hidden = c.op("Equal", indices, c.fill(padding, indices.dtype, (1,) * rank))
        hidden = c.reshape(hidden, (*shape_of(indices), 1))
        zero = c.fill(0, grad.dtype, (1,) * (rank + 1))
        grad = c.op("Select", hidden, zero, grad, auto_broadcast="multidirectional")
    return c.op("GatherBackward", grad, indices, src_shape=[count, shape_of(grad)[-1]], axis=0)


def gather(c: Lowering, x: Value, axis: int, indices: Value, **_: Any) -> Value:
    if not shape_of(x):
        raise NotTaken("a lookup in a single number")
    node: Any = c.node.args[2]
    return c.op("GatherElements", x, indices_of(c.repeated(node)), axis=axis)


def index_select(c: Lowering, x: Value, axis: int, indices: Value) -> Value:
    if not shape_of(x) or len(shape_of(indices)) != 1:
        raise NotTaken("a lookup in a single number")
    return c.op("Gather", x, from_first(c, c.node.args[2], indices, shape_of(x)[axis]), axis=axis)


def index(c: Lowering, x: Value, indices: Sequence[Value | None]) -> Value:
    shape = shape_of(x)
    given = [one for one in indices if one is not None]
    if any(one.dtype not in ("s32", "s64") for one in given):
        raise NotTaken("a lookup by a mask")
    places = [axis for axis, one in enumerate(indices) if one is not None]
    nodes: Any = c.node.args[1]
    if places == list(range(len(shape))) and is_grid([c.known(one) for one in nodes], shape):
        return c.reshape(x, c.meta().shape)
    if len(given) == 1:
        return c.op("Gather", x, given[0], axis=places[0])
    if places != list(range(len(places))):
        raise NotTaken("a lookup along dims that are not the first ones")
    spread: tuple[int, ...] = torch.broadcast_shapes(*map(shape_of, given))  # type: ignore[no-untyped-call]
    columns = [c.reshape(c.full(c.cast(one, "s64"), spread), (*spread, 1)) for one in given]
    return c.op("GatherND", x, c.op("Concat", *columns, axis=len(spread)))


def is_grid(known: Sequence[torch.Tensor | None], shape: Sequence[int]) -> bool:
    """If indices along all dims name each element once, in order."""
    if not known or any(one is None for one in known):
        return False
    axes: list[int] = []
    for one, size in zip(known, shape, strict=True):
        assert one is not None
        if one.numel() != size or not torch.equal(one.flatten(), torch.arange(size, dtype=one.dtype)):
            return False
        own = [axis - one.dim() for axis, dim in enumerate(one.shape) if dim != 1]
        axes.extend(own)
    return axes == sorted(axes)
