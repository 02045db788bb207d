"""Pools against torch."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check, run

aten = torch.ops.aten
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def numbers(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}


#: Kernel, stride, padding, dilation.
POOLS = ((2, None, 0, 1), (3, 2, 1, 1), ((2, 3), (1, 2), (1, 0), 1), (2, 1, 0, 2))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_pool(dtype):
    x = numbers((2, 3, 9, 8), dtype)
    x[0, 0, 0, 0] = float("nan")
    for kernel, stride, padding, dilation in POOLS:
        for ceil in (False, True):

            def function(x):
                return torch.nn.functional.max_pool2d(x, kernel, stride, padding, dilation, ceil)

            check(function, x)
            check(function, x[0])


def test_image_whose_channels_are_neighbours():
    x = numbers((2, 8, 6, 5)).to(memory_format=torch.channels_last)
    check(lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1), x, strides=True)
    check(lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1), x, strides=True)


def test_max_pool_in_other_dims():
    check(lambda x: torch.nn.functional.max_pool1d(x, 3, 2), numbers((2, 4, 11)))
    check(lambda x: torch.nn.functional.max_pool3d(x, 2, 2), numbers((2, 4, 6, 5, 4)))


def test_places_of_a_max_pool_stay_with_torch():
    x = numbers((2, 3, 8, 8))
    results, program = run(lambda x: aten.max_pool2d_with_indices.default(x, [2, 2]), x)
    assert "the places" in next(iter(program.reasons.values()))
    torch.testing.assert_close(list(results), list(aten.max_pool2d_with_indices.default(x, [2, 2])))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_places_of_many_channels(dtype):
    """Those of equal elements and of NaN as torch finds them in the image as it lies, with its strides."""
    x = numbers((2, 32, 28, 28), dtype).mul(2).round()
    x[0, 0, :3, :3] = float("nan")
    for more in (([2, 2],), ([3, 3], [2, 2], [1, 1]), ([3, 2], [1, 2], [0, 1], [2, 1], True)):
        for given in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3)):
            check(lambda x: aten.max_pool2d_with_indices.default(x, *more), given, taken=False, strides=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_avg_pool(dtype):
    x = numbers((2, 3, 9, 8), dtype)
    for (kernel, stride, padding, _), counts in itertools.product(POOLS[:3], (False, True)):

        def function(x):
            return torch.nn.functional.avg_pool2d(x, kernel, stride, padding, count_include_pad=counts)

        check(function, x, **tolerance(dtype))
        check(function, x[0], **tolerance(dtype))


def test_avg_pool_in_other_dims():
    check(lambda x: torch.nn.functional.avg_pool1d(x, 3, 2), numbers((2, 4, 11)))
    check(lambda x: torch.nn.functional.avg_pool3d(x, 2, 2), numbers((2, 4, 6, 5, 4)))
    check(lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (4, 2)), numbers((2, 4, 8, 6)))


def test_means_by_another_number_stay_with_torch():
    x = numbers((2, 3, 8, 8))
    functional = torch.nn.functional
    for function in (
        lambda x: functional.avg_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: functional.avg_pool2d(x, 3, 2, divisor_override=2),
        lambda x: functional.adaptive_avg_pool2d(x, (3, 5)),
    ):
        check(function, x, taken=False)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradient_of_avg_pool(dtype):
    x = numbers((2, 3, 9, 8), dtype)
    for (kernel, stride, padding, _), counts in itertools.product(POOLS[:3], (False, True)):
        result = torch.nn.functional.avg_pool2d(x, kernel, stride, padding, count_include_pad=counts)
        more = kernel if isinstance(kernel, tuple) else [kernel], stride or [], padding, False, counts, None

        def function(grad, x):
            return aten.avg_pool2d_backward.default(grad, x, *(listed(one) for one in more))

        check(function, numbers(result.shape, dtype, 1), x, **tolerance(dtype))


def listed(given):
    return [given] if isinstance(given, int) and not isinstance(given, bool) else given
