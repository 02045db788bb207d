"""Puts elements of inputs where they are, in place of copies of whole inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ._convert import is_view

aten = torch.ops.aten

#: Where a slice ends that has no end.
LAST = (1 << 63) - 1


def put_slice(x: torch.Tensor, source: torch.Tensor, *where: Any, **more: Any) -> torch.Tensor:
    aten.slice.Tensor(x, *where, **more).copy_(source)
    return x


def put_select(x: torch.Tensor, source: torch.Tensor, *where: Any, **more: Any) -> torch.Tensor:
    aten.select.int(x, *where, **more).copy_(source)
    return x


#: What puts elements into a copy of its first argument, and what puts them into the argument itself.
PUTS: dict[Any, Any] = {
    aten.index_put.default: aten.index_put_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.slice_scatter.default: put_slice,
    aten.select_scatter.default: put_select,
}


def put_in_place(module: GraphModule) -> list[Node]:
    """Lets ops put elements into inputs, such as caches of keys, and gives these nodes.

    A write to an input is traced as a copy with the new elements, and at the end of the graph a copy of all of them
    back. Where nobody reads what was there before, both are spared.
    """
    found: list[Node] = []
    if not module.graph.find_nodes(op="call_function", target=aten.copy_.default):
        return found
    simplify(module)
    for copy in module.graph.find_nodes(op="call_function", target=aten.copy_.default):
        source, made = copy.args[:2]
        puts = chain(source, made, copy)
        if len(copy.args) == 2 and not copy.kwargs and not copy.users and puts:
            for node in puts:
                node.target = PUTS[node.target]
            module.graph.erase_node(copy)
            found += puts
    if found:
        module.recompile()
    return found


def simplify(module: GraphModule) -> None:
    """Leaves out what an assignment to a slice is traced with beside the put: slices of whole dims, and a copy over
    elements that nobody reads."""
    for node in module.graph.nodes:
        same: Any = None
        if node.target is aten.slice.Tensor and is_whole(*node.args[1:]) and not node.kwargs:
            same = node.args[0]
        elif node.target is aten.slice_scatter.default and is_whole(*node.args[2:]) and not node.kwargs:
            same = node.args[1]
        elif node.target is aten.copy.default:
            same = node.args[1]
        if same is not None and is_alike(same, node, strides=node.target is aten.slice.Tensor):
            if not is_given_out(node):
                node.replace_all_uses_with(same)
    module.graph.eliminate_dead_code()


def is_whole(dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> bool:
    """If a slice is all of its dim, whatever the size."""
    return start in (None, 0) and step == 1 and (end is None or (isinstance(end, int) and end >= LAST))


def chain(source: Any, made: Any, copy: Node) -> list[Node]:
    """The ops, one after the other, that put elements into an input that nobody else reads; none if that is not how
    the copy back was made."""
    if source.op != "placeholder" or not isinstance(made, Node) or not is_alike(source, made) or is_given_out(made):
        return []
    puts: list[Node] = []
    node = made
    readers = {copy}
    while node is not source:
        # Between two of them nobody else may read what the first one put.
        if node.target not in PUTS or (puts and set(node.users) != readers) or arguments(node).count(node.args[0]) != 1:
            return []
        puts.append(node)
        readers = {node}
        before = node.args[0]
        assert isinstance(before, Node)
        node = before
    return puts if puts and set(source.users) == {puts[-1], copy} else []


def arguments(node: Node) -> list[Any]:
    """Each place in which a node reads another one."""
    found: list[Any] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


def is_alike(a: Node, b: Node, strides: bool = True) -> bool:
    """If two nodes were traced as tensors of one type and shape, and with the same strides. Symbols are compared by
    name."""
    values: list[Any] = [one.meta.get("val") for one in (a, b)]
    if not all(isinstance(one, torch.Tensor) and one.layout == torch.strided for one in values):
        return False
    said = [(one.dtype, [*map(str, one.shape)], [*map(str, one.stride())] if strides else []) for one in values]
    return said[0] == said[1]


def is_given_out(node: Node) -> bool:
    """If a result of the graph is a node, or a view of it."""
    return any(user.op == "output" or (is_view(user) and is_given_out(user)) for user in node.users)
