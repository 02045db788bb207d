"""Convolutions and their gradients against torch."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import sterna.torch  # noqa: F401
from torch_harness import check, run

aten = torch.ops.aten
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def numbers(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 2e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 8e-2}


#: Image, kernel, channels of the result, stride, padding, dilation, groups.
LAYERS = (
    ((2, 6, 9), (3,), 8, 1, 1, 1, 1),
    ((2, 6, 20), (5,), 8, 2, 4, 2, 2),
    ((2, 6, 9, 8), (3, 3), 8, 1, 1, 1, 1),
    ((2, 6, 9, 8), (1, 1), 8, 1, 0, 1, 1),
    ((2, 6, 9, 8), (1, 1), 8, 2, 0, 1, 1),
    ((2, 3, 16, 16), (4, 4), 8, 4, 0, 1, 1),
    ((2, 6, 9, 8), (3, 2), 9, (2, 1), (1, 0), (1, 2), 3),
    ((2, 6, 9, 8), (3, 3), 6, 1, 1, 1, 6),
    ((2, 6, 9, 8), (7, 7), 12, 2, 3, 1, 6),
    ((1, 4, 5, 6, 7), (3, 3, 3), 8, 1, 1, 1, 1),
    ((1, 4, 5, 6, 7), (3, 1, 2), 8, (1, 2, 1), (1, 0, 0), 1, 2),
)


def listed(given, count):
    return list(given) if isinstance(given, tuple) else [given] * count


def layer(case, dtype, transposed=False, seed=1):
    """Image, weights and bias of a layer, and the arguments of `convolution` behind these."""
    image, kernel, to, *numbers_of, groups = case
    stride, padding, dilation = (listed(one, len(kernel)) for one in numbers_of)
    own = (image[1], to // groups) if transposed else (to, image[1] // groups)
    more = [0] * len(kernel)
    if transposed:
        more[-1] = int(stride[-1] > 1)
    tensors = numbers(image, dtype, seed), numbers((*own, *kernel), dtype, seed + 1), numbers((to,), dtype, seed + 2)
    return tensors, (stride, padding, dilation, transposed, more, groups)


def layouts(tensors):
    """Tensors as they are, and with their channels as neighbours."""
    rank = tensors[0].dim() - 2
    yield tensors
    if rank in LAST:
        yield tuple(one.contiguous(memory_format=LAST[rank]) if one.dim() > 2 else one for one in tensors)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("transposed", (False, True))
def test_layers(dtype, transposed, taken):
    for case in LAYERS:
        tensors, more = layer(case, dtype, transposed)
        for x, weight, bias in layouts(tensors):
            for one in (bias, None):
                given = (x, weight) if one is None else (x, weight, one)
                function = lambda *given: aten.convolution.default(*given, *([None] * (3 - len(given))), *more)
                check(function, *given, strides=True, **tolerance(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("transposed", (False, True))
@pytest.mark.parametrize("wanted", ((True, True, True), (False, True, True), (True, False, False), (False, True, False)), ids=str)
def test_gradients(dtype, transposed, wanted, taken):
    for case in LAYERS:
        tensors, more = layer(case, dtype, transposed)
        grad = numbers(aten.convolution.default(*tensors, *more).shape, dtype, 9)
        for grad, x, weight in layouts((grad, *tensors[:2])):
            given = [[case[2]], *more, list(wanted)]
            function = lambda grad, x, weight: aten.convolution_backward.default(grad, x, weight, *given)
            check(function, grad, x, weight, **tolerance(dtype))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("padding", ("same", "valid"))
def test_padding_by_name(padding, taken):
    for kernel, dilation in itertools.product((3, 4, (1, 2)), (1, 2)):
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        weight = numbers((5, 4, *sides), seed=2)
        function = lambda x, weight: torch.nn.functional.conv2d(x, weight, None, 1, padding, dilation)
        check(function, numbers((2, 4, 9, 8)), weight, **tolerance(torch.float32))


def test_strides_of_views(taken):
    """An image that is a part of another one, turned, or the same for a batch."""
    weight = numbers((5, 4, 3, 3), seed=2)
    function = lambda x, weight: torch.nn.functional.conv2d(x, weight, None, 1, 1)
    images = (
        numbers((2, 9, 11, 10))[:, 2:6, 1:, ::2],
        numbers((2, 4, 9, 8)).transpose(2, 3),
        numbers((1, 4, 9, 8)).expand(3, 4, 9, 8),
        numbers((4, 2, 9, 8)).transpose(0, 1),
    )
    for x in images:
        check(function, x, weight, **tolerance(torch.float32))
        check(function, x, weight.transpose(2, 3), **tolerance(torch.float32))


def test_image_without_batch_and_empty_batch(taken):
    weight = numbers((5, 4, 3, 3), seed=2)
    function = lambda x, weight: torch.nn.functional.conv2d(x, weight, None, 1, 1)
    check(function, numbers((4, 9, 8)), weight, **tolerance(torch.float32))
    check(function, numbers((0, 4, 9, 8)), weight, taken=False)
    x, grad = numbers((0, 4, 9, 8)), numbers((0, 5, 9, 8))
    more = [[5], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]]
    check(lambda grad, x, weight: aten.convolution_backward.default(grad, x, weight, *more), grad, x, weight, taken=False)


def test_ops_around_a_convolution_are_one_partition_with_it(taken):
    x, weight, bias = numbers((2, 8, 9, 8)), numbers((8, 8, 3, 3), seed=2), numbers((8,), seed=3)
    function = lambda x, weight, bias: torch.relu(torch.nn.functional.conv2d(x, weight, bias, 1, 1) + x)
    for tensors in layouts((x, weight, bias)):
        program = check(function, *tensors, strides=True, **tolerance(torch.float32))
        assert len(program.steps) == 1


def test_other_types_stay_with_torch(taken):
    x, weight = numbers((2, 4, 9, 8), torch.float64), numbers((5, 4, 3, 3), torch.float64)
    function = lambda x, weight: torch.nn.functional.conv2d(x, weight)
    assert "f64" in next(iter(check(function, x, weight, taken=False).reasons.values()))


def test_errors_are_those_of_torch():
    with pytest.raises(RuntimeError):
        run(lambda x, weight: (torch.nn.functional.conv2d(x, weight),), numbers((2, 4, 2, 2)), numbers((5, 4, 3, 3)))


#: Image, kernel, channels of the result, stride, groups, and which of result, gradient of data and gradient of weights
#: are taken with channels apart and together.
TAKEN = (
    ((1, 64, 8, 8), (3, 3), 64, 1, 1, "yyn", "yyn"),
    ((1, 256, 8, 8), (3, 3), 64, 1, 1, "yyn", "yyy"),
    ((1, 256, 8, 8), (3, 3), 256, 1, 4, "yyn", "yyy"),
    ((1, 64, 8, 8), (1, 1), 16, 1, 1, "yyy", "yyy"),
    ((1, 64, 8, 8), (3, 3), 16, 1, 1, "nyn", "nyn"),
    ((1, 3, 8, 8), (3, 3), 64, 1, 1, "ynn", "ynn"),
    ((1, 64, 8, 8), (3, 3), 64, 1, 4, "nnn", "nnn"),
    ((1, 64, 8, 8), (3, 3), 64, 1, 8, "yyy", "yyy"),
    ((1, 64, 8, 8), (3, 3), 64, 1, 64, "yyn", "yyn"),
    ((1, 128, 8, 8), (3, 3), 128, 1, 128, "yyy", "yyy"),
    ((1, 64, 8, 8), (7, 7), 64, 1, 64, "nny", "nny"),
    ((1, 64, 8, 8), (7, 7), 64, 2, 64, "yyy", "yyy"),
    ((1, 256, 6, 6), (2, 2), 512, 2, 1, "ynn", "yny"),
    ((1, 64, 50), (3,), 64, 1, 1, "yyn", None),
    ((1, 4, 5, 6, 7), (3, 3, 3), 8, 1, 1, "yyy", "yyy"),
)


@pytest.mark.parametrize("case", TAKEN, ids=str)
def test_what_torch_is_faster_at_stays_there(case):
    *shape, stride, groups, apart, together = case
    (x, weight, bias), more = layer((*shape, stride, shape[1][0] // 2, 1, groups), torch.float32)
    for (x, weight), told in zip(layouts((x, weight)), (apart, together)):
        grad = torch.empty_like(aten.convolution.default(x, weight, bias, *more))
        masks = [True, False, False], [False, True, True]
        back = lambda mask: lambda grad, x, weight: aten.convolution_backward.default(grad, x, weight, [shape[2]], *more, mask)
        programs = [run(lambda x, weight: (aten.convolution.default(x, weight, None, *more),), x, weight)[1]]
        programs += [run(back(mask), grad, x, weight)[1] for mask in masks]
        assert "".join("n" if program.reasons else "y" for program in programs) == told


def test_weights_of_strides_that_change_stay_with_torch():
    x, weight = numbers((1, 128, 4, 4)), numbers((128, 64, 4, 4), seed=2)
    function = lambda x, weight: torch.nn.functional.conv_transpose2d(x, weight, None, 2, 1)
    assert "strides" in next(iter(check(function, x, weight, taken=False, **tolerance(torch.float32)).reasons.values()))
    # A parameter is packed once.
    check(function, x, torch.nn.Parameter(weight, requires_grad=False), **tolerance(torch.float32))
