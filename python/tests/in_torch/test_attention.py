"""Attention as models write it, in graphs that torch.compile hands over: one partition, with the results of torch."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch_harness import run

import sterna.torch
from sterna.torch import _backend

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]

BATCH, HEADS, TOKENS, DEPTH = 2, 4, 128, 32
TYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {
    torch.float32: {"atol": 2e-5, "rtol": 2e-5},
    torch.bfloat16: {"atol": 3e-2, "rtol": 3e-2},
}


def heads(dtype=torch.float32, count=HEADS):
    return torch.randn(BATCH, count, TOKENS, DEPTH).to(dtype)


def partitions(program):
    """The kinds of ops of each partition that is compiled."""
    return [[op["kind"] for op in step.partition.ops] for step in program.steps if step.compiled is not None]


def assert_one_attention(program, products=2):
    """Checks that all products are in one partition. What a backward pass needs may be made in another one."""
    found = [kinds for kinds in partitions(program) if "MatMul" in kinds]
    assert [kinds.count("MatMul") for kinds in found] == [products], found


# Forms of models.


def scores(q, k):
    return q @ k.transpose(-1, -2) * 0.17


def added(q, k, v, keep):
    mask = torch.zeros(keep.shape, dtype=q.dtype).masked_fill(~keep, torch.finfo(q.dtype).min)
    return torch.softmax(scores(q, k) + mask, -1, dtype=torch.float32).to(q.dtype) @ v


def inverted(q, k, v, keep):
    mask = (1 - keep.to(q.dtype)) * torch.finfo(q.dtype).min
    return torch.softmax(scores(q, k) + mask, -1) @ v


def filled(q, k, v, keep):
    return torch.softmax(scores(q, k).masked_fill(~keep, -math.inf), -1) @ v


def filled_with_the_lowest(q, k, v, keep):
    return torch.softmax(scores(q, k).masked_fill(~keep, torch.finfo(q.dtype).min), -1) @ v


def chosen(q, k, v, keep):
    return torch.softmax(torch.where(keep, scores(q, k), -1e9), -1) @ v


def batched(q, k, v, keep):
    q, k, v = (one.flatten(0, 1) for one in (q, k, v))
    made = torch.bmm(q * 0.17, k.transpose(1, 2)).view(BATCH, HEADS, TOKENS, TOKENS)
    shares = torch.softmax(made.masked_fill(~keep, -1e4), -1)
    return torch.bmm(shares.view(-1, TOKENS, TOKENS), v).view(BATCH, HEADS, TOKENS, DEPTH)


def triangular(q, k, v, keep):
    made = q @ k.transpose(-1, -2) / torch.full([], DEPTH**0.5, dtype=q.dtype)
    triangle = torch.tril(torch.ones(TOKENS, TOKENS, dtype=torch.bool)).view(1, 1, TOKENS, TOKENS)
    made = torch.where(triangle, made, torch.full([], torch.finfo(q.dtype).min, dtype=q.dtype))
    return torch.softmax(made, -1) @ v


def positions(tokens=TOKENS):
    place = torch.arange(tokens)
    distance = place[:, None] - place
    return (distance >= 0) & (distance < 32)


def window(q, k, v, keep):
    return sdpa(q, k, v, positions() & keep)


def added_window(q, k, v, keep):
    mask = torch.where(positions() & keep, 0.0, torch.finfo(q.dtype).min)
    return torch.softmax(scores(q, k) + mask, -1).to(v.dtype) @ v


def capped(q, k, v, keep):
    made = torch.tanh(scores(q, k) / 5) * 5 + torch.where(keep, 0.0, torch.finfo(q.dtype).min)
    return torch.softmax(made, -1, dtype=torch.float32).to(q.dtype) @ v


def heads_last(q, k, v, keep):
    q, k, v = (one.transpose(1, 2).contiguous().transpose(1, 2) for one in (q, k, v))
    return sdpa(q, k, v, keep).transpose(1, 2).reshape(BATCH, TOKENS, HEADS * DEPTH)


FORMS = [
    added, inverted, filled, filled_with_the_lowest, chosen, batched, triangular, window, added_window, capped,
    heads_last,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("function", FORMS, ids=lambda one: one.__name__)
def test_forms(function, dtype):
    keep = torch.rand(BATCH, 1, TOKENS, TOKENS) > 0.2
    keep[..., 0] = True
    if function in (window, added_window):
        keep = torch.arange(TOKENS) < torch.tensor([TOKENS, 60]).view(2, 1, 1, 1)
    given = [heads(dtype) for _ in range(3)]
    (found,), program = run(function, *given, keep)
    assert not program.reasons
    assert_one_attention(program)
    torch.testing.assert_close(found, function(*given, keep), **TOLERANCE[dtype])


# A mask of a batch gets a dim for queries that share keys, and is a tensor.
@pytest.mark.parametrize(("has_padding", "of_keys"), [(False, 1), (False, HEADS), (True, HEADS)])
def test_masks_from_positions_are_never_tensors(has_padding, of_keys):
    tokens = 256
    q, k, v = (torch.randn(1, count, tokens, DEPTH) for count in (HEADS, of_keys, of_keys))
    padding = (torch.arange(tokens) < 200).view(1, 1, 1, tokens)

    def function(q, k, v, padding):
        mask = positions(tokens) & padding if has_padding else positions(tokens)
        return sdpa(q, k, v, mask, enable_gqa=True)

    (found,), program = run(function, q, k, v, padding)
    torch.testing.assert_close(found, function(q, k, v, padding), **TOLERANCE[torch.float32])
    (step,) = [one for one in program.steps if one.compiled is not None]
    shapes = [port["shape"] for port in step.compiled.inputs]
    assert all(shape[-2:] != (tokens, tokens) for shape in shapes), shapes
    assert "classes of tiles" in step.compiled.plan


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_biases_whose_rows_lie_apart_are_copied_once(dtype):
    table = torch.randn(32, HEADS).to(dtype)
    keep = torch.arange(TOKENS) < torch.tensor([TOKENS, 60]).view(2, 1, 1, 1)

    def function(q, k, v, table, keep):
        at = torch.arange(TOKENS)
        bias = table[(at[None] - at[:, None]).abs().clamp(max=31)].permute(2, 0, 1)[None]
        for _ in range(3):
            q = sdpa(q, k, v, torch.where(keep, bias, -torch.inf))
        return q

    given = [*(heads(dtype) for _ in range(3)), table, keep]
    (found,), program = run(function, *given)
    torch.testing.assert_close(found, function(*given), **TOLERANCE[dtype])
    assert [op["kind"] for step in program.steps if not step.nodes for op in step.partition.ops] == ["Reorder"]


# Gradients.


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("form", ["plain", "causal", "padding", "added", "shared"])
def test_gradients_are_one_partition_with_statistics(form, dtype):
    count = 2 if form == "shared" else HEADS
    settings = {
        "plain": {},
        "causal": {"is_causal": True},
        "padding": {"attn_mask": torch.arange(TOKENS) < torch.tensor([TOKENS, 60]).view(2, 1, 1, 1)},
        "added": {"attn_mask": torch.randn(TOKENS, TOKENS).to(dtype)},
        "shared": {"is_causal": True, "enable_gqa": True},
    }[form]
    given = [one.requires_grad_() for one in (heads(dtype), heads(dtype, count), heads(dtype, count))]
    programs = []
    function = torch.compile(lambda q, k, v: sdpa(q, k, v, **settings), backend=sterna.torch.backend, fullgraph=True)
    grad = heads(dtype)
    with _backend.watching(lambda graph, program: programs.append((graph.role, program))):
        found = function(*given)
        gradients = torch.autograd.grad(found, given, grad)
    wanted = sdpa(*given, **settings)
    torch.testing.assert_close(found, wanted, **TOLERANCE[dtype])
    tolerance = {name: 4 * number for name, number in TOLERANCE[dtype].items()}
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, given, grad), **tolerance)
    assert [role for role, _ in programs] == ["forward", "backward"]
    assert_one_attention(programs[0][1])
    assert_one_attention(programs[1][1], products=5)
    for _, program in programs:
        ports = [port["shape"] for step in program.steps if step.compiled for port in step.compiled.outputs]
        assert all(shape[-2:] != (TOKENS, TOKENS) for shape in ports), ports


# flex_attention.

SLOPES = torch.linspace(-0.5, 0.5, HEADS)
DOCUMENTS = torch.arange(TOKENS) // 50
OF_BATCH = torch.stack([torch.arange(TOKENS) // 40, torch.arange(TOKENS) // 60])
PREFIX = torch.tensor([40, 90])
BIAS = torch.linspace(-1, 1, HEADS * TOKENS * (TOKENS + 9)).view(HEADS, TOKENS, TOKENS + 9).sin()
OFFSET = torch.tensor(3)

MASKS = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 32),
    "prefix": lambda b, h, i, j: (j < PREFIX[b]) | (i >= j),
    "documents": lambda b, h, i, j: (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j),
    "documents of a batch": lambda b, h, i, j: OF_BATCH[b, i] == OF_BATCH[b][j],
    "offset": lambda b, h, i, j: i + OFFSET >= j,
    "by head": lambda b, h, i, j: (h < 2) | (i >= j),
    "rows that see nothing": lambda b, h, i, j: i < j,
    "everything": lambda b, h, i, j: i >= 0,
    "blocks": lambda b, h, i, j: i // 16 >= j // 16,
    "every other": lambda b, h, i, j: (i >= j) & ((i - j) % 2 == 0),
}
SCORES = {
    "none": None,
    "alibi": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "cap": lambda s, b, h, i, j: torch.tanh(s / 5) * 5,
    "bias": lambda s, b, h, i, j: s + BIAS[h, i, j],
    "bias across": lambda s, b, h, i, j: s + BIAS[h, j, i],
    "distance": lambda s, b, h, i, j: s - (i - j).abs() * 0.1,
    "mask": lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf),
    "by head": lambda s, b, h, i, j: s * (h + 1),
    "buckets": lambda s, b, h, i, j: s - torch.div((i - j).abs(), 8, rounding_mode="floor"),
}


def check_flex(score_mod=None, mask_mod=None, dtype=torch.float32, of_keys=HEADS, taken=True):
    q, k, v = heads(dtype), heads(dtype, of_keys), heads(dtype, of_keys)
    block_mask = None
    if mask_mod is not None:
        block_mask = create_block_mask(mask_mod, BATCH, HEADS, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=64)

    def function(q, k, v, block_mask):
        return flex_attention(q, k, v, score_mod, block_mask, enable_gqa=of_keys != HEADS)

    programs = []
    compiled = torch.compile(function, backend=sterna.torch.backend, fullgraph=True)
    with torch.no_grad(), _backend.watching(lambda _, program: programs.append(program)):
        found = compiled(q, k, v, block_mask)
    torch.testing.assert_close(found, function(q, k, v, block_mask), **TOLERANCE[dtype])
    if taken:
        assert_one_attention(programs[-1])
    return programs[-1]


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_flex_attention(name):
    check_flex(mask_mod=MASKS[name])


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_flex_attention(name):
    check_flex(score_mod=SCORES[name])


@pytest.mark.parametrize("of_keys", [1, 2])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_flex_attention_with_heads_that_share_keys(dtype, of_keys):
    check_flex(SCORES["alibi"], MASKS["prefix"], dtype, of_keys)
    check_flex(SCORES["by head"], MASKS["by head"], dtype, of_keys)


@pytest.mark.parametrize("name", ["window", "blocks"])
def test_masks_of_flex_attention_leave_tiles_out(name):
    program = check_flex(mask_mod=MASKS[name])
    (step,) = [one for one in program.steps if one.compiled is not None]
    assert "classes of tiles" in step.compiled.plan


def test_flex_attention_that_torch_keeps():
    table = torch.randn(2 * TOKENS, HEADS)
    program = check_flex(score_mod=lambda s, b, h, i, j: s + table[i - j + TOKENS, h], taken=False)
    assert "an index that is not a position" in program.reasons.values()
    narrow = torch.randn(TOKENS)
    program = check_flex(score_mod=lambda s, b, h, i, j: s + torch.special.bessel_j0(narrow[i]), taken=False)
    assert any("bessel" in reason for reason in program.reasons.values())
