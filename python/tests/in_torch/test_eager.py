"""scaled_dot_product_attention of eager code against torch: inputs that people hand over, gradients, what is left."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention as imported
from torch_harness import in_threads

import sterna.torch
from sterna.torch import _calls, _eager, _forms

# What torch says of nested tensors and of forward mode.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

TYPES = [torch.float32, torch.bfloat16, torch.float16]
# Torch's own tests of attention compare with these.
TOLERANCE = {
    torch.float32: {"atol": 1e-5, "rtol": 5e-6},
    torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2},
    torch.float16: {"atol": 5e-3, "rtol": 5e-3},
}
GRADIENTS = {
    torch.float32: {"atol": 1e-5, "rtol": 2e-5},
    torch.bfloat16: {"atol": 6e-2, "rtol": 4e-2},
    torch.float16: {"atol": 1e-2, "rtol": 1e-2},
}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def heads(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


def own(tensors):
    """Leaves of their own with the strides of tensors."""
    return [
        torch.empty_strided(one.shape, one.stride(), dtype=one.dtype).copy_(one).requires_grad_()
        if 0 not in one.stride()
        else one.clone().requires_grad_()
        for one in tensors
    ]


def check(q, k, v, mask=None, gradients=True, taken=True, **options):
    """Compares result and gradients with those of torch."""
    dtype = q.dtype
    ours, theirs = own([q, k, v]), own([q, k, v])
    wanted = F.scaled_dot_product_attention(*theirs, mask, **options)
    with sterna.torch.sdpa() as block:
        out = F.scaled_dot_product_attention(*ours, mask, **options)
        with torch.no_grad():
            plain = F.scaled_dot_product_attention(*ours, mask, **options)
    assert block.taken == (2 if taken else 0), block.left
    assert out.stride() == wanted.stride() == plain.stride()
    torch.testing.assert_close(out, wanted, **TOLERANCE[dtype])
    torch.testing.assert_close(plain, wanted, **TOLERANCE[dtype])
    if gradients:
        grad = torch.randn(out.shape).to(dtype)
        wanted.backward(grad)
        out.backward(grad)
        for one, other in zip(ours, theirs):
            torch.testing.assert_close(one.grad, other.grad, **GRADIENTS[dtype])
    return block


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("front", [(), (3,), (2, 3), (1, 2, 3), (2, 1, 2, 2)])
def test_ranks(front, dtype):
    q, k, v = heads(*front, 9, 16, dtype=dtype), *(heads(*front, 13, 16, dtype=dtype) for _ in "kv")
    check(q, k, v)
    check(q, k, v, is_causal=True)
    check(q, k, v, torch.rand(9, 13) > 0.3)
    check(q, k, v, torch.randn(9, 13).to(dtype), scale=0.3)


DISTANCES = (torch.arange(70)[:, None] - torch.arange(130)).abs()
MASKS = {
    "padding": lambda: (torch.arange(130) < torch.tensor([[130], [50]]))[:, None, None],
    "padding that is expanded": lambda: (torch.arange(130) < 77).view(1, 1, 1, 130).expand(2, 4, 70, 130),
    "padding of integers": lambda: torch.tensor([[1] * 100 + [0] * 30, [1] * 130])[:, None, None].bool(),
    "by head": lambda: torch.rand(4, 70, 130) > 0.2,
    "by head, with a dim of 1": lambda: torch.rand(1, 4, 1, 130) > 0.2,
    "in another order": lambda: (torch.rand(2, 1, 130, 70) > 0.2).transpose(2, 3),
    "every other": lambda: (torch.rand(70, 260) > 0.2)[:, ::2],
    "causal below the right": lambda: torch.ones(70, 130, dtype=torch.bool).tril(60),
    "rows that see nothing": lambda: torch.ones(70, 130, dtype=torch.bool).tril(-9),
    "nothing at all": lambda: torch.zeros(2, 1, 1, 130, dtype=torch.bool),
    "one element": lambda: torch.ones(1, 1, dtype=torch.bool),
    "added": lambda: torch.randn(2, 4, 70, 130),
    "added, expanded": lambda: torch.randn(1, 4, 1, 130).expand(2, 4, 70, 130),
    "added, infinite": lambda: torch.full((70, 130), -torch.inf).triu(1),
    "added, rows of infinities": lambda: torch.full((2, 1, 1, 130), -torch.inf),
    "added, the lowest number": lambda: torch.full((70, 130), torch.finfo(torch.float32).min).triu(61),
    "added, rows of the lowest number": lambda: torch.full((1, 1, 70, 130), torch.finfo(torch.float32).min),
    "added, alibi": lambda: DISTANCES * -(2.0 ** -torch.arange(4)[:, None, None]),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    mask = MASKS[name]()
    q, k, v = heads(2, 4, 70, 16), heads(2, 4, 130, 16), heads(2, 4, 130, 16)
    check(q, k, v, mask)
    check(q, k[:, :2], v[:, :2], mask, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masks_of_f32_and_of_16_bits(dtype):
    q, k, v = heads(2, 4, 33, 16, dtype=dtype), heads(2, 4, 40, 16, dtype=dtype), heads(2, 4, 40, 16, dtype=dtype)
    check(q, k, v, torch.randn(33, 40))
    check(q, k, v, torch.randn(2, 1, 1, 40).to(dtype))
    check(q, k, v, torch.full((33, 40), torch.finfo(dtype).min, dtype=dtype).triu(1))


LAYOUTS = {
    "heads last": lambda tokens: heads(2, tokens, 4, 16).transpose(1, 2),
    "depth first": lambda tokens: heads(2, 4, 16, tokens).transpose(2, 3),
    "packed": lambda tokens: heads(2, tokens, 3, 4, 16)[:, :, 1].transpose(1, 2),
    "cut out of a cache": lambda tokens: heads(2, 4, 300, 16)[:, :, 7 : 7 + tokens],
    "every other element": lambda tokens: heads(2, 4, tokens, 32)[..., ::2],
    "batch that is expanded": lambda tokens: heads(1, 4, tokens, 16).expand(2, 4, tokens, 16),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    q, k, v = LAYOUTS[name](70), LAYOUTS[name](90), LAYOUTS[name](90)
    check(q, k, v)
    check(q, heads(2, 4, 90, 16), v, torch.rand(2, 1, 1, 90) > 0.2)


def test_heads_that_share_keys():
    q = heads(2, 8, 40, 16)
    for count in (1, 2, 4, 8):
        k, v = heads(2, count, 40, 16), heads(2, count, 40, 16)
        check(q, k, v, enable_gqa=True, is_causal=True)
    k, v = (heads(2, 1, 40, 16) for _ in "kv")
    check(q, k, v, torch.rand(2, 1, 40, 40) > 0.3)
    check(q, *(one.expand(2, 8, 40, 16) for one in (k, v)), is_causal=True)
    # Gradients of keys that are expanded flow to what they are expanded from.
    ours, theirs = own([heads(2, 1, 40, 16)] * 2), None
    theirs = [one.detach().clone().requires_grad_() for one in ours]
    with sterna.torch.sdpa() as block:
        F.scaled_dot_product_attention(q, *(one.expand(2, 8, 40, 16) for one in ours)).sum().backward()
    F.scaled_dot_product_attention(q, *(one.expand(2, 8, 40, 16) for one in theirs)).sum().backward()
    assert block.taken == 1
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one.grad, other.grad, **GRADIENTS[torch.float32])


@pytest.mark.parametrize("dtype", TYPES)
def test_other_sizes(dtype):
    sizes = ((1, 1, 1, 1), (1, 500, 64, 64), (7, 3, 5, 9), (200, 65, 80, 33), (3, 129, 256, 256))
    for queries, keys, depth, values in sizes:
        q, k = heads(1, 2, queries, depth, dtype=dtype), heads(1, 2, keys, depth, dtype=dtype)
        check(q, k, heads(1, 2, keys, values, dtype=dtype), gradients=keys < 200)


def with_sinks(q, k, v, sinks, cap):
    """Causal attention with a cap, and a score for each head that has no key."""
    scores = torch.tanh(q @ k.transpose(-1, -2) * 0.3 / cap) * cap
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    scores = torch.cat([scores, sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)], -1)
    return torch.softmax(scores, -1)[..., :-1] @ v


@pytest.mark.parametrize("dtype", TYPES)
def test_caps_and_sinks(dtype):
    ours = own([*(heads(2, 4, 20, 16, dtype=dtype) for _ in "qkv"), heads(4, dtype=dtype)])
    exact = [one.detach().double().requires_grad_() for one in ours]
    asked = _forms.Asked(is_causal=True, scale=0.3, softcap=2.0)
    found, wanted = _eager.attention(_forms.Operands(*ours[:3], None, ours[3]), asked), with_sinks(*exact, 2.0)
    grad = heads(2, 4, 20, 16, dtype=dtype)
    torch.testing.assert_close(found.double(), wanted, **TOLERANCE[dtype])
    wanted = torch.autograd.grad(wanted, exact, grad.double())
    for one, other in zip(torch.autograd.grad(found, ours, grad), wanted):
        torch.testing.assert_close(one.double(), other, **GRADIENTS[dtype])


def test_gradients_in_part():
    q, k, v = heads(1, 2, 20, 16), heads(1, 2, 30, 16), heads(1, 2, 30, 16)
    mask = torch.rand(20, 30) > 0.3
    for wanted in ((True, False, False), (False, True, False), (False, False, True), (True, False, True)):
        found = []
        for block in (sterna.torch.sdpa(), torch.no_grad()):
            given = [one.clone().requires_grad_(flag) for one, flag in zip((q, k, v), wanted)]
            with block, torch.enable_grad():
                F.scaled_dot_product_attention(*given, mask).pow(2).sum().backward()
            found.append([one.grad for one in given])
        for one, other in zip(*found):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, **GRADIENTS[torch.float32])


@pytest.mark.parametrize("shape", [(1, 4, 20, 30), (4, 1, 30), (20, 30), (2, 1, 1, 1), (2, 4, 20, 30)])
@pytest.mark.parametrize("with_heads", [True, False])
def test_gradients_of_a_mask(shape, with_heads):
    q, k, v = (heads(2, 4, tokens, 16) for tokens in (20, 30, 30))
    found = []
    for block in (sterna.torch.sdpa(), torch.no_grad()):
        torch.manual_seed(1)
        bias = torch.randn(shape).requires_grad_()
        given = [one.clone().requires_grad_(with_heads) for one in (q, k, v)]
        with block as entered, torch.enable_grad():
            F.scaled_dot_product_attention(*given, bias.expand(2, 4, 20, 30)).pow(2).sum().backward()
            F.scaled_dot_product_attention(*given, bias).pow(2).sum().backward()
        found.append([bias.grad, *(one.grad for one in given)])
        assert entered is None or entered.taken == 2
    for one, other in zip(*found):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


def test_gradients_that_are_expanded_or_strided():
    q, k, v = (heads(1, 2, 20, 16).requires_grad_() for _ in "qkv")
    with sterna.torch.sdpa():
        out = F.scaled_dot_product_attention(q, k, v)
        outs = F.scaled_dot_product_attention(q, k, v)
    for made in (lambda one: one.sum(), lambda one: (one.transpose(1, 2).reshape(20, 32) @ torch.ones(32, 3)).sum()):
        first = torch.autograd.grad(made(out), (q, k, v), retain_graph=True)
        second = torch.autograd.grad(made(F.scaled_dot_product_attention(q, k, v)), (q, k, v))
        for one, other in zip(first, second):
            torch.testing.assert_close(one, other, **GRADIENTS[torch.float32])
    assert outs.requires_grad


def test_what_torch_keeps():
    q = heads(1, 2, 8, 16)
    with sterna.torch.sdpa() as block:
        F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
        F.scaled_dot_product_attention(q.double(), q.double(), q.double())
        F.scaled_dot_product_attention(q, q[:, :, :0], q[:, :, :0])
        F.scaled_dot_product_attention(q.expand(2, 2, 8, 16), q, q)
        meta = q.to("meta")
        assert F.scaled_dot_product_attention(meta, meta, meta).device.type == "meta"
        nested = torch.nested.nested_tensor([heads(2, 5, 16), heads(2, 3, 16)])
        assert F.scaled_dot_product_attention(nested, nested, nested).is_nested
        mapped = torch.func.grad(lambda one: F.scaled_dot_product_attention(one, q, q).sum())(q)
    assert block.taken == 0
    assert set(block.left) == {
        "dropout",
        "attention of torch.float64",
        "no elements",
        "batches or heads that broadcast",
        "a tensor that is not plain memory of the CPU",
    }
    own = q.clone().requires_grad_()
    F.scaled_dot_product_attention(own, q, q).sum().backward()
    torch.testing.assert_close(mapped, own.grad)


def test_negative_views_and_parameters():
    q = heads(1, 2, 8, 16)
    with sterna.torch.sdpa() as block:
        turned = F.scaled_dot_product_attention(torch._neg_view(q), q, q)
        F.scaled_dot_product_attention(torch.nn.Parameter(q), q, q)
    assert (block.taken, sum(block.left.values())) == (1, 1)
    torch.testing.assert_close(turned, F.scaled_dot_product_attention(-q, q, q))


# The first use of forward mode scripts decompositions of torch, of which torch 2.13 warns.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_stays_with_torch():
    q, tangent = heads(1, 2, 8, 16), heads(1, 2, 8, 16)
    with sterna.torch.sdpa() as block, torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, tangent)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = F.scaled_dot_product_attention(dual, q, q)
        assert torch.autograd.forward_ad.unpack_dual(out).tangent is not None
    assert block.taken == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda q: F.scaled_dot_product_attention(q, q, q, torch.ones(7, 8, dtype=torch.bool)),
        lambda q: F.scaled_dot_product_attention(q, q, q, torch.ones(8, 8, dtype=torch.long)),
        lambda q: F.scaled_dot_product_attention(q, q.half(), q),
        lambda q: F.scaled_dot_product_attention(q, q[..., :3], q),
    ],
)
def test_errors_are_those_of_torch(call):
    q = heads(1, 2, 8, 16)
    with pytest.raises(RuntimeError) as wanted:
        call(q)
    with sterna.torch.sdpa() as block, pytest.raises(RuntimeError) as given:
        call(q)
    assert str(given.value) == str(wanted.value)
    assert block.taken == 0


def test_a_mask_beside_causality():
    """An error from torch 2.15 on, and both before."""
    q, keep = heads(1, 2, 8, 16), torch.rand(8, 8) > 0.3
    found = []
    for block in (contextlib.nullcontext(), sterna.torch.sdpa()):
        try:
            with block:
                found.append(F.scaled_dot_product_attention(q, q, q, keep, is_causal=True))
        except RuntimeError as error:
            found.append(str(error))
    assert block.taken == 0
    if isinstance(found[0], str):
        assert found[0] == found[1]
    else:
        torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)


def test_whatever_the_code_calls_it():
    q = heads(2, 2, 8, 16)
    module = torch.nn.MultiheadAttention(32, 2, batch_first=True)
    layer = torch.nn.TransformerDecoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    x = heads(2, 8, 32)
    bias = causal_lower_right(8, 8)
    with sterna.torch.sdpa() as block:
        imported(q, q, q)
        torch.nn.functional.scaled_dot_product_attention(query=q, key=q, value=q)
        torch._C._nn.scaled_dot_product_attention(q, q, q)
        torch.ops.aten.scaled_dot_product_attention(q, q, q)
        assert block.taken == 4
        module(x, x, x, need_weights=False)
        assert block.taken == 5
        layer(x, x, tgt_is_causal=True, tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(8))
        assert block.taken == 7
        F.scaled_dot_product_attention(q, q, q, bias)
        assert block.taken == 8
        with torch.autocast("cpu", torch.bfloat16):
            assert F.scaled_dot_product_attention(q, q, q).dtype == torch.bfloat16
        with torch.inference_mode():
            F.scaled_dot_product_attention(heads(1, 2, 4, 8), q[:1, :, :, :8], q[:1])
        assert block.taken == 10
    assert not block.left


def test_the_block_ends():
    q = heads(1, 2, 8, 16)
    outer = sterna.torch.sdpa()
    with outer:
        with sterna.torch.sdpa() as inner:
            imported(q, q, q)
        imported(q, q, q)
    imported(q, q, q)
    assert (outer.taken, inner.taken) == (1, 1)
    with pytest.raises(ZeroDivisionError), outer:
        raise ZeroDivisionError
    imported(q, q, q)
    assert outer.taken == 1


def test_a_decorator():
    block = sterna.torch.sdpa()

    @block
    def function(q):
        return imported(q, q, q)

    q = heads(1, 2, 8, 16)
    torch.testing.assert_close(function(q), imported(q, q, q))
    assert block.taken == 1


def test_it_holds_for_the_thread_that_enters():
    q = heads(1, 2, 8, 16)
    entered, done = threading.Event(), threading.Event()
    blocks = []

    def other():
        with sterna.torch.sdpa() as block:
            blocks.append(block)
            entered.set()
            done.wait(60)
            imported(q, q, q)

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    assert entered.wait(60)
    imported(q, q, q)
    assert blocks[0].taken == 0
    done.set()
    thread.join()
    assert blocks[0].taken == 1


def test_many_threads():
    q = [heads(1, 2, 8 + at, 16) for at in range(8)]
    wanted = [imported(one, one, one) for one in q]
    failures = []

    def run():
        with sterna.torch.sdpa() as block:
            for _ in range(20):
                for one, result in zip(q, wanted):
                    if not torch.allclose(imported(one, one, one), result, atol=1e-5):
                        failures.append(one.shape)
            failures.extend(block.left)

    in_threads(run)
    assert not failures


def test_gradients_that_no_partition_gives_are_tried_once(monkeypatch):
    tried = []

    def refused(*_):
        tried.append(1)
        raise sterna.CompileError("refused")

    monkeypatch.setattr(_eager, "Backward", refused)
    q = heads(1, 3, 11, 16).requires_grad_()
    with sterna.torch.sdpa():
        for _ in range(3):
            (found,) = torch.autograd.grad(imported(q, q, q).square().sum(), q)
    (wanted,) = torch.autograd.grad(imported(q, q, q).square().sum(), q)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert len(tried) == 1


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(_calls, "CAPACITY", 4)
    with sterna.torch.sdpa() as block:
        for tokens in range(1, 12):
            q = heads(1, 2, tokens, 16)
            torch.testing.assert_close(imported(q, q, q), imported(q.double(), q.double(), q.double()).float())
    assert block.taken == 11
    assert len(_eager._forwards.made) <= 4


def test_threads_follow_torch():
    q = heads(1, 4, 300, 16)
    before = torch.get_num_threads()
    try:
        results = []
        with sterna.torch.sdpa():
            for count in (1, 2):
                torch.set_num_threads(count)
                results.append(imported(q, q, q, is_causal=True))
        assert torch.equal(*results)
    finally:
        torch.set_num_threads(before)


def test_compiled_code_stays_with_its_compiler():
    q = heads(1, 2, 8, 16).requires_grad_()
    function = torch.compile(lambda one: imported(one, one, one) * 2, backend="aot_eager", fullgraph=True)
    with sterna.torch.sdpa() as block:
        function(q).sum().backward()
    own = q.detach().clone().requires_grad_()
    (imported(own, own, own) * 2).sum().backward()
    torch.testing.assert_close(q.grad, own.grad)
    assert block.taken == 0


def test_checkpoints():
    from torch.utils.checkpoint import checkpoint

    q = heads(1, 2, 8, 16).requires_grad_()
    with sterna.torch.sdpa() as block:
        checkpoint(lambda one: imported(one, one, one), q, use_reentrant=False).sum().backward()
    own = q.detach().clone().requires_grad_()
    imported(own, own, own).sum().backward()
    torch.testing.assert_close(q.grad, own.grad)
    assert block.taken >= 1


def test_gradients_of_gradients_are_refused():
    q = heads(1, 2, 8, 16).requires_grad_()
    with sterna.torch.sdpa():
        out = imported(q, q, q)
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError):
        grad.sum().backward()


def test_keys_that_are_masked_may_hold_anything():
    q, k, v = (heads(1, 2, 20, 16) for _ in "qkv")
    mask = torch.arange(20).view(1, 1, 1, 20) < 12
    wanted = imported(q, k, v, mask)
    k[:, :, 12:], v[:, :, 12:] = torch.nan, torch.inf
    with sterna.torch.sdpa():
        torch.testing.assert_close(imported(q, k, v, mask), wanted)


def test_a_child_of_the_process():
    if not hasattr(os, "fork"):
        pytest.skip("no fork")
    program = (
        "import os, torch, sterna.torch\n"
        "from torch.nn.functional import scaled_dot_product_attention as f\n"
        "q = torch.randn(1, 4, 300, 16)\n"
        "with sterna.torch.sdpa():\n"
        "    f(q, q, q)\n"
        "    child = os.fork()\n"
        "    y = f(q, q, q)\n"
        "    ok = torch.allclose(y, f(q.double(), q.double(), q.double()).float(), atol=1e-5)\n"
        "    if child == 0: os._exit(0 if ok else 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0 and ok\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)
