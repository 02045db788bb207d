"""The graphs of attention: one partition each, forward and backward, in each type and form."""

import math

import pytest

torch = pytest.importorskip("torch")

from sterna.torch import _attention
from sterna.torch._calls import Call, Desc, dense

TYPES = [torch.float32, torch.bfloat16, torch.float16]
BATCH, HEADS, QUERIES, KEYS, DEPTH = 2, 3, 40, 56, 16

# What scores are made of: the mask, if it is boolean, the options, and the cap.
CHAINS = {
    "plain": {},
    "causal": {"is_causal": True},
    "padding": {"mask": (torch.bool, (BATCH, 1, 1, KEYS))},
    "bias": {"bias": (None, (1, HEADS, QUERIES, KEYS))},
    "f32 bias": {"bias": (torch.float32, (1, 1, QUERIES, KEYS)), "is_causal": True},
    "cap": {"softcap": 5.0, "is_causal": True},
}


def randoms(desc):
    storage = torch.randn(1 + sum((dim - 1) * stride for dim, stride in zip(desc.shape, desc.strides)))
    if desc.dtype == torch.bool:
        storage = storage > -0.5
    return storage.to(desc.dtype).as_strided(desc.shape, desc.strides)


def described(dtype, group, name):
    """Descriptions of queries, keys, values and the mask."""
    front = (BATCH, HEADS, group) if group > 1 else (BATCH, HEADS)
    of_keys = (BATCH, HEADS, 1) if group > 1 else (BATCH, HEADS)
    found = [dense(dtype, (*front, QUERIES, DEPTH)), *(dense(dtype, (*of_keys, KEYS, DEPTH)) for _ in "kv")]
    for option in ("mask", "bias"):
        if option in CHAINS[name]:
            kind, shape = CHAINS[name][option]
            shape = (*shape[:2], 1, *shape[2:]) if group > 1 else shape
            found.append(dense(kind or dtype, shape))
    return found


def chain(name, rest):
    options = {key: value for key, value in CHAINS[name].items() if key not in ("mask", "bias")}
    for option in ("mask", "bias"):
        if option in CHAINS[name]:
            options[option] = rest[0]
    return _attention.Chain(1 / math.sqrt(DEPTH), **options)


def expected(name, q, k, v, rest):
    scores = q @ k.transpose(-1, -2) / math.sqrt(DEPTH)
    if cap := CHAINS[name].get("softcap"):
        scores = torch.tanh(scores / cap) * cap
    if rest:
        scores = torch.where(rest[0], scores, -torch.inf) if rest[0].dtype == torch.bool else scores + rest[0]
    if CHAINS[name].get("is_causal"):
        scores = torch.where(torch.ones(QUERIES, KEYS, dtype=torch.bool).tril(), scores, -torch.inf)
    return torch.softmax(scores, -1) @ v, scores.logsumexp(-1, keepdim=True)


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CHAINS)
def test_forward_and_backward_are_one_partition(name, dtype, group):
    torch.manual_seed(0)
    inputs = described(dtype, group, name)
    result = dense(dtype, (*inputs[0].shape[:-1], DEPTH))
    stats = dense(torch.float32, (*inputs[0].shape[:-1], 1))

    def forward(g, values):
        q, k, v, *rest = values
        return _attention.forward(g, q, k, v, chain(name, rest).scores, has_stats=True)

    def backward(g, values):
        q, k, v, *rest = values[:-3]
        out, stats, grad = values[-3:]
        made = chain(name, rest)
        found = _attention.backward(
            g, grad, q, k, v, out, stats, made.scores, made.slopes, is_grouped=group > 1
        )
        return [found.q, found.k, found.v]

    call = Call(forward, inputs, [result, stats], 2)
    assert len(call.steps) == 1
    given = [randoms(desc) for desc in inputs]
    made = [torch.empty(result.shape, dtype=dtype), torch.empty(stats.shape)]
    call.run(given, made)
    exact = [one if one.dtype == torch.bool else one.double().requires_grad_() for one in given]
    wanted = expected(name, *exact[:3], exact[3:])
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(made[0].double(), wanted[0], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(made[1].double(), wanted[1], atol=1e-4, rtol=1e-4)

    call = Call(backward, [*inputs, result, stats, result], inputs[:3], 2)
    assert len(call.steps) == 1
    grad = torch.randn(result.shape).to(dtype)
    grads = [torch.empty(desc.shape, dtype=dtype) for desc in inputs[:3]]
    call.run([*given, *made, grad], grads)
    for one, wanted in zip(grads, torch.autograd.grad(wanted[0], exact[:3], grad.double())):
        torch.testing.assert_close(one.double(), wanted, atol=8 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", TYPES)
def test_sinks_are_one_partition(dtype):
    inputs = described(dtype, 2, "causal")
    # One number for each head of queries.
    sinks = Desc(torch.float32, (*inputs[0].shape[:-1], 1), (0, 2, 1, 0, 0))

    def forward(g, values):
        *heads, sinks = values
        made = _attention.Chain(0.25, is_causal=True)
        return _attention.forward(g, *heads, made.scores, sinks=sinks, has_stats=True)

    outputs = [dense(dtype, inputs[0].shape), dense(torch.float32, (*inputs[0].shape[:-1], 1))]
    call = Call(forward, [*inputs, sinks], outputs, 2)
    assert len(call.steps) == 1
    torch.manual_seed(0)
    q, k, v, column = given = [*map(randoms, [*inputs, sinks])]
    made = [torch.empty(desc.shape, dtype=desc.dtype) for desc in outputs]
    call.run(given, made)
    scores = q.double() @ k.double().transpose(-1, -2) * 0.25
    scores = torch.where(torch.ones(QUERIES, KEYS, dtype=torch.bool).tril(), scores, -torch.inf)
    scores = torch.cat([scores, column.double()], -1)
    wanted = torch.softmax(scores, -1)[..., :-1] @ v.double()
    torch.testing.assert_close(made[0].double(), wanted, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(made[1].double(), scores.logsumexp(-1, keepdim=True), atol=1e-4, rtol=1e-4)
