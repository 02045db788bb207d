"""Products of groups of rows, such as those of experts, whose sizes are data: a product of Sterna for each group.

They are calls between partitions, as those of torch are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from ._calls import Call, Desc, Kept
from ._convert import TYPES, Lowering, NotTaken, Row
from ._rows import PRODUCTS

aten = torch.ops.aten

#: Rows of a group are rounded up to so many, so that few sizes are compiled: those beyond it are written again, by the
#: next group.
ROWS = 16

_products: Kept[Call] = Kept()


def multiply(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """Writes a product of two matrices, in whatever way they lie."""
    given, threads = (Desc.of(x), Desc.of(y), Desc.of(out)), torch.get_num_threads()

    def make() -> Call:
        return Call(lambda g, values: g.op("MatMul", values)[:1], given[:2], given[2:], threads)

    _products.get((given, threads), make).run((x, y), (out,))


def groups(offsets: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """The number of each group that has rows, with the first one and the one behind the last."""
    start = 0
    for index, end in enumerate(offsets.tolist()):
        if start < end:
            yield index, start, end
            start = end


def is_taken(*tensors: torch.Tensor) -> bool:
    return all(TYPES.get(one.dtype) in PRODUCTS and one.dtype == tensors[0].dtype for one in tensors)


def rows_by_group(x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Each group of rows by a matrix of its own; rows behind the last group are 0."""
    end = 0
    for index, start, end in groups(offsets):
        count = end - start
        rounded = -(-count // ROWS) * ROWS
        count = rounded if count > ROWS and start + rounded <= x.shape[0] else count
        multiply(x.narrow(0, start, count), weights[index], out.narrow(0, start, count))
    out.narrow(0, end, out.shape[0] - end).zero_()
    return out


def columns_by_group(x: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """For each group the product of its columns of one matrix and its rows of another; 0 for one without."""
    seen = 0
    for index, start, end in groups(offsets):
        out[seen:index].zero_()
        multiply(x.narrow(1, start, end - start), y.narrow(0, start, end - start), out[index])
        seen = index + 1
    out[seen:].zero_()
    return out


def of_aten(x: torch.Tensor, y: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if offs is None or bias is not None or out_dtype not in (None, x.dtype) or not is_taken(x, y) or x.dim() != 2:
        return aten._grouped_mm.default(x, y, offs, bias, out_dtype)
    if y.dim() == 3:
        return rows_by_group(x, y, offs, x.new_empty(x.shape[0], y.shape[2]))
    return columns_by_group(x, y, offs, x.new_empty(offs.shape[0], x.shape[0], y.shape[1]))


def of_experts(x: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    if not is_taken(x, weights):
        return torch.ops.transformers.grouped_mm_fallback(x, weights, offs)  # type: ignore[no-any-return]
    return rows_by_group(x, weights, offs, x.new_empty(x.shape[0], weights.shape[2]))


def of_experts_backward(x: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor, grad: torch.Tensor) -> Any:
    if not is_taken(x, weights, grad):
        return torch.ops.transformers.grouped_mm_fallback_backward(x, weights, offs, grad)
    of_rows = rows_by_group(grad, weights.transpose(1, 2), offs, torch.empty_like(x))
    return of_rows, columns_by_group(x.t(), grad, offs, torch.empty_like(weights))


#: What runs in place of an op, by its name: those of transformers are not there before it is read.
CALLS: dict[str, Callable[..., Any]] = {
    "aten._grouped_mm.default": of_aten,
    "transformers.grouped_mm_fallback.default": of_experts,
    "transformers.grouped_mm_fallback_backward.default": of_experts_backward,
}


def sizes_are_data(c: Lowering, *_: Any, **__: Any) -> NoReturn:
    raise NotTaken("the sizes of groups are data")


#: Their rows: none of them is part of a partition.
OPS = {name: Row(sizes_are_data, takes_nodes=True, in_torch=function) for name, function in CALLS.items()}


def flops_of(name: str, shapes: list[tuple[int, ...]]) -> int:
    """The operations of an op of `CALLS` on operands of these shapes, if each row is in a group."""
    (rows, depth), other = shapes[0], shapes[1]
    return 2 * rows * depth * other[-1] * (2 if "backward" in name else 1)
