"""Attention of models of transformers."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

from ._eager import attention
from ._forms import Asked, Operands


def register(name: str = "sterna") -> None:
    """Makes Sterna an attention of ``transformers``: ``attn_implementation="sterna"``, for every model that takes its
    attention from ``AttentionInterface``.

    Keys and values stay in groups, caps of scores and sinks are taken, with gradients too, and no mask is made where
    causality is all that a mask would say. Calls that Sterna does not take run in torch: dropout while training, and
    code that is traced or compiled.

    Args:
        name: by which models ask for it.

    Raises:
        ImportError: if ``transformers`` is not installed.

    >>> import sterna.torch
    >>> from transformers import AutoModel, BertConfig  # doctest: +SKIP
    >>> sterna.torch.register()  # doctest: +SKIP
    >>> model = AutoModel.from_config(BertConfig(), attn_implementation="sterna")  # doctest: +SKIP
    """
    transformers: Any = importlib.import_module("transformers")
    masks: Any = importlib.import_module("transformers.masking_utils")
    transformers.AttentionInterface.register(name, attention_forward)
    transformers.AttentionMaskInterface.register(name, masks.sdpa_mask)


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The attention that a module of ``transformers`` calls, on [batch, heads, tokens, depth]; its result is [batch,
    tokens, heads, depth]."""
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if not dropout and not torch.compiler.is_compiling():
        # With a mask, or one query behind all keys, nothing is left for causality to say.
        causal_here = causal and attention_mask is None and query.shape[2] > 1
        mask = attention_mask
        if position_bias is not None:
            ours: Any = importlib.import_module("transformers.integrations.sdpa_attention")
            mask = ours.create_position_bias_mask(position_bias, mask, causal_here, query, key)
            causal_here = False
        asked = Asked(causal_here, scaling, enable_gqa=True, softcap=softcap)
        found = attention(Operands(query, key, value, mask, s_aux), asked)
        if not isinstance(found, str):
            return found.transpose(1, 2).contiguous(), None
    options = {"dropout": dropout, "scaling": scaling, **kwargs}
    if softcap is not None or s_aux is not None:
        more = {"softcap": softcap, "s_aux": s_aux}
        options |= {one: given for one, given in more.items() if given is not None}
        return eager_forward(module, query, key, value, attention_mask, causal, options)
    forward: Any = importlib.import_module("transformers.integrations.sdpa_attention").sdpa_attention_forward
    found_by_torch: tuple[torch.Tensor, None] = forward(
        module, query, key, value, attention_mask, is_causal=is_causal, position_bias=position_bias, **options
    )
    return found_by_torch


def eager_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The attention that the module's own file has, for caps and sinks that Sterna does not get."""
    lowest = torch.finfo(query.dtype).min
    if mask is None and causal and query.shape[2] > 1:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()[None, None]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros((), dtype=query.dtype, device=query.device).masked_fill(~mask, lowest)
    own: Any = sys.modules[type(module).__module__]
    found: tuple[torch.Tensor, torch.Tensor | None] = own.eager_attention_forward(
        module, query, key, value, mask, **options
    )
    return found
