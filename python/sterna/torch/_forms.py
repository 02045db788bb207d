"""How the graph of an attention has the tensors of a call of torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch

from sterna import Value

from ._attention import Chain
from ._calls import Desc, dense
from ._convert import NotTaken

TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Asked(NamedTuple):
    """What an attention is asked to do beside its tensors."""

    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    softcap: float | None = None


Part = TypeVar("Part")
Other = TypeVar("Other")


class Operands(NamedTuple, Generic[Part]):
    """The operands of an attention: tensors, how these lie in memory, or values of a graph."""

    q: Part
    k: Part
    v: Part
    mask: Part | None = None
    sinks: Part | None = None

    def present(self) -> list[Part]:
        return [one for one in self if one is not None]

    def filled(self, others: Iterable[Other]) -> Operands[Other]:
        """The next ones of others in the places of what is there."""
        rest = iter(others)
        q, k, v = next(rest), next(rest), next(rest)
        mask, sinks = (None if one is None else next(rest) for one in (self.mask, self.sinks))
        return Operands(q, k, v, mask, sinks)


@dataclass
class Form:
    """The tensors of an attention as its graph has them.

    With groups, queries are [.., heads of keys, queries of a head, tokens, depth], and keys and values have 1 for
    the queries: what torch has as one dim are two of the same memory.
    """

    given: Operands[Desc]
    out: Desc
    groups: int
    asked: Asked
    #: The result as torch has it.
    result: Desc

    @property
    def stats(self) -> Desc:
        return dense(torch.float32, (*self.out.shape[:-1], 1))

    def scale(self) -> float:
        scale = self.asked.scale
        return 1 / math.sqrt(self.given.q.shape[-1]) if scale is None else float(scale)

    def chain(self, mask: Value | None) -> Chain:
        is_boolean = self.given.mask is not None and self.given.mask.dtype == torch.bool
        return Chain(
            self.scale(),
            bias=None if is_boolean else mask,
            mask=mask if is_boolean else None,
            is_causal=self.asked.is_causal,
            softcap=self.asked.softcap,
        )

    def regrouped(self, desc: Desc, inner: int) -> Desc:
        """A tensor of torch, with queries of a head in a dim of this size, in the dims of the graph."""
        desc = desc.at_front(3) if len(desc.shape) == 2 else desc
        return desc.split(len(desc.shape) - 3, inner) if self.groups > 1 else desc


def form_of(tensors: Operands[torch.Tensor], asked: Asked) -> Form:
    """How a graph has the tensors of a call; `NotTaken` says why none does."""
    query, key, value, mask, sinks = tensors
    check(query, key, value, asked)
    groups = groups_of(query, key, value, asked.enable_gqa)
    # As torch has it.
    result = Desc.of(torch.empty_like(query, requires_grad=False))
    if query.shape[-1] != value.shape[-1] or result.strides[-1] != 1:
        result = dense(query.dtype, (*query.shape[:-1], value.shape[-1]))
    q, k, v = map(Desc.of, (query, key, value))
    form = Form(Operands(q, k, v), result, groups, asked, result)
    if groups > 1 and groups * key.shape[-3] != query.shape[-3]:
        # All heads of queries read the same keys.
        k, v = (Desc(one.dtype, (*one.shape[:-3], 1, *one.shape[-2:]), one.strides) for one in (k, v))
    of_mask = of_sinks = None
    if mask is not None:
        whole = (*query.shape[:-1], key.shape[-2])
        of_mask = form.regrouped(mask_of(mask, whole, query.dtype), groups)
    if sinks is not None:
        if query.dim() != 4 or sinks.shape != (query.shape[1],):
            raise NotTaken("sinks that are not a number for each head")
        sink = Desc(sinks.dtype, (*query.shape[:-1], 1), (0, sinks.stride(0), 0, 0))
        of_sinks = form.regrouped(sink, groups)
    q, k, v = (form.regrouped(one, inner) for one, inner in ((q, groups), (k, 1), (v, 1)))
    form.given = Operands(q, k, v, of_mask, of_sinks)
    form.out = form.regrouped(result, groups)
    return form


def check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, asked: Asked) -> None:
    """Refuses what no graph of attention takes."""
    if query.dtype not in TYPES:
        raise NotTaken(f"attention of {query.dtype}")
    if key.dtype != query.dtype or value.dtype != query.dtype:
        raise NotTaken("queries, keys and values of several types")
    rank = query.dim()
    if not 2 <= rank <= 8 or key.dim() != rank or value.dim() != rank:
        raise NotTaken("queries, keys and values of several ranks")
    if any(0 in tensor.shape for tensor in (query, key, value)):
        raise NotTaken("no elements")
    if query.shape[-1] != key.shape[-1] or key.shape[:-1] != value.shape[:-1]:
        raise NotTaken("shapes that do not fit")
    if asked.scale is not None and not math.isfinite(asked.scale):
        raise NotTaken("a scale that is no number")


def groups_of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> int:
    """How many heads of queries share one of keys."""
    if query.dim() < 3:
        return 1
    heads, of_keys = query.shape[-3], key.shape[-3]
    is_shared = of_keys == 1 or enable_gqa
    if query.shape[:-3] != key.shape[:-3] or heads % of_keys or (heads != of_keys and not is_shared):
        raise NotTaken("batches or heads that broadcast")
    is_expanded = heads == of_keys and key.stride(-3) == 0 and value.stride(-3) == 0
    if is_expanded and not (key.requires_grad or value.requires_grad):
        return heads
    return heads // of_keys


def mask_of(mask: torch.Tensor, whole: Sequence[int], dtype: torch.dtype) -> Desc:
    """A mask in the rank of the scores. Elements that are repeated are there once, unless each has a gradient."""
    if mask.dtype not in (torch.bool, torch.float32, dtype):
        raise NotTaken(f"a mask of {mask.dtype}")
    if not 2 <= mask.dim() <= len(whole):
        raise NotTaken("a mask of another rank")
    desc = Desc.of(mask).at_front(len(whole))
    if any(dim not in (1, wanted) for dim, wanted in zip(desc.shape, whole, strict=True)):
        raise NotTaken("a mask that does not broadcast to the scores")
    return desc if mask.requires_grad else desc.single()
