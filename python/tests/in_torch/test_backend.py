"""The backend of torch.compile against eager torch: gradients, views, writes, shapes, threads, forks."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check, in_threads, run

import sterna.torch
from sterna.torch import _backend

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]


def compiled(function, **options):
    return torch.compile(function, backend=sterna.torch.backend, fullgraph=True, **options)


class Programs(list):
    """The programs that are made in a block, with the graphs they belong to."""

    def __enter__(self):
        self.block = _backend.watching(lambda graph, program: self.append((graph, program)))
        self.block.__enter__()
        return self

    def __exit__(self, *error):
        self.block.__exit__(*error)


def small():
    linear = torch.nn.Linear
    return torch.nn.Sequential(
        linear(8, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), linear(128, 64), linear(64, 4)
    )


def test_forward_and_backward():
    model, x = small(), torch.randn(3, 5, 8)
    function = compiled(model)
    with Programs() as programs:
        with torch.no_grad():
            torch.testing.assert_close(function(x), model(x))
        x.requires_grad_()
        function(x).square().sum().backward()
    found = [x.grad, *(parameter.grad for parameter in model.parameters())]
    x.grad = None
    model.zero_grad(set_to_none=True)
    model(x).square().sum().backward()
    for one, wanted in zip(found, [x.grad, *(parameter.grad for parameter in model.parameters())], strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)
    assert [graph.role for graph, _ in programs] == ["inference", "forward", "backward"]
    assert all(any(step.compiled is not None for step in program.steps) for _, program in programs)


def test_training_follows_parameters():
    models = [small(), small()]
    models[1].load_state_dict(models[0].state_dict())
    x, losses = torch.randn(16, 8), [[], []]
    for index, model in enumerate(models):
        function = compiled(model) if index else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(5):
            loss = (function(x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[index].append(loss.detach())
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)


def replaced(weight):
    weight.data = torch.randn_like(weight)


@pytest.mark.parametrize(
    "write",
    [
        lambda weight: weight.add_(1),
        lambda weight: weight.data.mul_(2),
        lambda weight: weight.copy_(torch.randn_like(weight)),
        replaced,
    ],
)
def test_no_packed_copy_is_stale(write):
    model, x = torch.nn.Linear(96, 64), torch.randn(130, 96)
    function = compiled(model)
    with torch.no_grad(), Programs() as programs:
        for _ in range(3):
            torch.testing.assert_close(function(x), model(x))
        assert any(step.frozen for _, program in programs for step in program.steps)
        for _ in range(3):
            write(model.weight)
            torch.testing.assert_close(function(x), model(x))


def test_inputs_that_are_written():
    def function(x, y):
        x.add_(1)
        y[1:].mul_(x[:2])
        return x * y, x[0]

    given = [torch.randn(3, 4) for _ in range(2)]
    wanted = [one.clone() for one in given]
    torch.testing.assert_close(compiled(function)(*given), function(*wanted))
    torch.testing.assert_close(given, wanted)


def test_buffers_that_are_written():
    models = [torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)]
    x = torch.randn(8, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(models[0])(x), models[1](x))
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


def test_views_and_aliases():
    def function(x):
        y = torch.relu(x) + 1
        return x.t(), x[1:], y, y.view(-1)[2:6], y.clone(), x, y.t().contiguous(), None, 3

    x = torch.randn(3, 4)
    found, wanted = compiled(function)(x), function(x)
    torch.testing.assert_close(found, wanted)
    assert [one.stride() for one in found[:7]] == [one.stride() for one in wanted[:7]]
    assert found[0].data_ptr() == x.data_ptr() and found[5] is x
    found[3].zero_()
    assert (found[2].flatten()[2:6] == 0).all()
    torch.testing.assert_close(found[4], wanted[4])


def test_constants_are_not_shared():
    def function(x):
        return x + 1, torch.zeros(3)

    call, x = compiled(function), torch.ones(2)
    call(x)[1].add_(5)
    torch.testing.assert_close(call(x)[1], torch.zeros(3))


def test_shapes_that_change():
    def function(x, y):
        return torch.softmax(x @ y.transpose(-1, -2), -1) @ y, x.shape[0] * 2

    call = compiled(function, dynamic=True)
    with Programs() as programs:
        for size in (5, 6, 5, 9, 6):
            x, y = torch.randn(2, size, 4), torch.randn(2, size + 20, 4)
            torch.testing.assert_close(call(x, y), function(x, y))
    assert len({id(graph) for graph, _ in programs}) == 1 and len(programs) == 3


def test_strides_that_change():
    def function(x):
        return torch.relu(x) * 2

    graph = _backend.Compiled("inference", traced(function, torch.randn(3, 4)))
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]):
        torch.testing.assert_close(graph([x])[0], function(x))


def traced(function, *tensors):
    from torch_harness import traced

    return traced(function, *tensors)


def test_tied_weights():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(50, 96)
            self.head = torch.nn.Linear(96, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x):
            return self.head(self.table(x))

    model, x = Tied(), torch.randint(0, 50, (2, 7))
    torch.testing.assert_close(compiled(model)(x), model(x))
    compiled(model)(x).square().sum().backward()
    found = model.table.weight.grad
    model.zero_grad(set_to_none=True)
    model(x).square().sum().backward()
    torch.testing.assert_close(found, model.table.weight.grad, rtol=1e-4, atol=1e-4)


def test_inference_mode_and_autocast():
    model, x = small(), torch.randn(3, 8)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(model)(x), model(x))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, wanted = compiled(model)(x), model(x)
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_random_ops_stay_with_torch():
    function = compiled(lambda x: torch.nn.functional.dropout(x * 2, 0.5) + 1)
    x = torch.ones(1000, requires_grad=True)
    with Programs() as programs:
        torch.manual_seed(1)
        first = function(x)
        torch.manual_seed(1)
        torch.testing.assert_close(function(x), first)
        assert not torch.equal(function(x), first)
    first.sum().backward()
    # The gradient is that of the numbers that were drawn.
    torch.testing.assert_close(x.grad, torch.where(first == 1, 0.0, 4.0))
    reasons = [reason for _, program in programs for reason in program.reasons.values()]
    assert any("dropout" in reason or "rand" in reason for reason in reasons)


def test_other_devices_are_left_alone():
    x = torch.randn(3, 4, device="meta")
    with Programs() as programs:
        assert compiled(lambda x: x * 2 + 1)(x).device.type == "meta"
    assert [program for _, program in programs] == [None]


def test_what_has_no_row_stays_with_torch():
    def function(x):
        return torch.special.erfinv(torch.tanh(x)) + torch.fft.fft(x).real

    x = torch.randn(8) * 0.1
    with Programs() as programs:
        torch.testing.assert_close(compiled(function)(x), function(x))
    reasons = list(programs[0][1].reasons.values())
    assert any("no row for aten.erfinv" in reason for reason in reasons)


def test_copies_lie_as_torch_wants_them():
    indices, offsets = torch.arange(10)[::2], torch.tensor([0, 3])
    table, x = torch.randn(10, 5), torch.randn(3, 4)
    cases = [
        # An op that torch keeps reads its indices as if they were neighbours.
        lambda: torch.nn.functional.embedding_bag(indices, table, offsets, mode="max"),
        lambda: x.t().contiguous(),
        lambda: x.t().contiguous().sort()[0],
        lambda: x[:1].expand(3, 4).contiguous().sort()[0],
    ]
    for case in cases:
        torch._dynamo.reset()
        result, wanted = compiled(case)(), case()
        torch.testing.assert_close(result, wanted, check_stride=True)


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("channels", (4, 32))
def test_copies_between_views_run_on_threads_of_sterna(threads, channels):
    """Those that torch would copy by threads of its own, which spin for a while after that."""
    x, *weights = (torch.randn(2, 32, 32, channels), *torch.randn(3, channels, 8))

    def function(x, *weights):
        windows = x.reshape(2, 4, 8, 4, 8, channels).transpose(2, 3).reshape(-1, 64, channels)
        return tuple((windows @ weight).relu() for weight in weights)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        program = check(function, x, *weights)
    finally:
        torch.set_num_threads(before)
    moves = [step for step in program.steps if step.moves and step.moves[-1]["kind"] == "StaticReshape"]
    assert any(len(step.moves) == 3 for step in moves) == (threads == 1 or channels == 4)


def test_sparse_results():
    x = torch.randn(3, 4).relu()
    results, _ = run(lambda x: ((x * 2).to_sparse(),), x)
    torch.testing.assert_close(results[0].to_dense(), x * 2)


def test_ops_with_effects_are_in_order():
    x = torch.randn(3, 3) + 3 * torch.eye(3)
    function = lambda x: torch.linalg.inv(x * 2).relu() + torch.linalg.solve(x, x + 1)
    torch.testing.assert_close(compiled(function)(x), function(x))


def test_numbers_of_threads():
    before = torch.get_num_threads()
    model, x = small(), torch.randn(3, 8)
    function = compiled(model)
    try:
        with torch.no_grad(), Programs() as programs:
            for threads in (1, 2, 1):
                torch.set_num_threads(threads)
                torch.testing.assert_close(function(x), model(x))
        assert len(programs) == 2
    finally:
        torch.set_num_threads(before)


def test_threads_of_python():
    model, x = small(), torch.randn(64, 8)
    function, wanted, wrong = compiled(model), model(x).detach(), []

    def work():
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(function(x), wanted, atol=1e-5):
                    wrong.append(1)

    with torch.no_grad():
        function(x)
    in_threads(work)
    assert not wrong


FORK = """
import os, sys, torch, sterna.torch
torch.set_num_threads(2)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
x = torch.randn(512, 256)
function = torch.compile(model, backend=sterna.torch.backend)
with torch.no_grad():
    wanted = function(x)
    child = os.fork()
    if child == 0:
        # OpenMP does not survive a fork, whatever the backend.
        torch.set_num_threads(1)
        os._exit(0 if torch.allclose(function(x), wanted, atol=1e-4) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(function(x), wanted)
    data = torch.utils.data.DataLoader(list(range(32)), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for batch in data:
        assert torch.equal(function(x), wanted)
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_forks():
    command = [sys.executable, "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=child_environment())
    assert done.stdout.strip().endswith("done"), done.stderr


def child_environment():
    folder = os.path.dirname(os.path.dirname(sterna.__file__))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}


def test_sterna_alone_does_not_read_torch():
    code = "import sys, sterna; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=child_environment())


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("form", ("plain", "causal", "boolean", "added", "shared"))
def test_attention(form, dtype):
    attention = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(2, 4, 20, 16, dtype=dtype, requires_grad=True)
    heads = 2 if form == "shared" else 4
    k, v = (torch.randn(2, heads, 20, 16, dtype=dtype, requires_grad=True) for _ in range(2))
    keep = torch.rand(2, 1, 20, 20) < 0.7
    keep[..., 0] = True
    settings = {
        "plain": {},
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": keep},
        "added": {"attn_mask": torch.randn(20, 20, dtype=dtype)},
        "shared": {"is_causal": True, "enable_gqa": True},
    }[form]

    def function(q, k, v):
        return attention(q, k, v, **settings)

    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
    with torch.no_grad():
        torch.testing.assert_close(compiled(function)(q, k, v), function(q, k, v), **tolerance)
    gradients = []
    for call in (compiled(function), function):
        weight = torch.linspace(-1, 1, 16, dtype=dtype)
        gradients.append(torch.autograd.grad((call(q, k, v) * weight).sum(), (q, k, v)))
    torch.testing.assert_close(*gradients, **tolerance)


def test_sizes_that_come_once_run_in_torch():
    """Of a cache that grows, a few lengths have programs at once, and others when they come again."""
    function = compiled(lambda x, y: torch.softmax(x @ y, -1) * 2, dynamic=True)
    ran = []
    with torch.no_grad(), _backend.watching(lambda _, program: ran.append(program is not None)):
        for length in [*range(10, 30), *range(22, 26), *range(22, 26)]:
            x, y = torch.randn(3, 4), torch.randn(4, length)
            torch.testing.assert_close(function(x, y), torch.softmax(x @ y, -1) * 2)
    # Programs, runs in torch, programs of what came for the second time; the third time they are there.
    assert ran == [True] * _backend.AT_ONCE + [False] * (20 - _backend.AT_ONCE) + [True] * 4
