"""Resizing of images as one op.

torch takes ``interpolate`` apart before a backend sees it, into four lookups of all elements and what weighs them, which take several
times as long as its own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn import functional

aten = torch.ops.aten

#: The gradients of the modes, by the number of spatial dims.
GRADIENTS: dict[str, dict[int, Any]] = {
    "nearest": {
        1: aten.upsample_nearest1d_backward.default,
        2: aten.upsample_nearest2d_backward.default,
        3: aten.upsample_nearest3d_backward.default,
    },
    "nearest-exact": {
        1: aten._upsample_nearest_exact1d_backward.default,
        2: aten._upsample_nearest_exact2d_backward.default,
        3: aten._upsample_nearest_exact3d_backward.default,
    },
    "linear": {1: aten.upsample_linear1d_backward.default},
    "bilinear": {2: aten.upsample_bilinear2d_backward.default},
    "bicubic": {2: aten.upsample_bicubic2d_backward.default},
    "trilinear": {3: aten.upsample_trilinear3d_backward.default},
}


def resized(
    x: torch.Tensor,
    size: Sequence[int] | None,
    scales: Sequence[float] | None,
    mode: str,
    align_corners: bool | None,
) -> torch.Tensor:
    numbers = {"size": None if size is None else list(size), "scale_factor": None if scales is None else list(scales)}
    return functional.interpolate(x, **numbers, mode=mode, align_corners=align_corners)  # type: ignore[arg-type]


resize: Any = torch.library.custom_op("sterna::resize", resized, mutates_args=())
resize.register_fake(resized)


def keep_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, _, ctx.scales, ctx.mode, ctx.align_corners = inputs
    ctx.shapes = output.shape[2:], x.shape


def gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    size, shape = ctx.shapes
    count = len(shape) - 2
    given: list[Any] = [] if ctx.mode.startswith("nearest") else [bool(ctx.align_corners)]
    scales = [None] * count if ctx.scales is None else list(ctx.scales)
    made = GRADIENTS[ctx.mode][count](grad, list(size), list(shape), *given, *scales)
    return made, None, None, None, None


resize.register_autograd(gradient, setup_context=keep_for_gradient)


def keep_resizing_whole(module: GraphModule) -> None:
    """Puts the op in the place of calls of ``interpolate`` that it stands for."""
    for node in module.graph.find_nodes(op="call_function", target=functional.interpolate):
        arguments = as_resize(*node.args, **node.kwargs)
        if arguments is not None:
            node.target, node.args, node.kwargs = torch.ops.sterna.resize.default, arguments, {}
    module.recompile()


def as_resize(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> tuple[Any, ...] | None:
    """The arguments of the op for those of ``interpolate``; None if it does not stand for them."""
    value = x.meta.get("example_value") if isinstance(x, Node) else None
    if not isinstance(value, torch.Tensor) or antialias or recompute_scale_factor or mode not in GRADIENTS:
        return None
    count = value.dim() - 2
    if count not in GRADIENTS[mode]:
        return None
    numbers: Callable[[Any], Any] = lambda given: list(given) if isinstance(given, (tuple, list)) else [given] * count
    sizes = None if size is None else numbers(size)
    scales = None if scale_factor is None else numbers(scale_factor)
    if scales is not None and not all(isinstance(one, (int, float)) for one in scales):
        return None
    return x, sizes, None if scales is None else [float(one) for one in scales], mode, align_corners
