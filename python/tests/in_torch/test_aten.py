"""Each row of the table against torch, over types, layouts, scalars, broadcasting, empty tensors and single numbers."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from sterna.torch import _aten
from torch_harness import check, run

aten, prims = torch.ops.aten, torch.ops.prims
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32)


def numbers(shape, dtype, seed=0, positive=False):
    """Numbers of both signs, without extremes."""
    made = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=made) < 0.5
    if not dtype.is_floating_point:
        return torch.randint(1 if positive else -9, 9, shape, generator=made).to(dtype)
    x = torch.randn(shape, generator=made)
    return (x.abs() + 0.1 if positive else x).to(dtype)


LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x,
    "sliced": lambda x: torch.repeat_interleave(x, 2, -1)[..., ::2] if x.dim() else x,
    "expanded": lambda x: x[:1].expand(x.shape) if x.dim() and x.shape[0] else x,
}
SHAPES = ((3, 4, 5), (7,), (), (0, 3))

#: Ops of one tensor, with further arguments.
UNARY = {
    aten.abs.default: (),
    aten.ceil.default: (),
    aten.cos.default: (),
    aten.exp.default: (),
    aten.floor.default: (),
    aten.hardswish.default: (),
    aten.mish.default: (),
    aten.neg.default: (),
    aten.relu.default: (),
    aten.round.default: (),
    aten.sigmoid.default: (),
    aten.sin.default: (),
    aten.tanh.default: (),
    aten.gelu.default: (),
    aten.silu.default: (),
    aten.elu.default: (),
    aten.leaky_relu.default: (0.1,),
    aten.softplus.default: (),
    aten.hardtanh.default: (),
    aten.hardsigmoid.default: (),
    aten.pow.Tensor_Scalar: (2,),
    aten.isnan.default: (),
    aten.isinf.default: (),
    aten.clamp.default: (-0.5, 0.75),
    aten.clamp_min.default: (0.25,),
    aten.clamp_max.default: (0.25,),
    aten.clone.default: (),
    aten.alias.default: (),
    aten.detach.default: (),
    aten.lift_fresh_copy.default: (),
    aten.add.Scalar: (1.5,),
    aten.sub.Scalar: (1.5, 2),
    aten.mul.Scalar: (1.3,),
    aten.div.Scalar: (1.3,),
    aten.rsub.Scalar: (1.5,),
    aten.logical_not.default: (),
    aten.eq.Scalar: (0.5,),
    aten.ne.Scalar: (0.5,),
    aten.lt.Scalar: (0.3,),
    aten.le.Scalar: (0.3,),
    aten.gt.Scalar: (0.3,),
    aten.ge.Scalar: (0.3,),
}
#: Those of positive numbers.
POSITIVE = {
    aten.log.default: (),
    aten.reciprocal.default: (),
    aten.sqrt.default: (),
    aten.rsqrt.default: (),
}
BINARY = {
    aten.add.Tensor: {},
    aten.sub.Tensor: {"alpha": 3},
    aten.rsub.Tensor: {},
    aten.mul.Tensor: {},
    aten.div.Tensor: {},
    aten.maximum.default: {},
    aten.minimum.default: {},
    aten.eq.Tensor: {},
    aten.ne.Tensor: {},
    aten.lt.Tensor: {},
    aten.le.Tensor: {},
    aten.gt.Tensor: {},
    aten.ge.Tensor: {},
    aten.logical_and.default: {},
    aten.logical_or.default: {},
    aten.logical_xor.default: {},
}
BITS = (aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor)


def tolerance(dtype):
    """A step in the last place more than torch's own for 16 bits: both round once."""
    return {} if dtype == torch.float32 else {"rtol": 1.6e-2, "atol": 1e-3}


@pytest.mark.parametrize("op", [*UNARY, *POSITIVE], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_tensor(op, dtype):
    more = {**UNARY, **POSITIVE}[op]
    pairs = itertools.product(SHAPES, LAYOUTS.values())
    given = [layout(numbers(shape, dtype, positive=op in POSITIVE)) for shape, layout in pairs]
    check(lambda *given: [op(x, *more) for x in given], *given, **tolerance(dtype))


@pytest.mark.parametrize("op", [*UNARY, *POSITIVE], ids=str)
def test_edges(op):
    """Infinities, zeros of both signs and NaN."""
    more = {**UNARY, **POSITIVE}[op]
    edges = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e-40, 90.0, -90.0])
    if op in (aten.gelu.default, aten.mish.default, aten.hardswish.default, aten.silu.default):
        # They are a product with 0 or infinity there, which kernels of torch do not form alike.
        edges[:2] = torch.tensor([6.0, -5.0])
    check(lambda x: op(x, *more), edges)


@pytest.mark.parametrize("op", BINARY, ids=str)
@pytest.mark.parametrize("dtype", (*FLOATS, *INTS), ids=str)
def test_two_tensors(op, dtype):
    pairs = (((3, 4), (3, 4)), ((2, 1, 4), (3, 1)), ((), (3, 4)), ((5,), ()), ((), ()), ((0, 3), (1, 3)))
    given = []
    for (a, b), layout in itertools.product(pairs, LAYOUTS.values()):
        given += layout(numbers(a, dtype, 1)), numbers(b, dtype, 2, positive=op is aten.div.Tensor)
    settings = BINARY[op]
    check(lambda *given: [op(x, y, **settings) for x, y in zip(given[::2], given[1::2])], *given, **tolerance(dtype))


@pytest.mark.parametrize("op", BINARY, ids=str)
def test_types_that_differ(op):
    wide = torch.float32
    kinds = ((wide, torch.int64), (torch.bfloat16, wide), (torch.int32, torch.int64), (torch.bool, wide))
    for a, b in kinds:
        x, y = numbers((3, 4), a, 1), numbers((4,), b, 2, positive=True)
        if a == torch.bool and op in (aten.sub.Tensor, aten.rsub.Tensor):
            continue
        settings = BINARY[op]
        check(lambda x, y: op(x, y, **settings), x, y, rtol=1.6e-2, atol=1e-3)


@pytest.mark.parametrize("op", BITS, ids=str)
def test_bits(op):
    x, y = numbers((3, 4), torch.bool, 1), numbers((4,), torch.bool, 2)
    check(op, x, y)
    check(lambda x: aten.bitwise_not.default(x), x)
    # Those of integers stay with torch.
    program = check(op, numbers((3,), torch.int64, 1), numbers((3,), torch.int64, 2), taken=False)
    assert program.reasons


@pytest.mark.parametrize("source", (*FLOATS, *INTS, torch.bool, torch.uint8, torch.float64), ids=str)
@pytest.mark.parametrize("target", (*FLOATS, *INTS, torch.bool, torch.float64), ids=str)
def test_casts(source, target):
    x = numbers((3, 4), source, positive=source == torch.uint8)
    check(lambda x: aten._to_copy.default(x, dtype=target), x)
    check(lambda x: prims.convert_element_type.default(x, target), x)


#: Everything else: the op, its tensors, and its arguments as a function of them.
OTHERS = [
    (aten.addcmul.default, [(3, 4), (4,), (3, 1)], lambda op, x, a, b: op(x, a, b, value=0.5)),
    (aten.addcdiv.default, [(3, 4), (4,), (3, 1)], lambda op, x, a, b: op(x, a, b.abs() + 1, value=0.5)),
    (aten.where.self, [(3, 4), (4,), (3, 1)], lambda op, x, a, b: op(x > 0, a, b)),
    (aten.where.ScalarSelf, [(3, 4), (4,)], lambda op, x, a: op(x > 0, 2.0, a)),
    (aten.where.ScalarOther, [(3, 4), (4,)], lambda op, x, a: op(x > 0, a, -float("inf"))),
    (aten.masked_fill.Scalar, [(3, 4), (4,)], lambda op, x, a: op(x, a > 0, -6e4)),
    (aten.masked_fill.Tensor, [(3, 4), (4,), ()], lambda op, x, a, b: op(x, a > 0, b)),
    (aten.copy.default, [(3, 4), (4,)], lambda op, x, y: op(x, y * 2) + 1),
    (aten.copy.default, [(3, 4)], lambda op, x: op(x, x[1].long()[None])),
    (aten.full.default, [(3, 4)], lambda op, x: x + op([200, 100], 0.5)[:3, :4].to(x.dtype)),
    (aten.full_like.default, [(3, 4)], lambda op, x: x + op(x, 0.5)),
    (aten.scalar_tensor.default, [(3, 4)], lambda op, x: x + op(0.5, dtype=x.dtype)),
    (aten.mm.default, [(3, 4), (4, 5)], lambda op, a, b: op(a, b)),
    (aten.mm.default, [(4, 3), (5, 4)], lambda op, a, b: op(a.t(), b.t())),
    (aten.bmm.default, [(2, 3, 4), (2, 4, 5)], lambda op, a, b: op(a, b)),
    (aten.bmm.default, [(2, 3, 4), (2, 5, 4)], lambda op, a, b: op(a, b.transpose(1, 2))),
    (aten.addmm.default, [(5,), (3, 4), (4, 5)], lambda op, c, a, b: op(c, a, b)),
    (aten.addmm.default, [(3, 1), (3, 4), (5, 4)], lambda op, c, a, b: op(c, a, b.t())),
    (aten.baddbmm.default, [(2, 1, 5), (2, 3, 4), (2, 4, 5)], lambda op, c, a, b: op(c, a, b, beta=0.5, alpha=2)),
    (aten._softmax.default, [(3, 4, 5)], lambda op, x: op(x, -1, False)),
    (aten._softmax.default, [(3, 4, 5)], lambda op, x: op(x, 1, False)),
    (aten._log_softmax.default, [(3, 4, 5)], lambda op, x: op(x, -1, False)),
    (aten.native_layer_norm.default, [(3, 4, 5), (5,), (5,)], lambda op, x, w, b: op(x, [5], w, b, 1e-5)),
    (aten.native_layer_norm.default, [(3, 4, 5)], lambda op, x: op(x, [4, 5], None, None, 1e-5)[0]),
    (aten.sum.dim_IntList, [(3, 4, 5)], lambda op, x: op(x, [0, -1])),
    (aten.sum.dim_IntList, [(3, 4, 5)], lambda op, x: op(x, [1], True)),
    (aten.sum.default, [(3, 4, 5)], lambda op, x: op(x)),
    (aten.mean.dim, [(3, 4, 5)], lambda op, x: op(x, [-1], True)),
    (aten.mean.default, [(3, 4, 5)], lambda op, x: op(x)),
    (aten.amax.default, [(3, 4, 5)], lambda op, x: op(x, [1])),
    (aten.amin.default, [(3, 4, 5)], lambda op, x: op(x, [-1], True)),
    (aten.any.dim, [(3, 4, 5)], lambda op, x: op(x > 1, -1, True)),
    (aten.any.dims, [(3, 4, 5)], lambda op, x: op(x > 1, [0, 1])),
    (aten.any.default, [(3, 4, 5)], lambda op, x: op(x > 9)),
    (aten.argmax.default, [(3, 4, 5)], lambda op, x: op(x, 1, True)),
    (aten.argmin.default, [(3, 4, 5)], lambda op, x: op(x, -1)),
    (aten.max.dim, [(3, 4, 5)], lambda op, x: op(x, 1)),
    (aten.min.dim, [(3, 4, 5)], lambda op, x: op(x, -1, True)),
    (aten.topk.default, [(3, 4, 5)], lambda op, x: op(x, 2)),
    (aten.view.default, [(3, 4, 5)], lambda op, x: op((x * 2).contiguous(), [4, 15]) + 1),
    (aten._unsafe_view.default, [(3, 4, 5)], lambda op, x: op((x * 2).contiguous(), [60]) + 1),
    (aten.reshape.default, [(3, 4, 5)], lambda op, x: op(x * 2, [60]) + 1),
    (aten.permute.default, [(3, 4, 5)], lambda op, x: op(x, [2, 0, 1]) + 1),
    (aten.transpose.int, [(3, 4, 5)], lambda op, x: op(x, 0, -1) + 1),
    (aten.t.default, [(3, 4)], lambda op, x: op(x) + 1),
    (aten.expand.default, [(3, 1)], lambda op, x: op(x, [2, 3, 4]) + 1),
    (aten.expand.default, [(3, 1)], lambda op, x: op(x, [3, 4]).reshape(12) + 1),
    (aten.expand.default, [(3, 1)], lambda op, x: op(x, [3, 4])[:, 1:3].unsqueeze(0) * x),
    (aten.repeat.default, [(3, 1, 2)], lambda op, x: op(x, [2, 1, 3, 2])),
    (aten.repeat.default, [(3, 4)], lambda op, x: op(x, [0, 2])),
    (aten.unsqueeze.default, [(3, 4)], lambda op, x: op(x, -2) + 1),
    (aten.squeeze.default, [(3, 1, 4, 1)], lambda op, x: op(x) + 1),
    (aten.squeeze.dim, [(3, 1, 4)], lambda op, x: op(x, 1) + op(x, 0).squeeze()),
    (aten.squeeze.dims, [(3, 1, 4, 1)], lambda op, x: op(x, [1, -1]) + 1),
    (aten.slice.Tensor, [(5, 6)], lambda op, x: op(x, 1, -4, -1) + op(x, 1, 0, 6, 2)),
    (aten.select.int, [(5, 6)], lambda op, x: op(x, 1, -1) + 1),
    (aten.split.Tensor, [(5, 6)], lambda op, x: [one + 1 for one in op(x, 4, 1)]),
    (aten.split_with_sizes.default, [(5, 6)], lambda op, x: [one + 1 for one in op(x, [1, 2, 3], 1)]),
    (aten.unbind.int, [(2, 6)], lambda op, x: op(x)[0] * op(x)[1]),
    (aten.as_strided.default, [(3, 4)], lambda op, x: op((x * 2).contiguous(), [3, 4], [4, 1]) + 1),
    (aten.cat.default, [(2, 3), (4, 3)], lambda op, a, b: op([a, b, a])),
    (aten.constant_pad_nd.default, [(2, 3)], lambda op, x: op(x, [1, 2, 0, 1], 0.5)),
    (aten.constant_pad_nd.default, [(4, 5)], lambda op, x: op(x, [-1, 2, 1, -1])),
    (aten.slice_scatter.default, [(4, 5), (2, 5)], lambda op, x, y: op(x, y, 0, 1, 3)),
    (aten.select_scatter.default, [(4, 5), (4,)], lambda op, x, y: op(x, y, 1, -1)),
    (aten._softmax_backward_data.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x.softmax(-1), -1, g.dtype)),
    (aten._log_softmax_backward_data.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x.log_softmax(-1), -1, g.dtype)),
    (aten.gelu_backward.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x, approximate="tanh")),
    (aten.gelu_backward.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x)),
    (aten.silu_backward.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x)),
    (aten.tanh_backward.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x.tanh())),
    (aten.sigmoid_backward.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x.sigmoid())),
    (aten.threshold_backward.default, [(3, 5), (3, 5)], lambda op, g, x: op(g, x, 0)),
]


def norm_backward(op, grad, x, weight, bias):
    mean = x.float().mean(-1, keepdim=True)
    deviation = (x.float().var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
    return op(grad, x, [5], mean, deviation, weight, bias, [True, True, True])


OTHERS.append((aten.native_layer_norm_backward.default, [(3, 4, 5), (3, 4, 5), (5,), (5,)], norm_backward))

#: Parts of a case that have no row, and are no part of the op.
BESIDE = ("aten.var", "aten.abs", "arange")


@pytest.mark.parametrize("case", range(len(OTHERS)), ids=[str(op) for op, *_ in OTHERS])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_others(case, dtype):
    op, shapes, function = OTHERS[case]
    if dtype != torch.float32 and op is aten.native_layer_norm_backward.default:
        dtype = torch.float32
    given = []
    for layout in LAYOUTS:
        if layout == "expanded" and op in (aten.argmax.default, aten.argmin.default, aten.topk.default):
            # Of equal elements torch takes any.
            continue
        given += [LAYOUTS[layout](numbers(shape, dtype, index)) for index, shape in enumerate(shapes)]

    def each(*given):
        made = []
        for place in range(0, len(given), len(shapes)):
            one = function(op, *given[place : place + len(shapes)])
            made += one if isinstance(one, (tuple, list)) else [one]
        return made

    program = check(each, *given, taken=False, **tolerance(dtype))
    stays = [reason for reason in program.reasons.values() if not any(name in reason for name in BESIDE)]
    assert not stays, stays


INDICES = torch.tensor([[0, 2, 2], [4, 1, 0]])


@pytest.mark.parametrize("dtype", (*FLOATS, *INTS, torch.bool), ids=str)
def test_lookups(dtype):
    x = numbers((5, 3), dtype)
    check(lambda x, i: aten.embedding.default(x, i), x, INDICES)
    check(lambda x, i: aten.gather.default(x, 0, i), x, INDICES)
    check(lambda x, i: aten.index_select.default(x, 0, i), x, INDICES[0])
    check(lambda x, i: aten.index.Tensor(x, [i]), x, INDICES)
    check(lambda x, i: aten.index.Tensor(x, [None, i]), x, INDICES.clamp(max=2))
    check(lambda x, i: aten.index.Tensor(x, [i, i.clamp(max=2)]), x, INDICES)
    rows, columns = torch.arange(5)[:, None, None], torch.arange(3)[None, None, :]
    program = check(lambda x: aten.index.Tensor(x, [torch.arange(5)[:, None, None], torch.arange(3)]), x)
    assert x[rows, columns].shape == (5, 1, 3)
    # Indices that name each element in order are a view.
    assert all(step.compiled is None for step in program.steps)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_of_lookups(dtype):
    grad = numbers((2, 3, 4), dtype)
    check(lambda g, i: aten.embedding_dense_backward.default(g, i, 5, -1, False), grad, INDICES, **tolerance(dtype))
    check(lambda g, i: aten.embedding_dense_backward.default(g, i, 5, 2, False), grad, INDICES, **tolerance(dtype))


@pytest.mark.parametrize("dtype", (*FLOATS, *INTS, torch.uint8, torch.float64), ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sorting(dtype, descending):
    """Equal elements in their order, NaN as the largest number."""
    x = numbers((4, 50), dtype, positive=dtype == torch.uint8)
    if dtype.is_floating_point:
        x = x.round()
        x[0, :8] = torch.tensor([float("nan"), -0.0, 0.0, float("inf"), -float("inf"), float("nan"), 0.0, -0.0])
    for axis in (-1, 0):
        check(lambda x: aten.sort.stable(x, stable=True, dim=axis, descending=descending), x, rtol=0, atol=0)
        # Of equal elements torch may take any here, of which there are none.
        apart = torch.randperm(200).view(4, 50).to(dtype if dtype.itemsize > 1 else torch.int64)
        check(lambda x: aten.sort.default(x, axis, descending), apart, rtol=0, atol=0)


EDGES = torch.tensor([0.0, -0.0, 1, -1, 2.5, -2.5, float("inf"), -float("inf"), float("nan"), 1e30, -3, 0.3])


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float64), ids=str)
def test_remainders(dtype):
    x, y = EDGES.to(dtype)[:, None], EDGES.to(dtype)[None]
    check(aten.remainder.Tensor, x, y, **tolerance(dtype))
    check(lambda x: aten.remainder.Scalar(x, -0.7), x, **tolerance(dtype))
    check(lambda x: aten.div.Tensor_mode(x, x + 3, rounding_mode=None), x, **tolerance(dtype))
    program = check(lambda x: aten.div.Tensor_mode(x, x + 3, rounding_mode="floor"), x, taken=False)
    assert any("rounded" in reason for reason in program.reasons.values())


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("divisor", [3, -3, 1, -1, 1 << 28])
def test_integers_divided(dtype, divisor):
    x = torch.arange(-20, 20).to(dtype)
    check(lambda x: (x // divisor, x % divisor, aten.div.Scalar_mode(x, divisor, rounding_mode="floor")), x)
    check(lambda x: aten.div.Tensor_mode(x, torch.tensor(divisor), rounding_mode="floor").to(dtype), x)
    for rest in (lambda x: x // x, lambda x: x % x, lambda x: aten.div.Tensor_mode(x, 3, rounding_mode="trunc")):
        assert check(rest, x + 100, taken=False).reasons
    # An error of torch, which no op of Sterna gives.
    with pytest.raises(RuntimeError, match="(?i)zero"):
        check(lambda x: x // 0, x, taken=False)


@pytest.mark.parametrize("size", [3, 300, 70000])
def test_identity(size):
    """torch takes `eye` apart into positions of as few bits as hold them."""
    x = torch.arange(3.0)
    check(lambda x: torch.where(torch.eye(3, size, dtype=torch.bool), x[:, None], -1.0), x, taken=size < 70000)
    check(lambda x: torch.eye(size, 3)[-1] + x, x, taken=size < 70000)
    check(lambda x: torch.eye(min(size, 300), dtype=x.dtype)[:3, :3] + x, x.bfloat16())


def test_numbers_that_no_f32_holds():
    x = torch.tensor([[1.0, -2.0], [0.25, 3.0]], dtype=torch.float64)
    functions = (
        lambda x: aten.masked_fill.Scalar(x, x > 0, 0.1),
        lambda x: aten.where.ScalarOther(x > 0, x, 0.1),
        lambda x: aten.constant_pad_nd(x, [1, 0], 0.1),
        lambda x: aten.add.Scalar(x, 0.1),
        lambda x: aten.gt.Scalar(x, 0.1),
    )
    for function in functions:
        check(function, x, rtol=0, atol=0)


def test_what_torch_does_faster():
    """Running sums and elements at places stay with torch, and what is around them does not."""
    x, at = numbers((4, 5), torch.float32), torch.tensor([2, 0, 2])
    functions = (
        lambda x, at: (x + 1).cumsum(-1) * 2,
        lambda x, at: (x * 2).index_add(0, at, x[:3]) + 1,
        lambda x, at: (x * 2).scatter(0, at[:, None], 3.0) + 1,
    )
    for function in functions:
        program = check(function, x, at, taken=False)
        (reason,) = [one for one in program.reasons.values() if "clamp" not in one]
        assert reason.startswith("no row for aten.") or "places" in reason, reason
        assert sum(step.compiled is not None for step in program.steps) >= 2


def test_other_views_by_strides():
    """Overlapping parts, the same memory in other dims, and a part of an input."""
    x = numbers((4, 6), torch.float32)
    functions = (
        lambda x: aten.as_strided.default((x * 2).contiguous(), [5, 4], [4, 2]) + 1,
        lambda x: aten.as_strided.default((x * 2).contiguous(), [6, 4], [1, 6]) + 1,
        lambda x: aten.as_strided.default(x[1:], [3, 6], [6, 1]) + 1,
        lambda x: aten.as_strided.default(x[1:], [3, 6], [6, 1], 0) + 1,
        lambda x: aten.as_strided.default((x * 2)[1:], [3, 6], [6, 1], 0) + 1,
    )
    for function in functions:
        check(function, x, taken=False)


def test_softmax_into_f32():
    check(lambda x: aten._softmax.default(x, -1, False), torch.full((2, 3), -float("inf")))


@pytest.mark.parametrize("dtype", (*FLOATS, *INTS, torch.bool), ids=str)
def test_elements_at_places(dtype):
    x, source = numbers((5, 3, 4), dtype, 1), numbers((5, 3, 4), dtype, 2)
    at = torch.randint(0, 3, (4, 3, 4), generator=torch.Generator().manual_seed(0))
    for axis in (1, 2, -1):
        # Indices name places several times, and fewer elements than there are.
        check(lambda x, i, s: aten.scatter.src(x, axis, i, s), x, at, source)
        check(lambda x, i, s: aten.scatter.src(x, axis, i, s), x, at[:2, :2, 1:3], source)
    check(lambda x, i, s: aten.scatter.src(x, 0, i, s), x[:, 0, 0], at[:, 0, 0], source[:, 0, 0])
    for stays in (at[:0], at):
        check(lambda x, i, s: aten.scatter.src(x, 0, i, s), x, stays, source, taken=False)
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        run(lambda x, i, s: (aten.scatter.src(x, 1, i, s),), x, at + 3, source)

    rows = torch.tensor([4, 0, -1, 0])
    is_wide = dtype == torch.int64
    check(lambda x, i, s: aten.index_put.default(x, [i], s), x, rows, source[:4], taken=not is_wide)
    check(lambda x, i, s: aten.index_put.default(x, [i], s), x, rows.view(2, 2), source[0, 0], taken=not is_wide)
    check(lambda x, i, s: aten.index_put.default(x, [i], s), x, rows, source[0, :1, :1], taken=not is_wide)
    number = numbers((1,), dtype, 3)[0]
    for mask in (x > 0, x[:, :, 0] > 0, x[:, 0, 0] > 9):
        check(lambda x, m, n: aten.index_put.default(x, [m], n), x, mask, number)
        if not dtype.is_floating_point or mask.dim() == 3:
            check(lambda x, m, n: aten.index_put.default(x, [m], n), x.expand(5, 3, 4), mask, number.view(1))
    # Sums and what lies behind other dims stay with torch.
    check(lambda x, i, s: aten.index_put.default(x, [i], s, True), x, rows, source[:4], taken=False)
    check(lambda x, i, s: aten.index_put.default(x, [None, i], s), x, rows % 3, source[0, 0], taken=False)
    check(lambda x, i, s: aten.index_put.default(x, [i, i % 3], s), x, rows % 3, source[:4, 0], taken=False)
    line = x[:, 0, 0]
    check(lambda x, m, s: aten.index_put.default(x, [m], s), x, line > 0, source[: (line > 0).sum()], taken=False)


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_signs(dtype):
    for shape in SHAPES:
        check(torch.sign, numbers(shape, dtype))
    if dtype.is_floating_point:
        check(torch.sign, torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf")], dtype=dtype), strides=True)
    check(torch.sign, numbers((3,), torch.bool), taken=False)


@pytest.mark.parametrize("bounds", ((0, 3), (-2, 5), (0, 1)))
@pytest.mark.parametrize("bins", (1, 4, 7))
def test_counts_of_bins(bins, bounds):
    least, most = bounds
    extremes = torch.tensor([float("nan"), float("inf"), -float("inf"), least, most, most + 1])
    for x in (numbers((60, 5), torch.float32), torch.arange(-9, 9).float(), extremes, torch.empty(0)):
        check(lambda x: torch.histc(x, bins, least, most), x)
    # Bounds that are data, other types and many bins stay with torch.
    check(lambda x: torch.histc(x, bins), numbers((60,), torch.float32), taken=False)
    check(lambda x: torch.histc(x, bins, least, most), numbers((60,), torch.float64), taken=False)
    check(lambda x: torch.histc(x, 2000, least, most), numbers((600,), torch.float32), taken=False)


def test_every_row_is_tested():
    tested = {*UNARY, *POSITIVE, *BINARY, *BITS, *(op for op, *_ in OTHERS), aten.bitwise_not.default}
    tested |= {aten._to_copy.default, prims.convert_element_type.default, aten.embedding_dense_backward.default}
    tested |= {aten.embedding.default, aten.gather.default, aten.index_select.default, aten.index.Tensor}
    tested |= {aten.sort.default, aten.sort.stable, aten.remainder.Tensor, aten.remainder.Scalar}
    tested |= {aten.scatter.src, aten.index_put.default}
    tested |= {aten.floor_divide.default, aten.div.Tensor_mode, aten.div.Scalar_mode}
    # Attention, pools, convolutions, norms of batches and products of groups have tests of their own.
    names = {str(op) for op in set(_aten.ROWS) - tested}
    elsewhere = ("scaled_dot_product", "flex_attention", "_pool", "convolution", "batch_norm", "grouped_mm")
    assert all(any(part in name for part in elsewhere) for name in names), names
