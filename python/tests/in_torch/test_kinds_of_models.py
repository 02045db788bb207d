"""Models of kinds beside the usual transformers, written as people write them, forward and backward against eager torch."""

import copy
import itertools
import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import nn

import sterna.torch

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]


class ConvAttention(nn.Module):
    """A convolutional net whose last stage attends over positions, with a learned bias of relative positions."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.qkv = nn.Conv2d(16, 48, 1)
        self.bias = nn.Parameter(torch.randn(2, 15 * 15) * 0.1)
        place = torch.stack(torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")).flatten(1)
        apart = place[:, :, None] - place[:, None] + 7
        self.register_buffer("places", apart[0] * 15 + apart[1])
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).reshape(b, 3, 2, 8, h * w).unbind(1)
        scores = torch.einsum("bhdi,bhdj->bhij", q, k) / math.sqrt(8) + self.bias[:, self.places]
        x = x + torch.einsum("bhij,bhdj->bhdi", scores.softmax(-1), v).reshape(b, c, h, w)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class UNetBlock(nn.Module):
    """A block of a diffusion model: group norms, the time as a shift and a scale, self- and cross-attention, up- and
    downsampling with a skip."""

    def __init__(self, width=32, heads=4, context=24):
        super().__init__()
        self.heads = heads
        self.down, self.up = nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, width, 3, 1, 1)
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.time = nn.Linear(16, 2 * width)
        self.conv = nn.Conv2d(width, width, 3, 1, 1)
        self.norm3, self.norm4 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(context, 2 * width, bias=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ff = nn.Linear(width, 8 * width)
        self.ff_out = nn.Linear(4 * width, width)

    def attend(self, q, k, v, mask=None):
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)

    def forward(self, x, steps, context, is_there):
        half = torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        angles = steps[:, None].float() * half
        scale, shift = self.time(F.silu(torch.cat([angles.cos(), angles.sin()], -1)))[:, :, None, None].chunk(2, 1)
        skip = x
        x = self.down(x)
        x = x + self.conv(F.silu(self.norm1(x) * (1 + scale) + shift))
        b, c, h, w = x.shape
        y = self.norm2(x).flatten(2).transpose(1, 2)
        y = y + self.out(self.attend(*self.qkv(self.norm3(y)).chunk(3, -1)))
        y = y + self.attend(self.q(self.norm4(y)), *self.kv(context).chunk(2, -1), is_there[:, None, None, :])
        gate, value = self.ff(y).chunk(2, -1)
        y = y + self.ff_out(F.gelu(gate) * value)
        x = x + y.transpose(1, 2).reshape(b, c, h, w)
        return self.up(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), skip], 1))


class Experts(nn.Module):
    """A mixture of experts: tokens are sorted by their expert, run through products of each, and added back."""

    def __init__(self, width=16, count=4, chosen=2):
        super().__init__()
        self.count, self.chosen = count, chosen
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) * 0.2)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) * 0.2)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weights, experts = torch.topk(self.router(tokens).softmax(-1), self.chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        # As many places as tokens for each expert; what does not fit is dropped.
        one_hot = F.one_hot(experts.flatten(), self.count)
        place = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
        capacity = tokens.shape[0]
        slots = experts.flatten() * capacity + place
        owners = torch.arange(tokens.shape[0]).repeat_interleave(self.chosen)
        given = tokens.new_zeros(self.count * capacity, tokens.shape[-1]).index_add(0, slots, tokens[owners])
        made = F.silu(given.view(self.count, capacity, -1) @ self.up) @ self.down
        made = made.reshape(-1, tokens.shape[-1])[slots] * weights.flatten()[:, None]
        out = torch.zeros_like(tokens).scatter_add(0, owners[:, None].expand_as(made), made)
        load = torch.zeros(self.count).scatter_add(0, experts.flatten(), torch.ones(slots.shape[0]))
        return out.view_as(x), load


class DenseExperts(nn.Module):
    """Every expert on every token, with weights that `scatter` puts in place."""

    def __init__(self, width=16, count=4):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, 24) * 0.2)
        self.down = nn.Parameter(torch.randn(count, 24, width) * 0.2)

    def forward(self, x):
        logits = self.router(x)
        best, which = logits.topk(2, -1)
        gates = torch.full_like(logits, -torch.inf).scatter(-1, which, best).softmax(-1)
        hidden = F.gelu(torch.einsum("btd,edf->btef", x, self.up), approximate="tanh")
        return torch.einsum("btef,efd,bte->btd", hidden, self.down, gates)


class Longformer(nn.Module):
    """Attention in chunks whose neighbours overlap: `as_strided` of keys, masks by positions, `roll`."""

    def __init__(self, width=16, chunk=8):
        super().__init__()
        self.chunk = chunk
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        c = self.chunk
        q = q.reshape(b, n // c, c, d)
        wide = lambda t: F.pad(t, (0, 0, c, c)).contiguous()
        near = lambda t: t.as_strided((b, n // c, 3 * c, d), (t.stride(0), c * t.stride(1), t.stride(1), t.stride(2)))
        keys, values = near(wide(k)), near(wide(v))
        at = torch.arange(n).view(n // c, c, 1)
        other = torch.arange(n // c).view(-1, 1, 1) * c - c + torch.arange(3 * c)
        keeps = (other >= 0) & (other < n) & ((at - other).abs() <= c)
        scores = q @ keys.transpose(-1, -2) / d**0.5
        return (scores.masked_fill(~keeps, torch.finfo(scores.dtype).min).softmax(-1) @ values).reshape(b, n, d)


class Linear(nn.Module):
    """Linear attention with a running sum of states, and rotary positions."""

    def __init__(self, width=16):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.decay = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        at = torch.arange(x.shape[1])[:, None] / 100.0 ** (torch.arange(0, 16, 2) / 16)
        rotated = lambda t: torch.stack(
            [t[..., ::2] * at.cos() - t[..., 1::2] * at.sin(), t[..., ::2] * at.sin() + t[..., 1::2] * at.cos()], -1
        ).flatten(-2)
        q, k = F.elu(rotated(q)) + 1, F.elu(rotated(k)) + 1
        states = torch.cumsum(k[..., :, None] * v[..., None, :], 1) * torch.sigmoid(self.decay)
        total = (q * k.cumsum(1)).sum(-1, keepdim=True)
        return torch.einsum("btd,btde->bte", q, states) / total.clamp(min=1e-6)


class Rotary(nn.Module):
    """Attention with complex rotary positions and a cache that is written in place."""

    def __init__(self, width=16):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (one.unflatten(-1, (2, 8)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        turn = torch.polar(torch.ones(n, 4), torch.arange(n)[:, None] / 10.0 ** torch.arange(4))
        turned = lambda t: torch.view_as_real(torch.view_as_complex(t.reshape(*t.shape[:-1], 4, 2)) * turn).flatten(-2)
        keys, values = torch.zeros(b, 2, 32, 8), torch.zeros(b, 2, 32, 8)
        place = torch.arange(n)
        keys[:, :, place] = turned(k)
        values[:, :, place] = v
        mask = torch.arange(32)[None] <= place[:, None]
        return F.scaled_dot_product_attention(turned(q), keys, values, mask).transpose(1, 2).flatten(2)


class Documents(nn.Module):
    """Attention within documents, whose numbers are found by a running sum of separators; blocks by `//`."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(50, width, padding_idx=0)
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        number = (ids == 1).cumsum(-1)
        at = torch.arange(ids.shape[1])
        same = number[:, :, None] == number[:, None, :]
        block = torch.div(at, 4, rounding_mode="floor")
        near = (block[:, None] - block[None]).abs() <= 2
        parity = (at[:, None] - at[None]) % 3 != 1
        keeps = same & near & parity & (ids != 0)[:, None, :] | torch.eye(ids.shape[1], dtype=torch.bool)
        scores = torch.where(keeps, q @ k.transpose(1, 2) * 0.25, torch.tensor(float("-inf")))
        return torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v


class Pointer(nn.Module):
    """Sorting, gathering by the order, and shares that are scattered to a vocabulary."""

    def __init__(self, width=16):
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.out = nn.Linear(width, 20)

    def forward(self, x, ids):
        scores = self.score(x).squeeze(-1)
        ranked, order = scores.sort(-1, descending=True)
        x = x.gather(1, order[:, :, None].expand_as(x))
        copied = torch.zeros(x.shape[0], 20).scatter_reduce(1, ids, ranked.softmax(-1), "amax", include_self=False)
        kept = torch.zeros_like(scores).scatter(1, order[:, :3], 1.0)
        return self.out(x.mean(1)).log_softmax(-1), copied, kept * scores


def pair():
    torch.manual_seed(0)
    made = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)
    source, target = torch.randn(2, 12, 32), torch.randn(2, 9, 32)
    hidden = torch.arange(12)[None] >= torch.tensor([[12], [7]])
    given = {
        "src": source, "tgt": target, "tgt_mask": nn.Transformer.generate_square_subsequent_mask(9),
        "src_key_padding_mask": hidden, "memory_key_padding_mask": hidden, "tgt_is_causal": True,
    }  # fmt: skip
    return made, given


IDS = torch.tensor([[5, 9, 1, 7, 8, 1, 3, 2, 4, 0, 0, 0], [1, 6, 7, 8, 9, 2, 3, 1, 5, 4, 2, 6]])

MODELS = {
    "convolutions": lambda: (ConvAttention(), {"x": torch.randn(2, 3, 32, 32)}),
    "diffusion": lambda: (
        UNetBlock(),
        {
            "x": torch.randn(2, 32, 8, 8), "steps": torch.tensor([3, 500]), "context": torch.randn(2, 7, 24),
            "is_there": torch.arange(7)[None] < torch.tensor([[7], [4]]),
        },
    ),
    "torch.nn.Transformer": pair,
    "experts": lambda: (Experts(), {"x": torch.randn(2, 10, 16)}),
    "dense experts": lambda: (DenseExperts(), {"x": torch.randn(2, 10, 16)}),
    "chunks": lambda: (Longformer(), {"x": torch.randn(2, 32, 16)}),
    "linear": lambda: (Linear(), {"x": torch.randn(2, 12, 16)}),
    "rotary": lambda: (Rotary(), {"x": torch.randn(2, 12, 16)}),
    "documents": lambda: (Documents(), {"ids": IDS}),
    "pointer": lambda: (Pointer(), {"x": torch.randn(2, 12, 16), "ids": IDS}),
    "recurrent": lambda: (nn.GRU(16, 16, 2, batch_first=True), {"input": torch.randn(2, 7, 16)}),
}  # fmt: skip


def tensors_of(found):
    return [found] if isinstance(found, torch.Tensor) else [one for one in found if isinstance(one, torch.Tensor)]


def results(function, model, given):
    """Outputs, gradients of parameters and inputs, and buffers afterwards."""
    own = {name: one.clone() if isinstance(one, torch.Tensor) else one for name, one in given.items()}
    for one in own.values():
        if isinstance(one, torch.Tensor) and one.is_floating_point() and not one.isinf().any():
            one.requires_grad_()
    outputs = tensors_of(function(**own))
    generator = torch.Generator().manual_seed(1)
    loss = sum((one * torch.randn(one.shape, generator=generator)).sum() for one in outputs if one.requires_grad)
    loss.backward()
    leaves = [*model.parameters(), *(one for one in own.values() if isinstance(one, torch.Tensor))]
    grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in leaves]
    return [one.detach() for one in outputs], grads, [one.clone() for one in model.buffers()]


@pytest.mark.parametrize("name", MODELS)
def test_training(name):
    torch.manual_seed(0)
    model, given = MODELS[name]()
    other = copy.deepcopy(model)
    wanted = results(model, model, given)
    found = results(torch.compile(other, backend=sterna.torch.backend), other, given)
    for one, expected in zip(itertools.chain(*found), itertools.chain(*wanted), strict=True):
        # What is left of large terms that cancel each other is as far from exact numbers in torch.
        size = float(expected.detach().float().abs().nan_to_num(0, 0, 0).max()) if expected.numel() else 0.0
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=max(1e-5, 1e-6 * size), equal_nan=True)


@pytest.mark.parametrize("name", MODELS)
def test_inference(name):
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model = model.eval()
    with torch.no_grad():
        wanted = tensors_of(model(**given))
        found = tensors_of(torch.compile(model, backend=sterna.torch.backend)(**given))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ["convolutions", "diffusion", "chunks", "linear", "documents"])
def test_autocast(name):
    """No farther from f32 than torch is, where no order of near numbers decides anything."""
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model = model.eval()
    with torch.no_grad():
        exact = tensors_of(model(**given))
        with torch.autocast("cpu", torch.bfloat16):
            wanted = tensors_of(model(**given))
            found = tensors_of(torch.compile(model, backend=sterna.torch.backend)(**given))
    for one, eager, right in zip(found, wanted, exact, strict=True):
        assert one.dtype == eager.dtype
        of_ours, of_torch = ((given.float() - right).abs().max() for given in (one, eager))
        assert of_ours <= 1.5 * of_torch + 4e-3 * right.abs().max()


def test_documents_of_many_tokens():
    """An identity of more rows than eight bits count."""
    torch.manual_seed(0)
    model, ids = Documents(), torch.randint(0, 50, (1, 300))
    with torch.no_grad():
        found, wanted = torch.compile(model, backend=sterna.torch.backend)(ids), model(ids)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def add_index(x, i, y):
    return x[:1].expand(4, 3).index_add(0, i, y)


def copy_index(x, i, y):
    return x[:1].expand(4, 3).index_copy(0, i, y)


def fill_index(x, i, y):
    return x[:1].expand(4, 3).index_fill(0, i, 2.0) + y.sum()


def put_and_flip(x, i, y):
    x.index_put_((torch.arange(4),), x * 2.0)
    x.add_(x.flip(0))
    return x


def put_from_itself(x, i, y):
    x[i] += x[i] * 2
    return x


def put_at_pairs(x, i, y):
    x[i, torch.tensor([2, 0])] = y[:, 0]
    return x


def accumulate(x, i, y):
    same = torch.tensor([1, 1, 3, 1])
    return x.index_put((same,), x, accumulate=True)


def put_masked(x, i, y):
    x[x > 0] = 7.0
    return x * 2


def slice_of_itself(x, i, y):
    x[1:] = x[:-1].clone()
    x[:, 0] *= 3
    return x, x[0]


def transposed_add(x, i, y):
    t = x.t()
    t[i[0]].add_(1)
    t.mul_(2)
    return x, t


def rolled(x, i, y):
    x.copy_(x.roll(1, 0))
    return x.sub_(x.mean(0, keepdim=True))


def masked_by_itself(x, i, y):
    mask = x.triu(1).bool()
    x.masked_fill_(mask, -torch.inf)
    return x.softmax(-1), mask


def fill_diagonal(x, i, y):
    x.diagonal().fill_(5)
    x.diagonal(1).add_(x.diagonal(1))
    return x @ y.t()


def scatter_product(x, i, y):
    at = torch.tensor([[0, 0, 1], [0, 2, 2]])
    return x.scatter_reduce(0, at, y, "prod"), x.scatter_reduce(0, at, y, "mean"), x.scatter_add(0, at, y)


def unfolded(x, i, y):
    return x.unfold(0, 2, 1).sum(-1) * 2, x.as_strided((2, 3), (3, 1), 3) + 1


def bucketed(x, i, y):
    edges = torch.tensor([-1.0, 0.0, 1.0])
    return torch.bucketize(x, edges), torch.searchsorted(edges, x), x.flatten().unique_consecutive().shape[0]


def where_of_scalars(x, i, y):
    return torch.where(x > 0, 1, 0), torch.where(x > 0, 1.5, x), torch.where(x.isnan(), 0, x).nan_to_num()


def rounded(x, i, y):
    return x // 0.3, x % 0.3, torch.div(x, -0.7, rounding_mode="trunc"), torch.fmod(x, 0.3), i // 2, i % -3, -i // 2, (-i) % 3


WRITES = [
    add_index, copy_index, fill_index, put_and_flip, put_from_itself, put_at_pairs, accumulate, put_masked, slice_of_itself,
    transposed_add, rolled, masked_by_itself, fill_diagonal, scatter_product, unfolded, bucketed, where_of_scalars, rounded,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", WRITES, ids=lambda function: function.__name__)
def test_writes_and_lookups(function, dynamic):
    """What compilers got wrong: writes to what is read, repeated elements, and places that several updates have."""
    torch.manual_seed(0)
    x, i, y = torch.randn(4, 3), torch.tensor([0, 2]), torch.randn(2, 3)
    own, other = x.clone(), x.clone()
    wanted = function(own, i, y)
    found = torch.compile(function, backend=sterna.torch.backend, dynamic=dynamic)(other, i, y)
    assert torch.equal(own.isnan(), other.isnan())
    torch.testing.assert_close([found, other], [wanted, own], rtol=1e-5, atol=1e-6, equal_nan=True)
