"""Attention of `flex_attention`: its functions of scores and positions become part of the chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from sterna import Value

from ._attention import fill, forward, masked
from ._convert import Lowering, NotTaken
from ._scores import Heads, grouped, heads_of
from ._shapes import shape_of

aten = torch.ops.aten

#: The positions that functions are given, in the order of the dims of the scores.
NAMES = ("batch", "head", "query", "key")


@dataclass
class Position:
    """An argument that says where a score is."""

    name: str


@dataclass
class Lookup:
    """A tensor of the caller, of whose first dims the positions are known."""

    tensor: Value
    names: tuple[str, ...]


class Traced:
    """Walks through a function of one score, with the scores of all pairs in its place."""

    def __init__(self, c: Lowering, heads: Heads, scores: Value) -> None:
        self.c, self.heads, self.scores = c, heads, scores
        self.positions: dict[str, Value] = {}

    def run(self, function: Any, has_score: bool, buffers: Sequence[Any]) -> Any:
        """What a function gives: a value of the rank of the scores or a scalar, or a number."""
        given = [self.scores] if has_score else []
        arguments = [*given, *map(Position, NAMES), *map(self.buffer, buffers)]
        module = retraced(function, has_score, [self.example(one) for one in buffers])
        found: dict[Node, Any] = {}
        rest = iter(arguments)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                found[node] = next(rest)
            elif node.op == "call_function":
                found[node] = self.call(node, found)
            elif node.op == "output":
                result = node.args[0]
                if isinstance(result, (tuple, list)):
                    (result,) = result
                return self.value(found[result]) if isinstance(result, Node) else result
            else:
                raise NotTaken("a function with parts that are not known")
        raise NotTaken("a function without a result")

    def buffer(self, given: Any) -> Any:
        if isinstance(given, Node) and not self.c.sizes.is_known(given):
            return Lookup(self.c.operand(given, False), ())
        return self.c.sizes.number(given) if isinstance(given, Node) else given

    def example(self, given: Any) -> Any:
        if isinstance(given, Node) and not self.c.sizes.is_known(given):
            meta = self.c.meta(given)
            return torch.empty(meta.shape, dtype=meta.dtype, device="meta")
        return self.c.sizes.number(given) if isinstance(given, Node) else given

    def value(self, given: Any) -> Any:
        """A value that ops take."""
        if isinstance(given, Position):
            return self.position(given.name)
        return self.looked_up(given) if isinstance(given, Lookup) else given

    def position(self, name: str) -> Value:
        if name not in self.positions:
            g, rank = self.c.builder(), len(shape_of(self.scores))
            if name != "head":
                axis = {"batch": 0, "query": rank - 2, "key": rank - 1}[name]
                made = g.gen_index(self.scores, axis=axis)
            else:
                made = g.gen_index(self.scores, axis=1)
                if self.heads.group > 1:
                    made = g.add(g.multiply(made, fill(g, self.heads.group, "s32")), g.gen_index(self.scores, axis=2))
            self.positions[name] = made
        return self.positions[name]

    def extent(self, name: str) -> int:
        shape = shape_of(self.scores)
        if name == "head":
            return shape[1] * self.heads.group
        return shape[{"batch": 0, "query": -2, "key": -1}[name]]

    def looked_up(self, lookup: Lookup) -> Value:
        """The elements of a tensor at the positions, which broadcast to the scores."""
        value, names = lookup.tensor, lookup.names
        if len(shape_of(value)) != len(names):
            raise NotTaken("a row of a tensor as a number")
        if not names:
            return value
        for axis, name in enumerate(names):
            have, wanted = shape_of(value)[axis], self.extent(name)
            if have < wanted:
                raise NotTaken("a tensor with fewer elements than positions")
            if have > wanted:
                value = self.c.op("Slice", value, starts=[0], ends=[wanted], steps=[1], axes=[axis])
        order = sorted(range(len(names)), key=lambda axis: NAMES.index(names[axis]))
        if order != list(range(len(order))):
            value = self.c.op("StaticTranspose", value, order=order)
        dims = [self.extent(name) if name in names else 1 for name in NAMES]
        return grouped(self.c, self.heads, self.c.reshape(value, dims))

    def call(self, node: Node, found: dict[Node, Any]) -> Any:
        if node.target is aten.index.Tensor:
            return self.index(node, found)
        row = self.c.rows.get(node.target)
        if row is None or not row.broadcasts:
            raise NotTaken(f"no row for {node.target} in a function")
        args: Any = map_arg(node.args, lambda one: self.value(found[one]))
        kwargs: Any = map_arg(node.kwargs, lambda one: self.value(found[one]))
        outer, self.c.node = self.c.node, node
        try:
            return row.make(self.c, *args, **kwargs)
        finally:
            self.c.node = outer

    def index(self, node: Node, found: dict[Node, Any]) -> Lookup:
        source: Any = node.args[0]
        indices: Any = node.args[1]
        tensor = found[source]
        given = [found[one] if isinstance(one, Node) else None for one in indices]
        places = [one.name for one in given if isinstance(one, Position)]
        if not isinstance(tensor, Lookup) or len(places) < len(given):
            raise NotTaken("an index that is not a position")
        names = (*tensor.names, *places)
        if len(set(names)) != len(names):
            raise NotTaken("a position that is an index twice")
        return Lookup(tensor.tensor, names)


def retraced(function: Any, has_score: bool, buffers: Sequence[Any]) -> GraphModule:
    """A function of one score, traced for scores of f32, in which they are computed whatever the queries are."""
    from torch.fx.experimental.proxy_tensor import make_fx

    numbers = [torch.empty((), device="meta")] if has_score else []
    places = [torch.empty((), dtype=torch.int32, device="meta") for _ in NAMES]
    with torch.no_grad():
        made: GraphModule = make_fx(function)(*numbers, *places, *buffers)
    made.graph.eliminate_dead_code()
    return made


def flex_attention(
    c: Lowering,
    q: Any,
    k: Any,
    v: Any,
    score_function: Any,
    block_mask: Any,
    scale: Any,
    options: Any,
    score_buffers: Any = (),
    mask_buffers: Any = (),
) -> tuple[Value | None, ...]:
    if c.used(1) or c.used(2):
        raise NotTaken("statistics of its softmax")
    metas: Any = c.metas_of(c.node)
    heads = heads_of(c, q, k, v, scale)

    def function_of(node: Node) -> Any:
        return getattr(c.module, str(node.target))

    def scores(g: Any, products: Value) -> Value:
        scaled = g.multiply(products, fill(g, heads.scale))
        made = Traced(c, heads, scaled).run(function_of(score_function), True, score_buffers)
        if not isinstance(made, Value):
            raise NotTaken("scores that are a number")
        keeps = Traced(c, heads, made).run(function_of(block_mask[-1]), False, mask_buffers)
        if not isinstance(keeps, Value):
            raise NotTaken("a mask that is a number")
        return masked(c.builder(), keeps, c.cast(made, "f32"))

    with c.as_owner():
        out, _ = forward(c.builder(), heads.q, heads.k, heads.v, scores)
    return c.reshape(out, metas[0].shape), None, None
