"""Parts of layers that torch runs as one op where no gradients are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

#: torch does not say the types of all of its functions.
F: Any = functional

#: What a mask of such an op has: of queries and keys, of keys, and of all of them.
OF_SCORES, OF_KEYS = 0, 1


def keeps(mask: torch.Tensor | None, kind: int | None) -> torch.Tensor | None:
    """Where a mask leaves keys, for scores of [batch, heads, queries, keys]. The op leaves out what is not 0."""
    if mask is None:
        return None
    mask = mask == 0
    if kind == OF_KEYS:
        return mask[:, None, None]
    return mask if mask.dim() == 4 or kind == OF_SCORES else mask.unsqueeze(1)


def heads_of(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, heads: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values, each [batch, heads, tokens, depth]."""
    projected: torch.Tensor = F.linear(x, weight, bias)
    parts = projected.reshape(*projected.shape[:2], 3, heads, -1).unbind(2)
    return tuple(one.transpose(1, 2) for one in parts)


def attended(
    x: torch.Tensor, heads: int, weights: Any, mask: torch.Tensor | None, kind: int | None
) -> torch.Tensor:
    qkv_weight, qkv_bias, weight, bias = weights
    q, k, v = heads_of(x, qkv_weight, qkv_bias, heads)
    made: torch.Tensor = F.scaled_dot_product_attention(q, k, v, keeps(mask, kind))
    projected: torch.Tensor = F.linear(made.transpose(1, 2).flatten(2), weight, bias)
    return projected


def encoder_layer(src: torch.Tensor, width: int, heads: int, *given: Any) -> Any:
    """The parts of `_transformer_encoder_layer_fwd`."""
    weights, (use_gelu, norm_first, epsilon), rest = given[:4], given[4:7], given[7:]
    norms, (up, up_bias, down, down_bias), masks = (rest[:2], rest[2:4]), rest[4:8], rest[8:]
    mask, kind = (*masks, None, None)[:2]
    if src.is_nested or src.dim() != 3:
        return NotImplemented
    shape = (width,)
    norm: Callable[[torch.Tensor, int], torch.Tensor] = lambda x, place: F.layer_norm(x, shape, *norms[place], epsilon)
    activated = F.gelu if use_gelu else F.relu
    x = src + attended(norm(src, 0) if norm_first else src, heads, weights, mask, kind)
    x = x if norm_first else norm(x, 0)
    y = F.linear(norm(x, 1) if norm_first else x, up, up_bias)
    x = x + F.linear(activated(y), down, down_bias)
    return x if norm_first else norm(x, 1)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    width: int,
    heads: int,
    *given: Any,
) -> Any:
    """The parts of `_native_multi_head_attention`, if it gives no shares and its three operands are one."""
    weights, rest = given[:4], given[4:]
    mask, needs_shares, _, kind = rest + (None, True, True, None)[len(rest) :]
    if needs_shares or query is not key or key is not value or query.is_nested or query.dim() != 3:
        return NotImplemented
    return attended(query, heads, weights, mask, kind), query.new_empty(0)
