"""Attention and its gradients as ops of a graph, in the form that one partition takes each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sterna import GraphBuilder, Value

#: Makes of the products of queries and keys what enters the softmax.
Scores = Callable[[GraphBuilder, Value], Value]
#: Makes of the gradient of what enters the softmax that of the products. It is called behind `Scores` of the same
#: graph.
Slopes = Callable[[GraphBuilder, Value], Value]


def fill(g: GraphBuilder, number: float, dtype: str = "f32") -> Value:
    """A number as a scalar."""
    return g.fill(value=number, shape=[], dtype=dtype)


def masked(g: GraphBuilder, keeps: Value, scores: Value) -> Value:
    """Scores without those of pairs for which a condition is false."""
    return g.select(keeps, scores, fill(g, -math.inf))


@dataclass
class Chain:
    """The scores of one call: scaled, bent by a cap, with numbers added, and masked.

    ``bias`` and ``mask`` broadcast to the scores; where ``mask`` is true, a query sees a key. A causal query sees
    no key behind its own position, counted from the first of both.
    """

    scale: float
    bias: Value | None = None
    mask: Value | None = None
    is_causal: bool = False
    softcap: float | None = None
    #: The tangent of the cap, for its slope.
    bent: Value | None = None

    def scores(self, g: GraphBuilder, products: Value) -> Value:
        if self.softcap is None:
            made = g.multiply(products, fill(g, self.scale))
        else:
            self.bent = g.tanh(g.multiply(products, fill(g, self.scale / self.softcap)))
            made = g.multiply(self.bent, fill(g, self.softcap))
        if self.bias is not None:
            made = g.add(made, self.bias, dtype="f32")
        if self.is_causal:
            query, key = (g.gen_index(made, axis=axis) for axis in (-2, -1))
            made = masked(g, g.greater_equal(query, key), made)
        return made if self.mask is None else masked(g, self.mask, made)

    def slopes(self, g: GraphBuilder, slopes: Value) -> Value:
        if self.bent is not None:
            one = fill(g, 1.0)
            slopes = g.multiply(slopes, g.subtract(one, g.multiply(self.bent, self.bent)))
        return g.multiply(slopes, fill(g, self.scale))


def forward(
    g: GraphBuilder,
    q: Value,
    k: Value,
    v: Value,
    scores: Scores,
    *,
    sinks: Value | None = None,
    has_stats: bool = False,
) -> tuple[Value, Value | None]:
    """The result of attention, and with ``has_stats`` the maximum plus the logarithm of the sum of each query.

    ``q`` is [.., queries, d], ``k`` [.., keys, d] and ``v`` [.., keys, d_v], of one type; dims in front broadcast.
    ``sinks``, [.., queries, 1] of f32, are scores without a key. The result is [.., queries, d_v], of the type of
    ``q``, and the statistics are f32, [.., queries, 1]. A query that sees no key gets 0, and statistics of 0.
    """
    made = scores(g, g.matmul(q, k, transpose_b=True, dtype="f32"))
    if sinks is not None:
        made = g.concat([made, sinks], axis=-1)
    settings = {"axis": -1, "mode": "inf_as_zero"}
    shares, *stats = g.op("SoftMax", [made], settings, outputs=2 if has_stats else 1, dtype=q.dtype)
    if sinks is not None:
        shares = g.slice(shares, starts=[0], ends=[-1], axes=[-1])
    return g.matmul(shares, v, dtype=q.dtype), stats[0] if stats else None


@dataclass
class Gradients:
    """The gradients of queries, keys and values, and of what enters the softmax; f32 the last."""

    q: Value | None
    k: Value | None
    v: Value | None
    scores: Value


def backward(
    g: GraphBuilder,
    grad: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    stats: Value,
    scores: Scores,
    slopes: Slopes,
    *,
    is_grouped: bool = False,
    wanted: tuple[bool, bool, bool] = (True, True, True),
) -> Gradients:
    """The gradients of `forward` for the gradient of its result, from its result and statistics.

    With ``is_grouped``, dim -3 of ``q`` are queries that share a head of keys and values, which have 1 there. With
    sinks, the statistics count them, and that is all that the gradients need to know. Gradients that are not
    ``wanted`` are None.
    """
    made = scores(g, g.matmul(q, k, transpose_b=True, dtype="f32"))
    share = g.exp(g.subtract(made, stats))
    d_share = g.matmul(grad, v, transpose_b=True, dtype="f32")
    total = g.reduce_sum(g.multiply(out, grad, dtype="f32"), axes=[-1], keep_dims=True)
    d_scores = g.multiply(share, g.subtract(d_share, total))
    d_products = _typed(g, slopes(g, d_scores), q.dtype)

    def over_queries(left: Value, right: Value) -> Value:
        made = g.matmul(left, right, transpose_a=True, dtype=q.dtype)
        return g.reduce_sum(made, axes=[-3], keep_dims=True) if is_grouped else made

    return Gradients(
        g.matmul(d_products, k, dtype=q.dtype) if wanted[0] else None,
        over_queries(d_products, q) if wanted[1] else None,
        over_queries(_typed(g, share, q.dtype), grad) if wanted[2] else None,
        d_scores,
    )


def _typed(g: GraphBuilder, value: Value, dtype: str) -> Value:
    return value if value.dtype == dtype else g.type_cast(value, dtype=dtype)
