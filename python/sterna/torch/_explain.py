"""Tells which part of a model runs where."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from . import _grouped
from ._backend import Compiled, backend, watching
from ._runtime import Program


@dataclass
class PartitionPart:
    """A partition that runs in Sterna.

    Attributes:
        ops: the ops of aten that it stands for, in order.
        kinds: the kinds of ops of Sterna that it is made of.
        flops: floating-point operations of its products and attention, as torch counts them.
        skips_tiles: if it leaves out tiles of scores that its mask leaves empty.
        plan: what runs, step by step.
    """

    ops: list[str]
    kinds: list[str]
    flops: int
    skips_tiles: bool
    plan: str


@dataclass
class TorchPart:
    """An op that torch runs: its name, the reason for which it does, how often it is there, and its FLOPs."""

    op: str
    reason: str
    count: int = 0
    flops: int = 0


@dataclass
class GraphPart:
    """A graph that torch traced.

    Attributes:
        role: ``"inference"``, ``"forward"`` or ``"backward"``.
        partitions: what runs in Sterna, in order.
        kept: what runs in torch, but for views, which cost nothing.
        flops: floating-point operations of all its products and attention.
    """

    role: str
    partitions: list[PartitionPart] = field(default_factory=list[PartitionPart])
    kept: list[TorchPart] = field(default_factory=list[TorchPart])
    flops: int = 0

    @property
    def flops_in_sterna(self) -> int:
        """Floating-point operations of the partitions."""
        return sum(part.flops for part in self.partitions)

    def heading(self) -> str:
        """The graph in a line."""
        share = f"{self.flops_in_sterna / self.flops:.1%}" if self.flops else "none"
        return f"{self.role}: {counted(len(self.partitions), 'partition')}, {share} of FLOPs in Sterna"


@dataclass
class Explanation:
    """What `explain` tells. ``str`` gives a text, `to_html` a page, and a notebook shows the page.

    Attributes:
        graphs: the graphs that torch traced, in the order in which they ran first.
        breaks: the reasons for which torch traced more than one graph, and how often each was there.

    >>> import torch, sterna.torch
    >>> found = sterna.torch.explain(lambda x: torch.relu(x @ x), torch.ones(4, 4))
    >>> found.share, found.breaks, found.graphs[0].partitions[0].ops
    (1.0, {}, ['mm', 'relu'])
    """

    graphs: list[GraphPart]
    breaks: dict[str, int]

    @property
    def share(self) -> float:
        """The share of floating-point operations that are in partitions of Sterna; 1.0 if there are none."""
        total = sum(graph.flops for graph in self.graphs)
        return sum(graph.flops_in_sterna for graph in self.graphs) / total if total else 1.0

    def heading(self) -> str:
        """All in a line."""
        made = f"{counted(len(self.graphs), 'graph')}, {self.share:.1%} of FLOPs in Sterna"
        return f"{made}, {counted(sum(self.breaks.values()), 'graph break')}" if self.breaks else made

    def __str__(self) -> str:
        lines = [self.heading()]
        lines += [f"graph break, {count} ×: {first_line(reason)}" for reason, count in self.breaks.items()]
        for number, graph in enumerate(self.graphs):
            lines += ["", f"graph {number}, {graph.heading()}"]
            for part, times in grouped(graph.partitions):
                more = share_of(part.flops * times, graph), "skips tiles" if part.skips_tiles else ""
                told = ", ".join(one for one in more if one)
                told = f" ({told})" if told else ""
                lines.append(f"  {counted(times, 'partition')}{told}: {runs_of(part.ops)}")
            lines += [f"  in torch: {one.count} × {one.op}: {first_line(one.reason)}" for one in graph.kept]
        return "\n".join(lines)

    def to_html(self) -> str:
        """A page of HTML that needs nothing else."""
        body = self._repr_html_()
        return f"<!doctype html><html lang='en'><meta charset='utf-8'><title>sterna.torch.explain</title>{body}</html>"

    def _repr_html_(self) -> str:
        shown = [f"<div class='sterna-explain'><style>{STYLE}</style><p><b>{html.escape(self.heading())}</b></p>"]
        if self.breaks:
            items = (f"<li>{count} × <pre>{html.escape(reason)}</pre></li>" for reason, count in self.breaks.items())
            shown.append(f"<details><summary>graph breaks</summary><ul>{''.join(items)}</ul></details>")
        for number, graph in enumerate(self.graphs):
            title = html.escape(f"graph {number}, {graph.heading()}")
            shown.append(f"<details open><summary>{title}</summary>{table_of(graph)}</details>")
        return "".join([*shown, "</div>"])


STYLE = (
    ".sterna-explain{font:14px/1.4 system-ui,sans-serif}"
    ".sterna-explain table{border-collapse:collapse;margin:.5em 0 1em}"
    ".sterna-explain td,.sterna-explain th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}"
    ".sterna-explain td.number{text-align:right}"
    ".sterna-explain tr.torch td{opacity:.75}"
    ".sterna-explain pre{white-space:pre-wrap;font-size:12px;margin:.2em 0}"
)


def table_of(graph: GraphPart) -> str:
    """What runs, a row each: first in Sterna, then in torch."""
    rows: list[str] = []
    for part, times in grouped(graph.partitions):
        more = "skips tiles" if part.skips_tiles else ""
        plan = f"<details><summary>plan</summary><pre>{html.escape(part.plan)}</pre></details>"
        share = share_of(part.flops * times, graph)
        rows.append(row_of("Sterna", times, html.escape(runs_of(part.ops)), share, more + plan))
    for one in graph.kept:
        share, reason = share_of(one.flops, graph), html.escape(one.reason)
        rows.append(row_of("torch", one.count, html.escape(one.op), share, reason))
    head = "<tr><th>runs in</th><th>times</th><th>ops</th><th>FLOPs</th><th></th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def row_of(place: str, times: int, ops: str, share: str, more: str) -> str:
    return (
        f"<tr class='{place.lower()}'><td>{place}</td><td class='number'>{times}</td><td>{ops}</td>"
        f"<td class='number'>{share}</td><td>{more}</td></tr>"
    )


def share_of(flops: int, graph: GraphPart) -> str:
    return f"{flops / graph.flops:.1%}" if flops and graph.flops else ""


def counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def runs_of(names: Iterable[str]) -> str:
    """Names in the order in which they come first, each with how often it is there."""
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in Counter(names).items())


def grouped(parts: list[PartitionPart]) -> list[tuple[PartitionPart, int]]:
    """Partitions that are alike, such as those of layers, and how many there are."""
    found: dict[Any, list[PartitionPart]] = {}
    for part in parts:
        found.setdefault((*part.ops, part.flops, part.skips_tiles), []).append(part)
    return [(alike[0], len(alike)) for alike in found.values()]


aten = torch.ops.aten

#: Attention of CPUs, which torch counts from 2.15 on, and that of another device, whose dims come first as well.
COUNTED_AS: dict[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
}


def name_of(node: Node) -> str:
    name = node.target.__name__ if isinstance(node.target, FunctionType) else str(node.target)
    return name.removeprefix("aten.").removesuffix(".default")


def flops_of(node: Node) -> int:
    """The floating-point operations of a node, by the counters of torch."""
    from torch.utils import flop_counter

    target: Any = node.target
    if str(target) in _grouped.CALLS:
        operands = [argument.meta["val"] for argument in node.all_input_nodes[:2]]
        return int(_grouped.flops_of(str(target), [one.shape for one in operands]))
    packet: Any = getattr(target, "overloadpacket", target)
    counters: dict[Any, Callable[..., Any]] = flop_counter.flop_registry
    counter = counters.get(packet) or counters.get(COUNTED_AS.get(packet))
    if counter is None:
        return 0

    def value(argument: Node) -> Any:
        return argument.meta.get("val")

    args: Any = map_arg(node.args, value)
    kwargs: Any = map_arg(node.kwargs, value)
    return int(counter(*args, **kwargs, out_val=value(node)))


def part_of(graph: Compiled, program: Program | None) -> GraphPart:
    """A graph as its program runs it; without a program all of it runs in torch."""
    part = GraphPart(graph.role)
    homes: dict[Node, PartitionPart] = {}
    for step in program.steps if program is not None else ():
        if step.compiled is not None and step.partition is not None and step.nodes:
            plan, kinds = step.compiled.plan, [op["kind"] for op in step.partition.ops]
            one = PartitionPart([name_of(node) for node in step.nodes], kinds, 0, "classes of tiles" in plan, plan)
            part.partitions.append(one)
            homes.update((node, one) for node in step.nodes)
        elif step.call is not None and step.call.function in _grouped.CALLS.values():
            one = PartitionPart([name_of(step.call.node)], ["MatMul"], 0, False, "a product for each group of rows")
            part.partitions.append(one)
            homes[step.call.node] = one
    kept: dict[tuple[str, str], TorchPart] = {}
    reasons = program.reasons if program is not None else {}
    called = {node for step in program.steps if step.call is not None for node in step.nodes} if program else None
    for node in graph.module.graph.nodes:
        if node.op != "call_function":
            continue
        flops = flops_of(node)
        part.flops += flops
        if node in homes:
            homes[node].flops += flops
        elif called is None or (node in called and (node in reasons or flops)):
            key = name_of(node), reasons.get(node) or graph.reason or "no reason is known"
            one_kept = kept.setdefault(key, TorchPart(*key))
            one_kept.count += 1
            one_kept.flops += flops
    part.kept = sorted(kept.values(), key=lambda one: (-one.flops, -one.count))
    return part


def explain(model: Callable[..., Any], *inputs: Any, **kwargs: Any) -> Explanation:
    """Tells which parts of a model run in Sterna when ``torch.compile`` hands it over, which ones in torch, and why.

    The model is compiled anew and called on the inputs. If gradients are recorded, and its result needs them, it runs
    backward as well; gradients of parameters and inputs are left as they were.

    Args:
        model: a module, or a function of tensors.
        inputs, kwargs: what it is called with.

    Returns:
        The graphs with their partitions, the ops that stay with torch, and the graph breaks.

    >>> import torch, sterna.torch
    >>> print(sterna.torch.explain(lambda x: torch.erfinv(torch.relu(x @ x)), torch.ones(4, 4)))
    1 graph, 100.0% of FLOPs in Sterna
    <BLANKLINE>
    graph 0, inference: 1 partition, 100.0% of FLOPs in Sterna
      1 partition (100.0%): mm, relu
      in torch: 1 × erfinv: no row for aten.erfinv.default
    """
    dynamo: Any = torch._dynamo
    graphs: dict[int, tuple[Compiled, Program | None]] = {}

    def watch(graph: Compiled, program: Program | None) -> None:
        graphs[id(graph)] = (graph, program)

    dynamo.reset()
    counters: Any = dynamo.utils.counters
    before = Counter(counters["graph_break"])
    with watching(watch):
        results = torch.compile(model, backend=backend)(*inputs, **kwargs)
        differentiate(results)
    breaks = Counter(counters["graph_break"]) - before
    dynamo.reset()
    return Explanation([part_of(*one) for one in graphs.values()], dict(breaks))


def differentiate(results: Any) -> None:
    """Runs the backward pass of results, if there is one, and leaves no gradient behind."""
    made = [one for one in tree_leaves(results) if isinstance(one, torch.Tensor) and one.grad_fn is not None]
    wanted: list[torch.Tensor] = []
    steps: list[Any] = [one.grad_fn for one in made]
    seen = set[Any](steps)
    while steps:
        step = steps.pop()
        if hasattr(step, "variable"):
            wanted.append(step.variable)
        more = {one for one, _ in step.next_functions if one is not None} - seen
        seen |= more
        steps.extend(more)
    if made and wanted:
        torch.autograd.grad(made, wanted, [torch.ones_like(one) for one in made], allow_unused=True)
