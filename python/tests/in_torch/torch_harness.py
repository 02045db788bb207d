"""Runs functions of torch through the lowering without dynamo, so that one op costs milliseconds."""

import threading

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from sterna.torch import _aten, _backend


def traced(function, *tensors):
    """The graph of a function for tensors, as the backend gets it."""
    # Rows see what a backend sees: ops without gradients.
    with torch.no_grad():
        table = _aten.decompositions()
        return make_fx(torch.func.functionalize(function), table, tracing_mode="fake")(*tensors)


def run(function, *tensors):
    """The results of a function in Sterna, and the program that gave them."""
    return run_graph(traced(function, *tensors), *tensors)


def run_graph(module, *tensors):
    """The results of a graph in Sterna, and the program that gave them."""
    module.graph.eliminate_dead_code()
    programs = []
    with _backend.watching(lambda _, program: programs.append(program)):
        results = _backend.Compiled("inference", module)(list(tensors))
    return results, programs[0]


def check(function, *tensors, taken=True, strides=False, **tolerance):
    """Compares the results of a function with those of torch; `taken` says that no node stays with torch."""
    results, program = run(function, *tensors)
    if taken:
        assert not program.reasons, list(program.reasons.values())
    expected = function(*tensors)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for result, wanted in zip(results, expected, strict=True):
        if wanted is None:
            assert result is None
            continue
        torch.testing.assert_close(result, wanted, equal_nan=True, check_stride=strides, **tolerance)
    return program


def in_threads(work, count=4):
    """Runs a function in several threads at once."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
