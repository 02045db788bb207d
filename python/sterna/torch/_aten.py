"""The ops of aten that become ops of Sterna, a row each."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from . import _batch_norms, _convolutions, _flex, _grouped, _layers, _pointwise, _pools, _rows, _scatters, _scores, _shapes
from ._convert import Row

aten, prims = torch.ops.aten, torch.ops.prims


def _unary(kind: str, **attributes: Any) -> Row:
    return Row(_pointwise.unary(kind, **attributes), broadcasts=True)


def _binary(kind: str) -> Row:
    return Row(_pointwise.binary(kind), broadcasts=True)


def _compare(kind: str) -> Row:
    return Row(_pointwise.compare(kind), broadcasts=True)


def _logical(kind: str) -> Row:
    return Row(_pointwise.logical(kind), broadcasts=True)


def _bitwise(kind: str) -> Row:
    return Row(_pointwise.bitwise(kind), broadcasts=True)


def _wide(*steps: str) -> Row:
    return Row(_pointwise.wide(*steps), broadcasts=True)


def _each(function: Any) -> Row:
    return Row(function, broadcasts=True)


#: What each op becomes.
ROWS: dict[Any, Row] = {
    # One element from one element.
    aten.abs.default: _unary("Abs"),
    aten.ceil.default: _unary("Ceil"),
    aten.cos.default: _unary("Cos"),
    aten.exp.default: _unary("Exp"),
    aten.floor.default: _unary("Floor"),
    aten.hardswish.default: _unary("HardSwish"),
    aten.log.default: _unary("Log"),
    aten.mish.default: _unary("Mish"),
    aten.neg.default: _unary("Negative"),
    aten.reciprocal.default: _unary("Reciprocal"),
    aten.relu.default: _unary("ReLU"),
    aten.round.default: _unary("Round"),
    aten.sigmoid.default: _unary("Sigmoid"),
    aten.sin.default: _unary("Sin"),
    aten.sqrt.default: _unary("Sqrt"),
    aten.tanh.default: _unary("Tanh"),
    aten.rsqrt.default: _wide("Sqrt", "Reciprocal"),
    aten.gelu.default: _each(_pointwise.gelu),
    aten.silu.default: _each(_pointwise.silu),
    aten.elu.default: _each(_pointwise.elu),
    aten.leaky_relu.default: _each(_pointwise.leaky_relu),
    aten.softplus.default: _each(_pointwise.softplus),
    aten.hardtanh.default: _each(_pointwise.hardtanh),
    aten.hardsigmoid.default: _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    aten.pow.Tensor_Scalar: _each(_pointwise.power),
    aten.isnan.default: _each(_pointwise.test("IsNaN")),
    aten.isinf.default: _each(_pointwise.test("IsInf")),
    aten.clamp.default: _each(_pointwise.clamp),
    aten.clamp_min.default: _each(_pointwise.clamp),
    aten.clamp_max.default: _each(_pointwise.clamp_max),
    aten._to_copy.default: _each(_pointwise.to_copy),
    prims.convert_element_type.default: _each(_pointwise.to_copy),
    aten.clone.default: _each(_pointwise.same),
    aten.copy.default: _each(_pointwise.copied_over),
    aten.alias.default: _each(_pointwise.same),
    aten.detach.default: _each(_pointwise.same),
    aten.lift_fresh_copy.default: _each(_pointwise.same),
    # One element from two or three.
    aten.add.Tensor: _binary("Add"),
    aten.add.Scalar: _binary("Add"),
    aten.sub.Tensor: _binary("Subtract"),
    aten.sub.Scalar: _binary("Subtract"),
    aten.rsub.Scalar: _each(_pointwise.reverse_subtract),
    aten.rsub.Tensor: _each(_pointwise.reverse_subtract),
    aten.mul.Tensor: _binary("Multiply"),
    aten.mul.Scalar: _binary("Multiply"),
    aten.div.Tensor: _binary("Divide"),
    aten.div.Scalar: _binary("Divide"),
    aten.div.Tensor_mode: _each(_pointwise.rounded_quotient),
    aten.div.Scalar_mode: _each(_pointwise.rounded_quotient),
    aten.floor_divide.default: _each(_pointwise.floored_quotient),
    aten.remainder.Tensor: _each(_pointwise.remainder),
    aten.remainder.Scalar: _each(_pointwise.remainder),
    aten.maximum.default: _binary("Maximum"),
    aten.minimum.default: _binary("Minimum"),
    aten.addcmul.default: _each(_pointwise.add_product),
    aten.addcdiv.default: _each(_pointwise.add_quotient),
    aten.eq.Tensor: _compare("Equal"),
    aten.eq.Scalar: _compare("Equal"),
    aten.ne.Tensor: _compare("NotEqual"),
    aten.ne.Scalar: _compare("NotEqual"),
    aten.lt.Tensor: _compare("Less"),
    aten.lt.Scalar: _compare("Less"),
    aten.le.Tensor: _compare("LessEqual"),
    aten.le.Scalar: _compare("LessEqual"),
    aten.gt.Tensor: _compare("Greater"),
    aten.gt.Scalar: _compare("Greater"),
    aten.ge.Tensor: _compare("GreaterEqual"),
    aten.ge.Scalar: _compare("GreaterEqual"),
    aten.logical_and.default: _logical("LogicalAnd"),
    aten.logical_or.default: _logical("LogicalOr"),
    aten.logical_xor.default: _logical("LogicalXor"),
    aten.logical_not.default: _logical("LogicalNot"),
    aten.bitwise_and.Tensor: _bitwise("LogicalAnd"),
    aten.bitwise_or.Tensor: _bitwise("LogicalOr"),
    aten.bitwise_xor.Tensor: _bitwise("LogicalXor"),
    aten.bitwise_not.default: _bitwise("LogicalNot"),
    aten.where.self: _each(_pointwise.where),
    aten.where.ScalarSelf: _each(_pointwise.where),
    aten.where.ScalarOther: _each(_pointwise.where),
    aten.masked_fill.Scalar: _each(_pointwise.masked_fill),
    aten.masked_fill.Tensor: _each(_pointwise.masked_fill),
    # Numbers from nothing.
    aten.full.default: _each(_pointwise.full),
    aten.full_like.default: _each(_pointwise.full),
    aten.scalar_tensor.default: _each(_pointwise.scalar_tensor),
    # Products.
    aten.mm.default: Row(_rows.product),
    aten.bmm.default: Row(_rows.batched_product),
    aten.addmm.default: Row(_rows.product_and_bias),
    aten.baddbmm.default: Row(_rows.batched_product_and_bias),
    **_grouped.OPS,
    # Rows.
    aten._softmax.default: Row(_rows.softmax),
    aten._log_softmax.default: Row(_rows.log_softmax),
    aten.native_layer_norm.default: Row(_rows.layer_norm),
    aten.sum.dim_IntList: Row(_rows.reduce("ReduceSum")),
    aten.sum.default: Row(_rows.reduce("ReduceSum")),
    aten.mean.dim: Row(_rows.reduce("ReduceMean")),
    aten.mean.default: Row(_rows.reduce("ReduceMean")),
    aten.amax.default: Row(_rows.extreme("ReduceMax")),
    aten.amin.default: Row(_rows.extreme("ReduceMin")),
    aten.any.dim: Row(_rows.any_of),
    aten.any.dims: Row(_rows.any_of),
    aten.any.default: Row(_rows.any_of),
    aten.argmax.default: Row(_rows.place_of("ArgMax")),
    aten.argmin.default: Row(_rows.place_of("ArgMin")),
    aten.max.dim: Row(_rows.extreme_and_place("ReduceMax", "ArgMax")),
    aten.min.dim: Row(_rows.extreme_and_place("ReduceMin", "ArgMin")),
    aten.topk.default: Row(_rows.top),
    aten.sort.default: Row(_rows.sort),
    aten.sort.stable: Row(_rows.stable_sort),
    # Convolutions and norms of batches.
    aten.convolution.default: Row(_convolutions.convolution),
    aten._native_batch_norm_legit_no_training.default: Row(_batch_norms.without_training),
    aten._native_batch_norm_legit_functional.default: Row(_batch_norms.training),
    aten._native_batch_norm_legit.no_stats: Row(_batch_norms.training_without_stats),
    # Pools.
    aten.max_pool2d_with_indices.default: Row(_pools.max_pool, in_torch=_pools.max_pool_in_torch),
    aten.max_pool3d_with_indices.default: Row(_pools.max_pool),
    aten.avg_pool2d.default: Row(_pools.avg_pool),
    aten.avg_pool3d.default: Row(_pools.avg_pool),
    aten._adaptive_avg_pool2d.default: Row(_pools.adaptive_avg_pool),
    # Attention.
    aten._scaled_dot_product_flash_attention_for_cpu.default: Row(_scores.attention, takes_nodes=True),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: Row(
        _scores.attention_backward, takes_nodes=True
    ),
    torch.ops.higher_order.flex_attention: Row(_flex.flex_attention, takes_nodes=True),
    # Lookups.
    aten.embedding.default: Row(_shapes.embedding),
    aten.gather.default: Row(_shapes.gather, broadcasts=True),
    aten.index_select.default: Row(_shapes.index_select),
    aten.index.Tensor: Row(_shapes.index),
    # Shapes.
    aten.view.default: Row(_shapes.view, broadcasts=True),
    aten._unsafe_view.default: Row(_shapes.view, broadcasts=True),
    aten.reshape.default: Row(_shapes.view, broadcasts=True),
    aten.permute.default: Row(_shapes.permute, broadcasts=True),
    aten.transpose.int: Row(_shapes.transpose, broadcasts=True),
    aten.t.default: Row(_shapes.transpose_all, broadcasts=True),
    aten.expand.default: Row(_shapes.expand, broadcasts=True),
    aten.repeat.default: Row(_shapes.repeat),
    aten.unsqueeze.default: Row(_shapes.unsqueeze, broadcasts=True),
    aten.squeeze.default: Row(_shapes.squeeze, broadcasts=True),
    aten.squeeze.dim: Row(_shapes.squeeze, broadcasts=True),
    aten.squeeze.dims: Row(_shapes.squeeze, broadcasts=True),
    aten.slice.Tensor: Row(_shapes.slice_of, broadcasts=True),
    aten.select.int: Row(_shapes.select, broadcasts=True),
    aten.split.Tensor: Row(_shapes.split, broadcasts=True),
    aten.split_with_sizes.default: Row(_shapes.split, broadcasts=True),
    aten.unbind.int: Row(_shapes.unbind, broadcasts=True),
    aten.as_strided.default: Row(_shapes.as_strided),
    aten.cat.default: Row(_shapes.cat),
    aten.constant_pad_nd.default: Row(_shapes.pad),
    aten.slice_scatter.default: Row(_shapes.slice_scatter),
    aten.select_scatter.default: Row(_shapes.select_scatter),
    # Elements at places.
    aten.scatter.src: Row(_scatters.scatter),
    aten.index_put.default: Row(_scatters.index_put),
    # Gradients.
    aten._softmax_backward_data.default: Row(_rows.softmax_backward),
    aten._log_softmax_backward_data.default: Row(_rows.log_softmax_backward),
    aten.native_layer_norm_backward.default: Row(_rows.layer_norm_backward),
    aten.convolution_backward.default: Row(_convolutions.convolution_backward),
    aten.avg_pool2d_backward.default: Row(_pools.avg_pool_backward),
    aten.gelu_backward.default: Row(_pointwise.gelu_backward),
    aten.silu_backward.default: Row(_pointwise.silu_backward),
    aten.tanh_backward.default: Row(_pointwise.tanh_backward),
    aten.sigmoid_backward.default: Row(_pointwise.sigmoid_backward),
    aten.threshold_backward.default: Row(_pointwise.threshold_backward),
    aten.embedding_dense_backward.default: Row(_shapes.embedding_backward),
}

#: Ops that torch runs whole: they draw numbers, or are faster so than in parts.
WHOLE: frozenset[Any] = frozenset(
    {
        aten.native_dropout.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        aten.native_batch_norm_backward.default,
        aten.native_group_norm.default,
        aten.native_group_norm_backward.default,
    }
)


def identity(rows: int, columns: int | None = None, *, dtype: Any = None, **options: Any) -> Any:
    """The parts of `eye`: positions that are compared. Those of torch are of a type in which it has no `arange`."""
    device = options.get("device")
    columns = rows if columns is None else columns
    equal = torch.arange(rows, device=device)[:, None] == torch.arange(columns, device=device)
    return equal.to(torch.get_default_dtype() if dtype is None else dtype)


def sign(x: torch.Tensor) -> Any:
    """The parts of `sign`, which is 0 where there is no number."""
    if x.dtype == torch.bool:
        return NotImplemented
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


#: Comparisons up to which a count of bins is taken apart.
COUNTS = 1 << 18


def counts(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """The parts of `histc` with few bins, such as a count of the rows of each expert: torch counts by threads of its own,
    however few there are."""
    bounds = (min, max)
    is_exact = all(float(one).is_integer() and abs(one) < 1 << 20 for one in bounds)
    if x.dtype != torch.float32 or min >= max or not is_exact or x.numel() * bins > COUNTS:
        return NotImplemented
    x = x.reshape(-1)
    places = torch.floor((x - min) * bins / (max - min)).clamp(max=bins - 1)
    is_within = (x >= min) & (x <= max)
    hits = (torch.arange(bins, device=x.device)[:, None] == places) & is_within
    return hits.to(x.dtype).sum(1)


@cache
def decompositions() -> dict[Any, Any]:
    """The table by which torch takes apart what has no row, which torch makes anew for each that asks."""
    from torch._decomp import core_aten_decompositions

    own = {getattr(op, "overloadpacket", None) for op in ROWS.keys() | WHOLE}
    table = dict[Any, Any](core_aten_decompositions())
    table = {op: parts for op, parts in table.items() if op.overloadpacket not in own}
    table[aten.convolution_backward.default] = _convolutions.gradients_apart
    table[aten._native_batch_norm_legit_no_training.default] = _batch_norms.fixed_parts
    table[aten._native_batch_norm_legit_functional.default] = _batch_norms.functional_parts
    table[aten._native_batch_norm_legit.no_stats] = _batch_norms.bare_parts
    table[aten._transformer_encoder_layer_fwd.default] = _layers.encoder_layer
    table[aten._native_multi_head_attention.default] = _layers.attention
    table |= {aten.histc.default: counts, aten.sign.default: sign}
    return table | {aten.eye.default: identity, aten.eye.m: identity}
