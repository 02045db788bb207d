"""Sizes of a traced graph for the numbers that its symbols have in a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

Symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Meta:
    """A tensor as it was traced, with known sizes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def elements(self) -> int:
        count = 1
        for dim in self.shape:
            count *= dim
        return count


def meta_of(tensor: torch.Tensor) -> Meta:
    """A tensor that is there as it would be traced."""
    return Meta(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))


class Unknown(Exception):
    """Says that a size follows from elements, not from the shapes of inputs."""


class Sizes:
    """The numbers of symbols, and what follows from them."""

    def __init__(self, module: GraphModule, args: list[Any]) -> None:
        self.symbols: dict[Any, Any] = {}
        self.numbers: dict[Node, Any] = {}
        #: Inputs that are tensors for tracers alone: those that keep ops with effects in order.
        self.tokens: set[Node] = set()
        #: Inputs that are sizes, but no numbers.
        self.objects: set[Node] = set()
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        for node, given in zip(places, args, strict=True):
            value = node.meta.get("val")
            if isinstance(given, torch.SymInt):
                # The size of a nested tensor, which is no number.
                self.objects.add(node)
            elif isinstance(value, torch.SymInt):
                self.learn(value, given)
            elif isinstance(value, torch.Tensor) and given is None:
                self.tokens.add(node)
            elif isinstance(value, torch.Tensor):
                for size, number in zip(value.shape, given.shape, strict=True):
                    self.learn(size, number)
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.SymFloat) or node in self.objects:
                continue
            if isinstance(value, Symbolic):
                self.numbers[node] = self.of(value)
            elif isinstance(value, (int, float, bool)) and node.op != "placeholder":
                self.numbers[node] = value

    def learn(self, size: Any, number: int) -> None:
        if isinstance(size, torch.SymInt):
            expression = size.node.expr
            if expression.is_symbol:
                self.symbols.setdefault(expression, number)

    def of(self, size: Any) -> Any:
        """A size as a number."""
        if not isinstance(size, Symbolic):
            return size
        found: Any = size.node.expr.xreplace(self.symbols)
        # An expression that is a symbol becomes the number itself.
        if getattr(found, "free_symbols", None):
            raise Unknown(f"{found} follows from elements")
        return bool(found) if isinstance(size, torch.SymBool) else int(found)

    def is_known(self, node: Node) -> bool:
        """If a node is a number that follows from sizes."""
        return node in self.numbers

    def number(self, node: Node) -> Any:
        """The number that a node is."""
        return self.numbers[node]

    def meta(self, tensor: torch.Tensor) -> Meta:
        """A traced tensor with known sizes."""
        shape = tuple(self.of(size) for size in tensor.shape)
        strides = tuple(self.of(size) for size in tensor.stride()) if tensor.layout == torch.strided else ()
        return Meta(tensor.dtype, shape, strides)
