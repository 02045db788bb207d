"""The options that users give to torch.compile."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F

import sterna.torch
from sterna.torch import _backend

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]


def compiled(function, **options):
    return torch.compile(function, backend=sterna.torch.backend, options=options)


def test_weights_that_are_not_packed():
    model, x = torch.nn.Linear(96, 96), torch.randn(64, 96)
    function = compiled(model, packed=False)
    programs = []
    with torch.no_grad(), _backend.watching(lambda _, program: programs.append(program)):
        for place in range(5):
            torch.testing.assert_close(function(x), model(x), rtol=1e-4, atol=1e-4)
            # One element, by a way of which torch keeps no count.
            model.weight.data[place, place] += 10
    assert not any(step.frozen for step in programs[0].steps)


def rest(x, ids, table):
    """Ops that Sterna has, those that it has not, alone and together, and numbers that torch draws."""
    y = torch.special.i1(torch.special.i0(x)).cumsum(0)
    z = torch.special.erfinv(x.tanh() * 0.5).cumsum(-1) + torch.special.i0(x)
    return torch.softmax(y, -1) @ F.embedding(ids, table), y.t(), F.dropout(z, 0.5)


@pytest.mark.parametrize("has_gradients", (False, True))
def test_the_rest_by_inductor(has_gradients):
    pytest.importorskip("torch._inductor")
    function = compiled(rest, rest="inductor")
    programs = []
    for count in (8, 8, 9):
        given = [torch.randn(count, 5), torch.randint(0, 9, (5,)), torch.randn(9, 4)]
        given[0].requires_grad_(has_gradients)
        found = []
        for one in (function, rest):
            torch.manual_seed(1)
            with _backend.watching(lambda _, program: programs.append(program)):
                results = one(*given)
                found.append([one.detach() for one in results])
            if has_gradients:
                found[-1] += torch.autograd.grad(sum(one.sum() for one in results), given[0])
        torch.testing.assert_close(*found)
        assert [one.stride() for one in found[0]] == [one.stride() for one in found[1]]
    joined = [step for program in programs for step in program.steps if step.call is not None and len(step.nodes) > 1]
    assert joined and not any(isinstance(step.call.function, torch._ops.OpOverload) for step in joined)


def test_explain_names_what_inductor_runs():
    graphs = []
    with _backend.watching(lambda graph, program: graphs.append((graph, program))):
        compiled(rest, rest="inductor")(torch.randn(8, 5), torch.randint(0, 9, (5,)), torch.randn(9, 4))
    from sterna.torch._explain import part_of

    kept = {one.op for one in part_of(*graphs[0]).kept}
    assert {"i0", "special_i1", "cumsum"} <= kept


@pytest.mark.parametrize("options", ({"fast": True}, {"rest": "tvm"}, {"packed": 1}))
def test_other_options_are_refused(options):
    with pytest.raises(Exception, match="no option 'fast'|rest is one of torch, inductor|packed is True or False"):
        compiled(torch.relu, **options)(torch.ones(2))


def test_modes_change_nothing():
    function = torch.compile(torch.relu, backend="sterna", mode="max-autotune")
    assert function(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]
