"""Rows of norms of batches.

Their gradients stay with torch, which is faster at them (decision: torch-norms). So do norms of 16 bits that follow the
batch, as an op of their own: torch traces its own with other types than it gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from sterna import Value

from ._convert import TYPES, Lowering, NotTaken
from ._pools import check_type
from ._shapes import shape_of

aten = torch.ops.aten

#: Fewest channels that are neighbours, of which a row of elements is long enough (decision: torch-norms).
NEIGHBOURS = 64


def of_channels(c: Lowering, given: Value | None, number: float, channels: int) -> Value:
    """A number for each channel in f32, the same one unless they are given."""
    return c.fill(number, "f32", (channels,)) if given is None else c.cast(given, "f32")


def inverse_deviation(c: Lowering, variance: Value, epsilon: float) -> Value:
    """What an element is multiplied with by its channel."""
    return c.op("Reciprocal", c.op("Sqrt", c.op("Add", variance, c.fill(epsilon, "f32", (1,)))))


def check_norm(c: Lowering, x: Value) -> int:
    """The number of channels of what a row takes."""
    check_type(x)
    shape, source = shape_of(x), c.node.args[0]
    if len(shape) < 2 or 0 in shape:
        raise NotTaken("norms of no elements")
    if len(shape) > 2 and shape[1] < NEIGHBOURS and c.meta(source).strides[1] == 1 and not is_fused(c, source):
        raise NotTaken(f"norms of fewer than {NEIGHBOURS} channels that are neighbours")
    return shape[1]


def is_fused(c: Lowering, source: Any) -> bool:
    """If a norm without training runs on the tiles of a convolution."""
    if c.node.target is not aten._native_batch_norm_legit_no_training.default:
        return False
    if source.target in (aten._to_copy.default, torch.ops.prims.convert_element_type.default):
        source = source.args[0]
    return source.target is aten.convolution.default and source not in c.made.reasons


def without_training(
    c: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    epsilon: float,
) -> tuple[Value, Value, Value]:
    channels = check_norm(c, x)
    numbers = [of_channels(c, weight, 1, channels), of_channels(c, bias, 0, channels)]
    numbers += [c.cast(mean, "f32"), c.cast(variance, "f32")]
    y = c.op("BatchNormInference", x, *numbers, epsilon=epsilon, data_format="NCX")
    metas: Any = c.metas_of(c.node)
    # On CPUs torch gives statistics of the batch without elements.
    of_batch = [c.fill(0, TYPES[meta.dtype], meta.shape) for meta in metas[1:3]]
    return y, of_batch[0], of_batch[1]


def training(
    c: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    is_training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Value, ...]:
    """The result, mean and inverse deviation of the batch, and the running mean and variance after it."""
    channels = check_norm(c, x)
    count = math.prod(shape_of(x)) // channels
    if not is_training or count == 1:
        raise NotTaken("a variance of one element, or a given one")
    old = [of_channels(c, mean, 0, channels), of_channels(c, variance, 0, channels)]
    operands = [x, *old]
    if weight is not None or bias is not None:
        operands += [of_channels(c, weight, 1, channels), of_channels(c, bias, 0, channels)]
    y, _, _, *of_batch = c.ops(
        "BatchNormForwardTraining", *operands, outputs=5, epsilon=epsilon, momentum=0.0, data_format="NCX"
    )
    deviation = inverse_deviation(c, of_batch[1], epsilon)
    # The running variance is one of more than the batch.
    new_mean = weighted(c, old[0], 1 - momentum, of_batch[0], momentum)
    new_variance = weighted(c, old[1], 1 - momentum, of_batch[1], momentum * count / (count - 1))
    return y, of_batch[0], deviation, new_mean, new_variance


def training_without_stats(
    c: Lowering,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    is_training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Value, ...]:
    return training(c, x, weight, bias, None, None, is_training, momentum, epsilon)[:3]


def weighted(c: Lowering, a: Value, of_a: float, b: Value, of_b: float) -> Value:
    product: Callable[[Value, float], Value] = lambda one, number: c.op("Multiply", one, c.fill(number, "f32", (1,)))
    return c.op("Add", product(a, of_a), product(b, of_b))


Norm = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def norm_of_batch(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    momentum: float,
    epsilon: float,
) -> Norm:
    if mean is None or variance is None:
        found = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, epsilon)
        return *found, x.new_empty(0), x.new_empty(0)
    made: Norm = aten._native_batch_norm_legit_functional.default(
        x, weight, bias, mean, variance, True, momentum, epsilon
    )
    return made


def traced_norm(x: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *_: Any) -> Norm:
    """The types and shapes of the results, which are those of the numbers of channels."""
    given = next((one for one in (weight, bias, mean) if one is not None), x)
    stats = [given.new_empty(x.shape[1]) for _ in range(2)]
    after = [x.new_empty(0) if one is None else torch.empty_like(one) for one in (mean, variance)]
    return torch.empty_like(x), stats[0], stats[1], after[0], after[1]


norm: Any = torch.library.custom_op("sterna::batch_norm", norm_of_batch, mutates_args=())
norm.register_fake(traced_norm)


def fixed_parts(x: torch.Tensor, *given: Any) -> Any:
    """A norm without training, computed in f32 if numbers of channels are f32: torch traces statistics, which have no
    elements then, with 16 bits, and refuses these in gradients."""
    is_mixed = any(isinstance(one, torch.Tensor) and one.dtype != x.dtype for one in given)
    if x.dtype not in (torch.bfloat16, torch.float16) or not is_mixed:
        return NotImplemented
    y, *stats = aten._native_batch_norm_legit_no_training.default(x.float(), *given)
    return y.to(x.dtype), *stats


def functional_parts(x: torch.Tensor, *given: Any) -> Any:
    """A norm with running statistics: an op of its own for 16 bits."""
    *numbers, is_training, momentum, epsilon = given
    is_own = is_training and x.dtype in (torch.bfloat16, torch.float16)
    return torch.ops.sterna.batch_norm.default(x, *numbers, momentum, epsilon) if is_own else NotImplemented


def bare_parts(x: torch.Tensor, weight: Any, bias: Any, *given: Any) -> Any:
    """A norm without running statistics, likewise."""
    made = functional_parts(x, weight, bias, None, None, *given)
    return made if made is NotImplemented else made[:3]
