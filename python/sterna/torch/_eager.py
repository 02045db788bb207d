"""Attention of eager code, its gradients, and the block that hands it over."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ContextDecorator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from sterna import Error, GraphBuilder, Value

from ._attention import backward, forward
from ._calls import Call, Desc, Kept, empty
from ._convert import NotTaken
from ._forms import Asked, Form, Operands, form_of

OP: Any = torch.ops.aten.scaled_dot_product_attention.default
IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd

keys_of: Any = torch._C._dispatch_keys
is_tracing: Any = torch._C._is_tracing
modes: Any = torch._C._len_torch_dispatch_stack


def _plain() -> frozenset[int]:
    """The dispatch keys of tensors whose elements lie in memory, with nothing behind them."""
    found: set[int] = set()
    for is_inference in (False, True):
        with torch.inference_mode(is_inference):
            found.add(keys_of(torch.empty(0)).raw_repr())
    return frozenset(found)


PLAIN = _plain()


class Forward:
    """Attention of tensors of one form."""

    def __init__(self, form: Form, has_stats: bool, threads: int) -> None:
        def make(g: GraphBuilder, values: list[Value]) -> list[Value]:
            q, k, v, mask, sinks = form.given.filled(values)
            out, stats = forward(g, q, k, v, form.chain(mask).scores, sinks=sinks, has_stats=has_stats)
            return [out] if stats is None else [out, stats]

        self.form = form
        results = [(form.result, form.out), (form.stats, form.stats)][: 1 + has_stats]
        self.call = Call(make, form.given.present(), [one for _, one in results], threads)
        self.made = [(one.shape, one.strides, one.dtype) for one, _ in results]

    def __call__(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made = [empty(*one) for one in self.made]
        self.call.run(given, made)
        return made

    def result(self, given: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result of a call without statistics."""
        out = empty(*self.made[0])
        direct = self.call.direct
        if direct is None:
            self.call.run(given, [out])
        else:
            direct([one.data_ptr() for one in given], [out.data_ptr()])
        return out


class Backward:
    """The gradients of an attention of one form: of queries, keys, values and mask, those that are wanted."""

    def __init__(
        self, form: Form, grad: Desc, tensors: Operands[torch.Tensor], wanted: Sequence[bool], threads: int
    ) -> None:
        # Gradients read no sinks: the statistics count them.
        operands = form.given._replace(sinks=None)

        def make(g: GraphBuilder, values: list[Value]) -> list[Value]:
            q, k, v, mask, _ = operands.filled(values)
            out, stats, grad = values[-3:]
            chain = form.chain(mask)
            made = backward(
                g, grad, q, k, v, out, stats, chain.scores, chain.slopes,
                is_grouped=form.groups > 1, wanted=(wanted[0], wanted[1], wanted[2]),
            )  # fmt: skip
            of_mask = summed(g, made.scores, operands.mask) if wanted[3] and operands.mask is not None else None
            return [one for one in (made.q, made.k, made.v, of_mask) if one is not None]

        self.wanted = tuple(wanted)
        self.made: list[Any] = []
        outputs: list[Desc] = []
        for tensor, inner, is_wanted in zip(tensors[:4], (form.groups, 1, 1, form.groups), wanted, strict=True):
            if is_wanted and tensor is not None:
                one = Desc.of(torch.empty_like(tensor, requires_grad=False))
                self.made.append((one.shape, one.strides, one.dtype))
                if tensor is tensors.mask:
                    one = one.at_front(len(form.result.shape))
                outputs.append(form.regrouped(one, inner))
        inputs = [*operands.present(), form.out, form.stats, form.regrouped(grad, form.groups)]
        self.call = Call(make, inputs, outputs, threads)

    def __call__(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        made = [empty(*one) for one in self.made]
        self.call.run(given, made)
        results = iter(made)
        return [next(results) if is_wanted else None for is_wanted in self.wanted]


def summed(g: GraphBuilder, scores: Value, mask: Desc) -> Value:
    """The gradient of numbers that were added to scores."""
    shape = scores.shape
    assert shape is not None
    axes = [axis for axis, (dim, of_mask) in enumerate(zip(shape, mask.shape, strict=True)) if dim != of_mask]
    made = g.reduce_sum(scores, axes=axes, keep_dims=True) if axes else scores
    return made if mask.dtype == torch.float32 else g.type_cast(made, dtype=mask.dtype)


_forwards: Kept[Forward | str] = Kept()
_backwards: Kept[Backward | str] = Kept()


def attention(tensors: Operands[torch.Tensor], asked: Asked) -> torch.Tensor | str:
    """The attention of tensors, with gradients; or why torch has to compute it.

    The mask is a mask of torch; sinks hold a score without a key for each head.
    """
    if tensors.sinks is not None:
        # A few numbers, which the chain adds to scores of f32.
        tensors = tensors._replace(sinks=tensors.sinks.float())
    given = tensors.present()
    for one in given:
        if keys_of(one).raw_repr() not in PLAIN:
            return "a tensor that is not plain memory of the CPU"
    if is_tracing() or modes():
        return "code that is traced"
    if forward_ad._current_level >= 0:
        return "derivatives in forward mode"
    has_grad = torch.is_grad_enabled() and True in [one.requires_grad for one in given]
    threads = torch.get_num_threads()
    described = [(one.dtype, one.shape, one.stride()) for one in given]
    needs = [one.requires_grad for one in given] if has_grad else ()
    name = (*described, *needs, tensors.mask is None, asked, threads)
    found = _forwards.made.get(name)
    if found is None:
        found = _forwards.get(name, lambda: _made(tensors, asked, has_grad, threads))
    if isinstance(found, str):
        return found
    if has_grad:
        result: torch.Tensor = _Attention.apply(*tensors, found, name)
        return result
    return found.result(given)


def _made(tensors: Operands[torch.Tensor], asked: Asked, has_grad: bool, threads: int) -> Forward | str:
    try:
        return Forward(form_of(tensors, asked), has_grad, threads)
    except (NotTaken, Error) as error:
        return str(error)


class _Attention(torch.autograd.Function):
    """Attention whose backward pass is a partition, too."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        *tensors, ctx.made, ctx.name = given
        out, stats = ctx.made(Operands(*tensors).present())
        ctx.save_for_backward(*tensors, out, stats)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return _gradients(ctx, *grad_outputs)


@once_differentiable
def _gradients(ctx: Any, grad: Any) -> Any:
    *saved, out, stats = ctx.saved_tensors
    tensors: Operands[torch.Tensor] = Operands(*saved)
    sinks = tensors.sinks
    wanted = list(ctx.needs_input_grad[:4])
    given = [*tensors._replace(sinks=None).present(), out, stats, grad]
    made: Backward | str = "a tensor that is not plain memory of the CPU"
    if all(keys_of(one).raw_repr() in PLAIN for one in given):
        threads = torch.get_num_threads()
        name = (ctx.name, grad.shape, grad.stride(), tuple(wanted), threads)
        made = _backwards.get(name, lambda: _made_backward(ctx.made.form, Desc.of(grad), tensors, wanted, threads))
    results = recomputed(ctx.made.form, tensors, grad, wanted) if isinstance(made, str) else made(given)
    of_sinks = None
    if ctx.needs_input_grad[4]:
        # The share of a sink, which has no value, grows at the cost of all that a query sees.
        share = torch.exp(sinks.view(-1, 1, 1) - stats.view(*out.shape[:-1], 1))  # type: ignore[union-attr]
        lost = (out.float() * grad.float()).sum(-1, keepdim=True)
        of_sinks = -(share * lost).sum((0, 2, 3))
    return (*results, of_sinks, None, None)


def _made_backward(
    form: Form, grad: Desc, tensors: Operands[torch.Tensor], wanted: Sequence[bool], threads: int
) -> Backward | str:
    try:
        return Backward(form, grad, tensors, wanted, threads)
    except Error as error:
        return str(error)


def recomputed(
    form: Form, tensors: Operands[torch.Tensor], grad: torch.Tensor, wanted: Sequence[bool]
) -> list[torch.Tensor | None]:
    """The gradients by ops of torch, where something traces or wraps the tensors."""
    with torch.enable_grad():
        pairs = zip(tensors[:4], wanted, strict=True)
        given = [None if one is None else one.detach().requires_grad_(is_wanted) for one, is_wanted in pairs]
        q, k, v, mask = given
        assert q is not None and k is not None and v is not None
        repeats = q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1
        if repeats > 1:
            k, v = k.repeat_interleave(repeats, -3), v.repeat_interleave(repeats, -3)
        scores = q.float() @ k.float().transpose(-1, -2) * form.scale()
        if form.asked.softcap is not None:
            scores = torch.tanh(scores / form.asked.softcap) * form.asked.softcap
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf) if mask.dtype == torch.bool else scores + mask
        if form.asked.is_causal:
            keeps = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
            scores = torch.where(keeps, scores, -torch.inf)
        if tensors.sinks is not None:
            scores = torch.cat([scores, tensors.sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)], -1)
        shares: torch.Tensor = torch.ops.aten._safe_softmax(scores, -1)
        out = (shares[..., : k.shape[-2]] @ v.float()).to(q.dtype)
        found = iter(torch.autograd.grad(out, [one for one in given if one is not None and one.requires_grad], grad))
    return [next(found) if is_wanted else None for is_wanted in wanted]


class _Blocks(threading.local):
    """The blocks in which a thread is, the inner ones last."""

    def __init__(self) -> None:
        self.stack: list[sdpa] = []


_blocks = _Blocks()


def taken_over(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """What torch calls in place of its own attention."""
    stack = _blocks.stack
    if stack:
        if dropout_p > 0.0:
            found: torch.Tensor | str = "dropout"
        elif is_causal and attn_mask is not None:
            found = "a mask beside is_causal"
        else:
            found = attention(Operands(query, key, value, attn_mask), Asked(is_causal, scale, enable_gqa))
        if not isinstance(found, str):
            stack[-1].taken += 1
            return found
        stack[-1].left[found] += 1
    result: torch.Tensor = OP._op_dk(
        IMPLICIT, query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return result


class _Hook:
    """Puts `taken_over` in the place of torch's attention, once and for good: another thread may be about to call
    what would go."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.library: Any = None

    def install(self) -> None:
        with self.lock:
            if self.library is None:
                library: Any = torch.library.Library
                self.library = library("aten", "IMPL")
                # Tensors of inference have the second key alone.
                for key in ("AutogradCPU", "CPU"):
                    self.library.impl("scaled_dot_product_attention", taken_over, key)


_hook = _Hook()


class sdpa(ContextDecorator):  # noqa: N801
    """A block, or a decorator of a function, in which Sterna computes attention of eager code.

    It takes over ``torch.nn.functional.scaled_dot_product_attention`` for the thread that enters it, under whatever
    name the code has it, in modules of torch such as ``MultiheadAttention`` too, with gradients: of queries, keys and
    values [.., tokens, depth] of rank 2 to 8 in f32, bf16 or f16, of ``attn_mask``, ``is_causal``, ``scale`` and
    ``enable_gqa``. It runs on as many threads as ``torch.get_num_threads()``. Calls that it does not take run in
    torch as without it: dropout, other types and devices, batches that broadcast, and code that is traced or
    compiled. Errors are those of torch. From the first block on, a call outside of blocks takes microseconds longer.

    Attributes:
        taken: how many calls Sterna ran.
        left: how many torch ran, by the reason.

    >>> import torch, sterna.torch
    >>> q = k = v = torch.ones(1, 2, 4, 8)
    >>> with sterna.torch.sdpa() as block:
    ...     out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> out.shape, block.taken, dict(block.left)
    (torch.Size([1, 2, 4, 8]), 1, {})
    """

    def __init__(self) -> None:
        self.taken = 0
        self.left: Counter[str] = Counter()

    def __enter__(self) -> sdpa:
        _hook.install()
        _blocks.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _blocks.stack.pop()
