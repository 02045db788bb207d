"""What is compared: each graph as an expression of arrays and as nodes of ONNX. Sterna reads `examples/graphs`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LOWEST = float(np.finfo(np.float32).min)
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Graph:
    """One meaning, written for the runtimes of two kinds. Inputs have the same names in both."""

    # Computes with the functions of NumPy, JAX or torch, which come first: see `namespace` in python_peers.py.
    expression: Callable[..., Any]
    # A node of ONNX a line; the result is `dst`.
    nodes: str
    # The scalars that the nodes name.
    constants: dict[str, Any] = field(default_factory=dict)
    # A result may differ by `relative` times the answer plus `absolute`; where both are 0, no bit may.
    relative: float = 0.0
    absolute: float = 0.0
    # The model leaves its dims open: otherwise runtimes compute all of it before it runs.
    open_dims: bool = False


def select(xp: Any, cond: Any, then: Any, else_: Any) -> Any:
    return xp.where(cond, then, else_)


SELECT = Graph(select, "dst = Where(cond, then, else_)")


def _indices(xp: Any, x: Any) -> tuple[Any, Any]:
    rows, columns = (xp.arange(dim, dtype=xp.int32) for dim in x.shape[-2:])
    return rows[:, None], columns


def _index_nodes(x: str) -> str:
    return f"""
        row_count = Shape<start=-2, end=-1>({x})
        row_limit = Squeeze(row_count)
        row = Range(zero, row_limit, one)
        rows = Unsqueeze(row, last)
        column_count = Shape<start=-1>({x})
        column_limit = Squeeze(column_count)
        columns = Range(zero, column_limit, one)
    """


_INDEX_CONSTANTS = {"zero": np.int64(0), "one": np.int64(1), "last": np.array([1], np.int64)}


def causal_scale_select(xp: Any, scores: Any, scale: Any) -> Any:
    rows, columns = _indices(xp, scores)
    return xp.where(rows >= columns, scores * scale, LOWEST)


def padding_bias_select(xp: Any, scores: Any, bias: Any, keep: Any) -> Any:
    return xp.where(keep, scores + bias, -math.inf)


def safe_softmax_guard(xp: Any, x: Any) -> Any:
    return xp.where(xp.isnan(x), 0.0, x)


def gelu_gated_select(xp: Any, x: Any, gate: Any, keep: Any) -> Any:
    return xp.where(keep, xp.gelu(x) * gate, xp.zeros((), dtype=x.dtype))


def nan_to_num(xp: Any, x: Any) -> Any:
    x = xp.where(xp.isnan(x), 0.0, x)
    x = xp.where(x == math.inf, LARGEST, x)
    return xp.where(x == -math.inf, LOWEST, x)


def swin_selects(xp: Any, rows: Any, columns: Any, scores: Any) -> Any:
    distance = columns - rows
    mask = xp.where(distance != 0, -100.0, distance)
    return scores + xp.where(distance == 0, 0.0, mask)


def clamp_backward(xp: Any, x: Any, slope: Any) -> Any:
    return xp.where((x >= -1.0) & (x <= 1.0), slope, 0.0)


def t5_bucket(xp: Any, x: Any) -> Any:
    rows, columns = _indices(xp, x)
    distance = xp.astype(columns - rows, xp.int64)
    later = xp.astype(distance > 0, xp.int64) * 16
    near = xp.maximum(distance, -distance)
    far = xp.astype(xp.log(xp.astype(near, xp.float32) * 0.125) * 2.88542, xp.int64) + 8
    return later + xp.where(near < 8, near, xp.clip(far, None, 15))


def chain_of_12(
    xp: Any, x: Any, scale: Any, shift: Any, divisor: Any, floor: Any, residual: Any, keep: Any
) -> Any:
    y = xp.tanh((x * scale + shift) / divisor) * divisor
    y = xp.clip(xp.log(xp.maximum(xp.abs(y - residual), floor)), -5.0, 5.0)
    return xp.where(keep, xp.sigmoid(y), residual)


# By the names of the files in `examples/graphs`; inputs are those of the expression, in the order of their ids there.
GRAPHS: dict[str, Graph] = {
    "causal_scale_select": Graph(
        causal_scale_select,
        _index_nodes("scores")
        + """
        mask = GreaterOrEqual(rows, columns)
        scaled = Mul(scores, scale)
        dst = Where(mask, scaled, lowest)
        """,
        {**_INDEX_CONSTANTS, "lowest": np.float32(LOWEST)},
    ),
    "padding_bias_select": Graph(
        padding_bias_select,
        """
        biased = Add(scores, bias)
        dst = Where(keep, biased, minus_inf)
        """,
        {"minus_inf": np.float32(-math.inf)},
    ),
    "safe_softmax_guard": Graph(
        safe_softmax_guard,
        """
        guard = IsNaN(x)
        dst = Where(guard, nothing, x)
        """,
        {"nothing": np.float32(0)},
    ),
    "gelu_gated_select": Graph(
        gelu_gated_select,
        """
        curved = Gelu<approximate="tanh">(x)
        gated = Mul(curved, gate)
        nothing = CastLike(float_nothing, x)
        dst = Where(keep, gated, nothing)
        """,
        {"float_nothing": np.float32(0)},
        # Two steps of bf16, of which the last product takes one, the function one.
        relative=2**-6,
        absolute=1e-5,
    ),
    "nan_to_num": Graph(
        nan_to_num,
        """
        none = IsNaN(x)
        number = Where(none, nothing, x)
        above = Equal(number, plus_inf)
        lowered = Where(above, largest, number)
        below = Equal(lowered, minus_inf)
        dst = Where(below, lowest, lowered)
        """,
        {
            "nothing": np.float32(0),
            "plus_inf": np.float32(math.inf),
            "largest": np.float32(LARGEST),
            "minus_inf": np.float32(-math.inf),
            "lowest": np.float32(LOWEST),
        },
    ),
    "swin_selects": Graph(
        swin_selects,
        """
        distance = Sub(columns, rows)
        same = Equal(distance, nothing)
        other = Not(same)
        far = Where(other, penalty, distance)
        mask = Where(same, nothing, far)
        dst = Add(scores, mask)
        """,
        {"nothing": np.float32(0), "penalty": np.float32(-100)},
    ),
    "clamp_backward": Graph(
        clamp_backward,
        """
        above = GreaterOrEqual(x, low)
        below = LessOrEqual(x, high)
        inside = And(above, below)
        dst = Where(inside, slope, nothing)
        """,
        {"low": np.float32(-1), "high": np.float32(1), "nothing": np.float32(0)},
    ),
    "t5_bucket": Graph(
        t5_bucket,
        _index_nodes("x")
        + """
        distance = Sub(columns, rows)
        later = Greater(distance, zero)
        later_one = Cast<to=7>(later)
        later_bucket = Mul(later_one, sixteen)
        opposite = Neg(distance)
        near = Max(distance, opposite)
        is_near = Less(near, eight)
        near_float = Cast<to=1>(near)
        near_part = Mul(near_float, eighth)
        logarithm = Log(near_part)
        scaled = Mul(logarithm, log_scale)
        far = Cast<to=7>(scaled)
        far_bucket = Add(far, eight)
        far_capped = Min(far_bucket, fifteen)
        bucket = Where(is_near, near, far_capped)
        dst = Add(later_bucket, bucket)
        """,
        {
            **_INDEX_CONSTANTS,
            "sixteen": np.int64(16),
            "eight": np.int64(8),
            "fifteen": np.int64(15),
            "eighth": np.float32(0.125),
            "log_scale": np.float32(2.88542),
        },
        open_dims=True,
    ),
    "chain_of_12": Graph(
        chain_of_12,
        """
        scaled = Mul(x, scale)
        shifted = Add(scaled, shift)
        divided = Div(shifted, divisor)
        bent = Tanh(divided)
        capped = Mul(bent, divisor)
        difference = Sub(capped, residual)
        size = Abs(difference)
        positive = Max(size, floor)
        logarithm = Log(positive)
        clamped = Clip(logarithm, low, high)
        gate = Sigmoid(clamped)
        dst = Where(keep, gate, residual)
        """,
        {"low": np.float32(-5), "high": np.float32(5)},
        # The logarithm of a small difference enlarges the errors before it.
        relative=1e-5,
        absolute=1e-5,
    ),
}
