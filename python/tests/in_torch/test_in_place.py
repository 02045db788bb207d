"""Writes of compiled code to its inputs: those that are done in place, and those that must not be."""

import pytest

torch = pytest.importorskip("torch")

import sterna.torch
from sterna.torch import _backend

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]


def run(function, *tensors, dynamic=None):
    """The results of compiled code and of the same in eager torch, what both wrote, and the ops of the graph."""
    ours = [one.clone() if isinstance(one, torch.Tensor) else one for one in tensors]
    theirs = [one.clone() if isinstance(one, torch.Tensor) else one for one in tensors]
    graphs = []
    with torch.no_grad(), _backend.watching(lambda graph, _: graphs.append(graph)):
        made = torch.compile(function, backend=sterna.torch.backend, fullgraph=True, dynamic=dynamic)
        result = made(*ours)
        expected = function(*theirs)
    torch.testing.assert_close([result, *ours], [expected, *theirs])
    return [str(node.target) for node in graphs[-1].module.graph.nodes if node.op == "call_function"]


def attention(q, keys):
    return torch.softmax(q @ keys.transpose(-1, -2), -1) @ keys


def cache_by_index(cache, new, at, q):
    cache.index_copy_(1, at, new)
    return attention(q, cache)


def cache_by_places(cache, new, at, q):
    cache[:, at] = new
    return attention(q, cache)


def cache_twice(cache, new, at, q):
    cache[:, at] = new
    cache[:, at + 2] = new * 2
    return attention(q, cache)


def cache_by_range(cache, new, at, q):
    cache[:, 2:4] = new
    return attention(q, cache)


def cache_by_select(cache, new, at, q):
    cache[:, 3] = new[:, 0]
    return attention(q, cache)


def cache_by_scatter(cache, new, at, q):
    cache.scatter_(1, at[None, :, None].expand_as(new), new)
    return attention(q, cache)


def cache_of_sums(cache, new, at, q):
    cache.scatter_add_(1, at[None, :, None].expand_as(new), new)
    return attention(q, cache)


WRITES = (
    cache_by_index, cache_by_places, cache_twice, cache_by_range, cache_by_select, cache_by_scatter, cache_of_sums
)  # fmt: skip


def tensors():
    return torch.randn(3, 8, 16), torch.randn(3, 2, 16), torch.tensor([4, 1]), torch.randn(3, 2, 16)


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("write", WRITES)
def test_caches_are_written_in_place(write, dynamic):
    ops = run(write, *tensors(), dynamic=dynamic)
    assert not any("copy_" in op for op in ops), ops
    assert any(op.endswith("_.default") or op.endswith("_.src") or "put_" in op for op in ops), ops


def assigns_other_kinds(cache, new, at, q):
    cache[:, 2:4] = new.double()
    cache[:, 5] = 2.5
    cache[1:, :3] = new[0, 0]
    cache[:] = cache.flip(0)
    cache[:, :, 2:] *= 2
    return attention(q, cache)


@pytest.mark.parametrize("dynamic", (False, True))
def test_assignments_of_all_kinds(dynamic):
    run(assigns_other_kinds, *tensors(), dynamic=dynamic)


def test_an_input_in_another_layout():
    cache, *others = tensors()
    run(cache_by_places, cache.transpose(1, 2).contiguous().transpose(1, 2), *others)
    run(cache_by_places, torch.randn(3, 16, 16)[:, ::2], *others)


def reads_before(cache, new, at, q):
    old = attention(q, cache)
    cache[:, at] = new
    return old + attention(q, cache)


def reads_later(cache, new, at, q):
    doubled = cache * 2
    cache[:, at] = new
    return torch.special.erfinv(cache.tanh()) + doubled


def reads_between(cache, new, at, q):
    cache[:, at] = new
    between = cache.sum()
    cache[:, at + 1] = new
    return attention(q, cache) + between


def writes_itself(cache, new, at, q):
    cache[:, 0:2] = cache[:, 1:3]
    return cache.sum(1)


def writes_by_itself(cache, new, at, q):
    cache.scatter_add_(1, at[None, :, None].expand_as(new), cache[:, :2] * 2)
    return cache.sum(1)


def gives_it_out(cache, new, at, q):
    cache[:, at] = new
    return cache, cache[:, 1]


def gives_a_view_out(cache, new, at, q):
    filled = cache.index_put((torch.arange(3)[:, None], at), new)
    cache.copy_(filled)
    return filled[:, 1], filled.transpose(0, 1)


OTHERS = (
    reads_before, reads_later, reads_between, writes_itself, writes_by_itself, gives_it_out, gives_a_view_out
)  # fmt: skip


@pytest.mark.parametrize("write", OTHERS)
def test_what_was_there_is_read_as_it_was(write):
    run(write, *tensors())


def test_results_do_not_share_memory_with_a_cache():
    cache, new, at, q = tensors()
    with torch.no_grad():
        filled, _ = torch.compile(gives_a_view_out, backend=sterna.torch.backend)(cache, new, at, q)
        expected = filled.clone()
        cache.zero_()
    assert torch.equal(filled, expected)


def test_masks_of_places_are_read_once():
    x = torch.randn(4, 6)

    def function(x):
        x[x > 0] = -1.0
        return x.sum()

    run(function, x)


def test_explain_names_what_is_written():
    cache, new, at, q = tensors()
    with torch.no_grad():
        text = str(sterna.torch.explain(cache_by_range, cache, new, at, q))
    assert "put_slice: it writes to an input" in text, text
