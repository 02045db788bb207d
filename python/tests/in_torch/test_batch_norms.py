"""Norms of batches against torch."""

import pytest

torch = pytest.importorskip("torch")

import sterna.torch  # noqa: F401
from torch_harness import check, run

aten = torch.ops.aten
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((4, 6), (4, 6, 9), (3, 6, 5, 7), (2, 6, 3, 4, 5), (1, 6, 4, 4))


def numbers(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}


def images(dtype, seed=0):
    """Images of each shape, those with two spatial dims also with their channels as neighbours."""
    for shape in SHAPES:
        x = numbers(shape, dtype, seed) * 2 + 1
        yield x
        if len(shape) == 4:
            yield x.contiguous(memory_format=torch.channels_last)


def stats(dtype):
    """Weight, bias, running mean and running variance."""
    return numbers((6,), dtype, 1), numbers((6,), dtype, 2), numbers((6,), dtype, 3), numbers((6,), dtype, 4).abs() + 0.5


#: The types of images and of what there is for channels.
PAIRS = [(dtype, dtype) for dtype in FLOATS[:2]] + [(dtype, torch.float32) for dtype in FLOATS[1:]]


@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
def test_inference(dtypes):
    weight, bias, mean, variance = stats(dtypes[1])
    op = aten._native_batch_norm_legit_no_training.default
    for x in images(dtypes[0]):
        settings = {"taken": x.is_contiguous(), "strides": True, **tolerance(dtypes[0])}
        check(lambda *given: op(*given, 0.1, 1e-3)[0], x, weight, bias, mean, variance, **settings)
        check(lambda *given: op(given[0], None, None, *given[1:], 0.1, 1e-3)[0], x, mean, variance, **settings)


@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
def test_training(dtypes):
    weight, bias, mean, variance = stats(dtypes[1])
    op, bare = aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.no_stats
    near = tolerance(dtypes[0])
    functions = (
        (lambda *given: op(*given, True, 0.1, 1e-3), (weight, bias, mean, variance)),
        (lambda *given: op(given[0], None, None, *given[1:], True, 0.3, 1e-3), (mean, variance)),
        (lambda *given: bare(*given, True, 0.1, 1e-3), (weight, bias)),
        (lambda x: bare(x, None, None, True, 0.1, 1e-3), ()),
    )
    for x in images(dtypes[0]):
        # torch is faster at others.
        taken = dtypes[0] == torch.float32 and x.is_contiguous()
        for function, given in functions:
            program = check(function, x, *given, taken=taken, strides=True, **near)
            assert taken or program.reasons
            # Types are those that torch gives, which it traces with others.
            results, _ = run(function, x, *given)
            assert [one.dtype for one in results] == [one.dtype for one in function(x, *given)]


def test_many_channels_that_are_neighbours():
    x = numbers((2, 64, 5, 5)).contiguous(memory_format=torch.channels_last)
    given = [numbers((64,), seed=seed).abs() + 0.5 for seed in range(4)]
    op, fixed = aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default
    check(lambda *given: op(*given, True, 0.1, 1e-3), x, *given, strides=True, **tolerance(torch.float32))
    check(lambda *given: fixed(*given, 0.1, 1e-3)[0], x, *given, strides=True, **tolerance(torch.float32))


@pytest.mark.parametrize("is_training", (False, True))
@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
def test_gradients(dtypes, is_training):
    """Those stay with torch, and get what it saves."""
    for shape in SHAPES[:3]:
        models = [torch.nn.BatchNorm1d(6) if len(shape) < 4 else torch.nn.BatchNorm2d(6) for _ in range(2)]
        torch._dynamo.reset()
        results = []
        for model, way in zip(models, (lambda one: one, lambda one: torch.compile(one, backend="sterna"))):
            model.to(dtypes[1]).train(is_training)
            model.running_var.fill_(2)
            x = (numbers(shape, dtypes[0]) + 1).requires_grad_()
            y = torch.relu(way(model)(x))
            y.backward(numbers(shape, dtypes[0], 5))
            results.append([y, x.grad, model.weight.grad, model.bias.grad, model.running_mean, model.running_var])
        torch.testing.assert_close(*results, **tolerance(dtypes[0]))


def test_norm_of_no_elements_stays_with_torch():
    weight, bias, mean, variance = stats(torch.float32)
    op = aten._native_batch_norm_legit_no_training.default
    check(lambda *given: op(*given, 0.1, 1e-3)[0], numbers((0, 6, 3, 3)), weight, bias, mean, variance, taken=False)
