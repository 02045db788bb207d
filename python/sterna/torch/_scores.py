"""Rows of attention: products, mask and softmax as one chain, forward and backward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from sterna import Value

from ._attention import Chain, backward, forward
from ._convert import TYPES, Lowering, NotTaken
from ._shapes import shape_of

aten = torch.ops.aten


@dataclass
class Heads:
    """Queries, keys and values by head; with groups, [batch, heads of keys, queries of a head, tokens, depth]."""

    q: Value
    k: Value
    v: Value
    #: Queries that share keys and values; 1 if no dim stands for them.
    group: int
    scale: float


def repeated(c: Lowering, node: Any) -> tuple[Node, int] | None:
    """Keys or values before each head of them was repeated for the queries that share it, and how often."""
    if not isinstance(node, Node) or node.target not in (aten.view.default, aten._unsafe_view.default):
        return None
    source: Any = node.args[0]
    if source.target is aten.clone.default:
        source = source.args[0]
    if source.target is not aten.expand.default:
        return None
    single: Any = source.args[0]
    wide, narrow = c.meta(source).shape, c.meta(single).shape
    if len(wide) != 5 or len(narrow) != 5 or narrow[2] != 1 or c.meta(node).shape[1] != wide[1] * wide[2]:
        return None
    if narrow[:2] != wide[:2] or narrow[3:] != wide[3:]:
        return None
    return single, wide[2]


def heads_of(c: Lowering, q: Any, k: Any, v: Any, scale: Any) -> Heads:
    shape = c.meta(q).shape
    if len(shape) != 4 or 0 in shape or 0 in c.meta(k).shape:
        raise NotTaken("attention that is not of rank 4, or of nothing")
    if TYPES[c.meta(q).dtype] not in ("f32", "bf16", "f16"):
        raise NotTaken(f"attention of {c.meta(q).dtype}")
    factor = 1 / math.sqrt(shape[3]) if scale is None else float(scale)
    of_keys, of_values = repeated(c, k), repeated(c, v)
    if of_keys is not None and of_values is not None and of_keys[1] == of_values[1]:
        group = of_keys[1]
        queries = c.reshape(c.operand(q, False), (shape[0], shape[1] // group, group, *shape[2:]))
        return Heads(queries, c.operand(of_keys[0], False), c.operand(of_values[0], False), group, factor)
    count = c.meta(k).shape[1]
    if count != shape[1]:
        if c.meta(v).shape[1] != count or shape[1] % count:
            raise NotTaken("heads of queries and of keys that do not fit")
        group = shape[1] // count
        queries = c.reshape(c.operand(q, False), (shape[0], count, group, *shape[2:]))
        keys, values = (c.operand(one, False) for one in (k, v))
        keys, values = (c.reshape(one, (*shape_of(one)[:2], 1, *shape_of(one)[2:])) for one in (keys, values))
        return Heads(queries, keys, values, group, factor)
    return Heads(c.operand(q, False), c.operand(k, False), c.operand(v, False), 1, factor)


def grouped(c: Lowering, heads: Heads, value: Value) -> Value:
    """A value by head of queries, in the form of the heads."""
    shape = shape_of(value)
    if heads.group == 1 or len(shape) == 2:
        return value
    if shape[1] == 1:
        return c.reshape(value, (shape[0], 1, 1, *shape[2:]))
    return c.reshape(value, (shape[0], shape[1] // heads.group, heads.group, *shape[2:]))


def chain_of(c: Lowering, heads: Heads, mask: Any, is_causal: bool) -> Chain:
    """What becomes of the products before they enter the softmax."""
    made = Chain(heads.scale, is_causal=is_causal)
    if mask is None:
        return made
    made.mask = condition_of(c, mask)
    if made.mask is not None:
        made.mask = grouped(c, heads, as_rank(c, made.mask, 4))
    else:
        made.bias = c.cast(grouped(c, heads, as_rank(c, c.operand(mask, True), 4)), "f32")
    return made


def as_rank(c: Lowering, value: Value, rank: int) -> Value:
    """A mask in the rank of the scores. One of queries and keys alone broadcasts as it is, so that no reshape keeps
    an expression out of the partition."""
    shape = shape_of(value)
    source = c.reshaped.get(value.id, value)
    if len(shape_of(source)) == 2 and shape == (1,) * (len(shape) - 2) + shape_of(source):
        return source
    if len(shape) > rank:
        raise NotTaken("a mask of another rank")
    return c.reshape(value, (1,) * (rank - len(shape)) + shape)


def condition_of(c: Lowering, mask: Any) -> Value | None:
    """The boolean that an added mask stands for: 0 where it is true, else negative infinity."""
    while isinstance(mask, Node) and mask.target in (aten.expand.default, aten.clone.default):
        mask = mask.args[0]
    if not isinstance(mask, Node):
        return None
    if c.meta(mask).dtype == torch.bool:
        found: Value = c.operand(mask, True)
        return found
    if mask.target is not aten.where.self:
        return None
    condition, kept, dropped = (one if isinstance(one, Node) else None for one in mask.args)
    if condition is None:
        return None
    zero, lowest = c.known(kept), c.known(dropped)
    if zero is None or lowest is None or zero.numel() != 1 or lowest.numel() != 1:
        return None
    if zero.item() != 0 or lowest.item() != -math.inf:
        return None
    found = c.operand(condition, True)
    return found


def attention(
    c: Lowering,
    q: Any,
    k: Any,
    v: Any,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> tuple[Value | None, ...]:
    if dropout:
        raise NotTaken("dropout")
    metas: Any = c.metas_of(c.node)
    heads = heads_of(c, q, k, v, scale)
    chain = chain_of(c, heads, attn_mask, is_causal)
    out, stats = forward(c.builder(), heads.q, heads.k, heads.v, chain.scores, has_stats=c.used(1))
    return c.reshape(out, metas[0].shape), None if stats is None else c.reshape(stats, metas[1].shape)


def attention_backward(
    c: Lowering,
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stats: Any,
    dropout: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> tuple[Value | None, ...]:
    if dropout:
        raise NotTaken("dropout")
    metas: Any = c.metas_of(c.node)
    heads = heads_of(c, q, k, v, scale)
    chain = chain_of(c, heads, attn_mask, is_causal)
    # The statistics are stored by batch, head and token.
    sums = grouped(c, heads, c.reshape(c.operand(stats, False), (*c.meta(stats).shape, 1)))
    slope, result = (grouped(c, heads, c.operand(one, False)) for one in (grad, out))
    # Keys that were repeated for the queries that share them have a gradient for each time.
    is_grouped = heads.group > 1 and metas[1].shape[1] < metas[0].shape[1]
    made = backward(
        c.builder(), slope, heads.q, heads.k, heads.v, result, sums, chain.scores, chain.slopes,
        is_grouped=is_grouped,
    )  # fmt: skip
    return tuple(
        None if one is None else c.reshape(one, meta.shape)
        for one, meta in zip((made.q, made.k, made.v), metas, strict=True)
    )
