"""Programs in the forms in which users report what compiled code does otherwise than eager code."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import sterna.torch
from sterna.torch import _backend

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]
close = torch.testing.assert_close


def compiled(function, **options):
    return torch.compile(function, backend=sterna.torch.backend, **options)


def both(function, *tensors, **options):
    """Compares results, and what the tensors hold afterwards."""
    own, wanted = ([one.clone() for one in tensors] for _ in range(2))
    close(compiled(function, **options)(*own), function(*wanted), equal_nan=True)
    close(own, wanted, equal_nan=True)


def test_marked_sizes():
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    function = compiled(model, fullgraph=True)
    for shape in ((4, 7, 16), (8, 7, 16), (3, 2, 16), (2, 64, 16)):
        x = torch.randn(shape, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(x, 1, min=2, max=64)
        found, wanted = (torch.autograd.grad(one(x).square().sum(), x) for one in (function, model))
        close(found, wanted, rtol=1e-4, atol=1e-5)


def shifted(x, y):
    x.add_(100)
    return y[0] + 1, y.sum(0)


def test_inputs_that_share_memory():
    found, wanted = torch.arange(24.0).reshape(4, 6), torch.arange(24.0).reshape(4, 6)
    close(compiled(shifted)(found, found[1:]), shifted(wanted, wanted[1:]))
    close(found, wanted)


def read_as_bits(x):
    y = x.view(torch.int32) * 2
    y.sub_(-4)
    x[:, 2:5] = 2
    return y.view(torch.int64)


def read_before(x, w):
    y, z = x @ w, x[:, :2] * 1.5
    x.mul_(2)
    x[0] = 7
    return y, z, x + 1, x[:, :1]


@pytest.mark.parametrize("dynamic", (False, True))
def test_inputs_that_are_read_before_they_are_written(dynamic):
    both(read_as_bits, torch.arange(-12, 12).reshape(4, 6), dynamic=dynamic)
    both(read_before, torch.randn(4, 4), torch.randn(4, 4), dynamic=dynamic)
    with torch.no_grad():
        both(read_before, torch.randn(64, 64), torch.randn(64, 64), dynamic=dynamic)


def test_results_are_tensors_of_their_own():
    def function(x):
        y = x + 1
        return y, y.view(-1), y.detach(), y.t(), y.expand(2, *y.shape), y

    found, wanted = compiled(function)(torch.ones(2, 3)), function(torch.ones(2, 3))
    for one in (found, wanted):
        one[0].add_(5)
    close(found, wanted)
    assert len({id(one) for one in found}) == 5 and found[5] is found[0]


def of_all_kinds(x, w):
    y = x @ w
    return y, y.sum(), y.softmax(-1), F.layer_norm(y, y.shape[-1:]), y.exp().cumsum(-1), F.mse_loss(y, y * 0)


@pytest.mark.parametrize("dynamic", (False, True))
def test_autocast_keeps_types_in_open_sizes(dynamic):
    function = compiled(of_all_kinds, dynamic=dynamic)
    with torch.autocast("cpu", torch.bfloat16):
        for count in (5, 6, 9):
            x, w = torch.randn(count, 8), torch.randn(8, 8)
            close(function(x, w), of_all_kinds(x, w), rtol=2e-2, atol=2e-2)


def test_checkpoints_that_draw_numbers():
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5))
    x = torch.randn(4, 8, requires_grad=True)
    y = compiled(lambda x: checkpoint(model, x, use_reentrant=False))(x)
    y.sum().backward()
    # The gradient of a bias counts the rows in which its unit stays.
    close(model[0].bias.grad, 2.0 * (y != 0).sum(0))


def test_nested_tensors():
    linear = nn.Linear(8, 8)

    def function(x):
        return linear(x).relu() * 2

    graphs = []
    with _backend.watching(lambda graph, program: graphs.append(program)):
        made = compiled(function)
        for lengths in ((3, 5), (3, 5), (3, 5), (2, 6, 4)):
            x = torch.nested.nested_tensor([torch.randn(one, 8) for one in lengths], layout=torch.jagged)
            close(made(x).values(), function(x).values())
    # The size of a nested tensor is another one each time, and no reason for another program.
    assert len(graphs) == 2 and any(step.compiled is not None for step in graphs[0].steps)


def test_weights_that_are_tied():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(100, 64), nn.Linear(64, 100, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(F.gelu(self.embed(ids)))

    models, ids = [Model()], torch.randint(0, 100, (3, 9))
    models.append(copy.deepcopy(models[0]))
    logits = []
    for model, function in ((models[0], compiled(models[0])), (models[1], models[1])):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(function(ids).flatten(0, 1), ids.flatten()).backward()
            optimizer.step()
        with torch.no_grad():
            logits.append(function(ids))
    close(logits[0], logits[1], rtol=1e-3, atol=1e-4)


LOOKUPS = {
    "embedding": lambda e, i: F.embedding(i, e),
    "index_select": lambda e, i: e.index_select(0, i),
    "columns": lambda e, i: e.index_select(1, i),
}


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("index", (4, 9, -1, -100))
def test_indices_that_lead_nowhere(name, index):
    function, table = LOOKUPS[name], torch.randn(4, 4)
    made = compiled(function)
    close(made(table, torch.tensor([3, 0])), function(table, torch.tensor([3, 0])))
    with pytest.raises(IndexError, match="out of range, at place 1"):
        made(table, torch.tensor([0, index]))


def test_indices_from_the_end():
    table, made = torch.randn(4, 4), compiled(lambda table, index: table[index])
    close(made(table, torch.tensor([-1, 0])), table[[-1, 0]])
    with pytest.raises(IndexError):
        made(table, torch.tensor([0, -5]))


def test_exported_programs():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).eval()
    sizes = ({0: torch.export.Dim("batch", min=2, max=64)},)
    program = torch.export.export(model, (torch.randn(4, 8),), dynamic_shapes=sizes)
    for one in (program, program.run_decompositions()):
        function = compiled(one.module())
        for count in (4, 9):
            x = torch.randn(count, 8)
            close(function(x), model(x))
