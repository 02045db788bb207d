"""Hands what Sterna does not take over to inductor, if a user wants that."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ._convert import Call, Converted, Ref, has_effects, is_view
from ._runtime import Step

#: Fewest ops, but for views, that are worth a function of inductor: one alone is a call of torch there, too.
FEWEST = 2


def join_rest(made: Converted, steps: list[Step]) -> list[Step]:
    """Makes one step of those of torch that follow each other, as far as inductor takes them."""
    found: list[Step] = []
    run: list[Step] = []
    for index, step in enumerate(steps):
        if is_joinable(made, step):
            run.append(step)
        else:
            found += [*joined(made, run, steps[index:]), step]
            run = []
    return found + joined(made, run, [])


def is_joinable(made: Converted, step: Step) -> bool:
    """If a step is an op of torch, without effects, of tensors that are known."""
    call = step.call
    if call is None or not isinstance(call.function, torch._ops.OpOverload) or has_effects(call.node):
        return False
    return all(number in made.metas for number in (*step.inputs, *call.results))


def joined(made: Converted, run: list[Step], rest: Sequence[Step]) -> list[Step]:
    """A step for a run of them, of whose results it gives those that the rest needs."""
    calls = [step.call for step in run if step.call is not None]
    computed = [call for call in calls if not is_view(call.node)]
    if len(computed) < FEWEST:
        return run
    given = {number for kind, number in made.outputs if kind == "value"}
    needed = given.union(*(step.inputs for step in rest))
    results = tuple(number for call in calls for number in call.results if number in needed)
    inner = {number for call in calls for number in call.results}
    inputs = tuple(dict.fromkeys(number for step in run for number in step.inputs if number not in inner))
    function = compiled(made, calls, inputs, results)
    nodes = tuple(dict.fromkeys(node for step in run for node in step.nodes))
    call = Call(computed[-1].node, function, tuple(map(Ref, inputs)), {}, results, is_tuple=True)
    return [Step(nodes, inputs, results, call=call)]


def compiled(made: Converted, calls: list[Call], inputs: tuple[int, ...], results: tuple[int, ...]) -> Any:
    """A function of inductor for calls of torch."""
    graph = Graph()
    values: dict[int, Node] = {number: graph.placeholder(f"v{number}") for number in inputs}

    def of(given: Any) -> Any:
        if isinstance(given, Ref):
            return values[given.number]
        if isinstance(given, (list, tuple)):
            return type(given)(map(of, given))
        return given

    for call in calls:
        arguments: Any = of(list(call.args)), {name: of(value) for name, value in call.kwargs.items()}
        made_by = graph.call_function(call.function, tuple(arguments[0]), arguments[1])
        for index, number in enumerate(call.results):
            values[number] = graph.call_method("__getitem__", (made_by, index)) if call.is_tuple else made_by
    graph.output(tuple(values[number] for number in results))
    metas = [made.metas[number] for number in inputs]
    examples = [torch.empty_strided(meta.shape, meta.strides, dtype=meta.dtype) for meta in metas]
    module = GraphModule(torch.nn.Module(), graph)
    # The thread that calls a compiled function has modes of torch in which nothing can be traced.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(by_inductor, module, examples).result()


def by_inductor(module: GraphModule, examples: list[torch.Tensor]) -> Any:
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    # Random numbers stay those of torch.
    with torch.no_grad(), config.patch(fallback_random=True):
        return compile_fx(module, examples)
