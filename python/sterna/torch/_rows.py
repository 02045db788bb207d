"""Rows of products, norms, reductions and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

import torch
from sterna import Value

from ._convert import TYPES, Lowering, NotTaken
from ._pointwise import inner_type, out_type
from ._shapes import place, shape_of

aten = torch.ops.aten
PRODUCTS = ("f32", "bf16", "f16")


def factor(c: Lowering, node: Any, rank: int) -> tuple[Value, bool]:
    """A factor of a product, and if it is to be transposed: a transposition that a node makes is one of the
    product."""
    if isinstance(node, Node) and node.target in (aten.permute.default, aten.t.default, aten.transpose.int):
        swapped = list(range(rank - 2)) + [rank - 1, rank - 2]
        more: Any = node.args[1:]
        if node.target is aten.permute.default:
            is_swap = [place(axis, rank) for axis in more[0]] == swapped
        elif node.target is aten.transpose.int:
            is_swap = {place(axis, rank) for axis in more} == {rank - 1, rank - 2}
        else:
            is_swap = rank == 2
        if is_swap:
            source: Any = node.args[0]
            return c.operand(source, False), True
    return c.operand(node, False), False


def product(c: Lowering, *_: Any) -> Value:
    return multiplied(c, c.node.args[0], c.node.args[1], None)


def product_and_bias(c: Lowering, bias: Value, *_: Any, beta: Any = 1, alpha: Any = 1) -> Value:
    if beta != 1 or alpha != 1:
        raise NotTaken("factors")
    return multiplied(c, c.node.args[1], c.node.args[2], bias)


def multiplied(c: Lowering, left: Any, right: Any, bias: Value | None) -> Value:
    """A product of matrices. Rows that a view had gathered in one dim stay where they were."""
    dtype = out_type(c)
    if dtype not in PRODUCTS:
        raise NotTaken(f"products of {dtype}")
    meta = c.meta()
    b, transpose_b = factor(c, right, 2)
    inner = c.meta(left).shape[1]
    source = left.args[0] if left.target in (aten.view.default, aten._unsafe_view.default) else None
    if isinstance(source, Node) and c.meta(source).shape[-1:] == (inner,) and len(c.meta(source).shape) > 2:
        a, transpose_a = c.operand(source, False), False
    else:
        a, transpose_a = factor(c, left, 2)
    operands = [a, b] if bias is None else [a, b, bias]
    made = c.op("MatMul", *operands, transpose_a=transpose_a, transpose_b=transpose_b, dtype=dtype)
    return c.reshape(made, meta.shape)


def unfolded(c: Lowering, node: Any) -> tuple[Node, tuple[int, ...]] | None:
    """A batch of matrices before a view made one dim of its leading ones."""
    if not isinstance(node, Node) or node.target not in (aten.view.default, aten._unsafe_view.default):
        return None
    source = node.args[0]
    if not isinstance(source, Node):
        return None
    shape = c.meta(source).shape
    if len(shape) != 4 or shape[2:] != c.meta(node).shape[1:]:
        return None
    return source, shape[:2]


def through_copies(node: Node) -> Node:
    """The node whose elements a node repeats or copies, in the same dims."""
    while node.target in (aten.clone.default, aten.expand.default):
        source: Any = node.args[0]
        if len(source.meta["val"].shape) != len(node.meta["val"].shape):
            return node
        node = source
    return node


def batched(c: Lowering, left: Any, right: Any, bias: Value | None) -> Value:
    dtype = out_type(c)
    if dtype not in PRODUCTS:
        raise NotTaken(f"products of {dtype}")
    a, b = unfolded(c, left), unfolded(c, right)
    if bias is None and a is not None and b is not None and a[1] == b[1]:
        x, transpose_a = batch_factor(c, a[0])
        y, transpose_b = batch_factor(c, b[0])
        made = c.op("MatMul", x, y, transpose_a=transpose_a, transpose_b=transpose_b, dtype=dtype)
        if shape_of(made)[:2] != a[1]:
            made = c.full(made, (*a[1], *shape_of(made)[2:]))
        return c.reshape(made, c.meta().shape)
    x, transpose_a = factor(c, left, 3)
    y, transpose_b = factor(c, right, 3)
    operands = [x, y] if bias is None else [x, y, bias]
    return c.op("MatMul", *operands, transpose_a=transpose_a, transpose_b=transpose_b, dtype=dtype)


def batch_factor(c: Lowering, node: Node) -> tuple[Value, bool]:
    source = through_copies(node)
    if c.meta(source).shape[2:] != c.meta(node).shape[2:]:
        return c.operand(node, False), False
    return factor(c, source, 4)


def batched_product(c: Lowering, *_: Any) -> Value:
    return batched(c, c.node.args[0], c.node.args[1], None)


def batched_product_and_bias(c: Lowering, bias: Value, *_: Any, beta: Any = 1, alpha: Any = 1) -> Value:
    dtype = out_type(c)
    made = batched(c, c.node.args[1], c.node.args[2], None)
    rank = (1, 1, 1)
    if alpha != 1:
        made = c.op("Multiply", made, c.fill(alpha, inner_type(dtype), rank), dtype=dtype)
    if beta == 0:
        return made
    if beta != 1:
        bias = c.op("Multiply", bias, c.fill(beta, inner_type(dtype), rank), dtype=dtype)
    return c.op("Add", bias, made, dtype=dtype)


def softmax(c: Lowering, x: Value, axis: int, to_float: bool) -> Value:
    if not shape_of(x):
        raise NotTaken("a single number")
    return c.op("SoftMax", x, axis=axis, mode="none", dtype=out_type(c))


def log_softmax(c: Lowering, x: Value, axis: int, to_float: bool) -> Value:
    if not shape_of(x):
        raise NotTaken("a single number")
    return c.op("LogSoftmax", c.cast(x, out_type(c)), axis=axis)


def softmax_backward(c: Lowering, grad: Value, out: Value, axis: int, dtype: Any) -> Value:
    if not shape_of(out):
        raise NotTaken("a single number")
    return c.cast(c.op("SoftMaxBackward", grad, c.cast(out, grad.dtype), axis=axis), out_type(c))


def log_softmax_backward(c: Lowering, grad: Value, out: Value, axis: int, dtype: Any) -> Value:
    if not shape_of(out):
        raise NotTaken("a single number")
    return c.cast(c.op("LogSoftmaxBackward", grad, c.cast(out, grad.dtype), axis=axis), out_type(c))


def affine(c: Lowering, x: Value, weight: Value | None, bias: Value | None, shape: Any) -> list[Value]:
    """Gamma and beta of a norm, in a type that it takes beside the type of `x`."""
    if weight is None and bias is None:
        return []
    dtype = "bf16" if x.dtype == "bf16" and (weight or bias).dtype == "bf16" else "f32"  # type: ignore[union-attr]
    gamma = c.fill(1, dtype, shape) if weight is None else c.cast(weight, dtype)
    beta = c.fill(0, dtype, shape) if bias is None else c.cast(bias, dtype)
    return [gamma, beta]


def layer_norm(
    c: Lowering, x: Value, shape: Any, weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value | None, ...]:
    metas: Any = c.metas_of(c.node)
    if x.dtype not in PRODUCTS or not shape or 0 in shape:
        raise NotTaken(f"norms of {x.dtype}")
    begin = len(shape_of(x)) - len(shape)
    operands = affine(c, x, weight, bias, shape)
    keeps = c.used(1) or c.used(2)
    settings: dict[str, Any] = {"begin_norm_axis": begin, "use_affine": bool(operands), "epsilon": epsilon}
    settings["keep_stats"] = keeps
    if not keeps:
        return c.op("LayerNorm", x, *operands, **settings), None, None
    y, mean, variance = c.ops("LayerNorm", x, *operands, outputs=3, **settings)
    stats = metas[1].shape
    bare = c.op("Add", c.cast(variance, "f32"), c.fill(epsilon, "f32", (1,) * begin))
    deviation = c.op("Reciprocal", c.op("Sqrt", bare))
    dtype = TYPES[metas[1].dtype]
    return y, c.reshape(c.cast(mean, dtype), stats), c.reshape(c.cast(deviation, dtype), stats)


def layer_norm_backward(
    c: Lowering,
    grad: Value,
    x: Value,
    shape: Any,
    mean: Value,
    deviation: Value,
    weight: Value | None,
    bias: Value | None,
    wanted: Any,
) -> tuple[Value | None, ...]:
    metas: Any = c.metas_of(c.node)
    if x.dtype not in PRODUCTS or not shape or 0 in shape:
        raise NotTaken(f"norms of {x.dtype}")
    begin = len(shape_of(x)) - len(shape)
    rows = shape_of(x)[:begin]
    dtype = "f32"
    inverse = c.reshape(c.cast(deviation, "f32"), rows)
    variance = c.op("Reciprocal", c.op("Multiply", inverse, inverse))
    operands = [x, grad, c.reshape(c.cast(mean, dtype), rows), variance, *affine(c, x, weight, bias, shape)]
    if len(operands) > 4:
        operands[4:] = [c.cast(one, dtype) for one in operands[4:]]
    has_affine = len(operands) > 4
    # The deviation holds epsilon already.
    made = c.ops(
        "LayerNormBackward",
        *operands,
        outputs=3 if has_affine else 1,
        begin_norm_axis=begin,
        use_affine=has_affine,
        epsilon=0.0,
    )
    grads: list[Value | None] = [None, None, None]
    for index, one in enumerate(made):
        if metas[index] is not None and c.used(index):
            grads[index] = c.cast(one, TYPES[metas[index].dtype])
    return tuple(grads)


def reduce(kind: str) -> Callable[..., Value]:
    def make(c: Lowering, x: Value, axes: Any = None, keep: bool = False, dtype: Any = None) -> Value:
        out = out_type(c)
        if out not in PRODUCTS:
            raise NotTaken(f"sums of {out}")
        return reduced(c, kind, c.cast(x, out), axes, keep)

    return make


def reduced(c: Lowering, kind: str, x: Value, axes: Any, keep: bool) -> Value:
    rank = len(shape_of(x))
    if isinstance(axes, int):
        axes = [axes]
    chosen = list(range(rank)) if not axes else [place(axis, rank) for axis in axes]
    if not chosen:
        raise NotTaken("a single number")
    return c.op(kind, x, axes=chosen, keep_dims=keep)


def extreme(kind: str) -> Callable[..., Value]:
    def make(c: Lowering, x: Value, axes: Any = (), keep: bool = False) -> Value:
        if x.dtype not in PRODUCTS:
            raise NotTaken(f"extremes of {x.dtype}")
        return reduced(c, kind, x, axes, keep)

    return make


def any_of(c: Lowering, x: Value, axes: Any = None, keep: bool = False) -> Value:
    count = c.cast(c.cast(x, "boolean"), "f32")
    total = reduced(c, "ReduceSum", count, axes, keep)
    return c.op("NotEqual", total, c.fill(0, "f32", (1,) * len(shape_of(total))))


def place_of(kind: str) -> Callable[..., Value]:
    def make(c: Lowering, x: Value, axis: Any = None, keep: bool = False) -> Value:
        if axis is None or not shape_of(x) or x.dtype == "boolean":
            raise NotTaken("a place in all dims")
        return c.op(kind, x, axis=axis, keep_dims=keep, dtype="s64")

    return make


def extreme_and_place(extreme_kind: str, place_kind: str) -> Callable[..., tuple[Value, Value]]:
    value_of, index_of = extreme(extreme_kind), place_of(place_kind)

    def make(c: Lowering, x: Value, axis: int, keep: bool = False) -> tuple[Value, Value]:
        return value_of(c, x, [axis], keep), index_of(c, x, axis, keep)

    return make


def top(c: Lowering, x: Value, k: int, axis: int = -1, largest: bool = True, sort: bool = True) -> tuple[Value, ...]:
    if not shape_of(x) or x.dtype == "boolean":
        raise NotTaken("a single number")
    return c.ops("TopK", x, outputs=2, k=k, axis=axis, largest=largest, dtype="s64")


def sort(c: Lowering, x: Value, axis: int = -1, descending: bool = False) -> tuple[Value, ...]:
    shape = shape_of(x)
    return top(c, x, shape[axis] if shape else 1, axis, descending)


def stable_sort(
    c: Lowering, x: Value, *, stable: Any = None, dim: int = -1, descending: bool = False
) -> tuple[Value, ...]:
    return sort(c, x, dim, descending)
