"""Resizing of images stays one op."""

import pytest

torch = pytest.importorskip("torch")

import sterna.torch


def numbers(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


#: Shape of the image, and how it is resized.
RESIZED = (
    ((2, 3, 7), {"scale_factor": 2.0}),
    ((2, 3, 7), {"size": 5, "mode": "linear"}),
    ((2, 3, 6, 5), {"scale_factor": 2, "mode": "nearest"}),
    ((2, 3, 6, 5), {"scale_factor": 1.5, "mode": "nearest-exact"}),
    ((2, 3, 6, 5), {"size": (9, 4), "mode": "bilinear"}),
    ((2, 3, 6, 5), {"scale_factor": (1.7, 0.6), "mode": "bilinear"}),
    ((2, 3, 6, 5), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
    ((2, 3, 6, 5), {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
    ((2, 3, 6, 5), {"scale_factor": 2, "mode": "bicubic"}),
    ((2, 3, 6, 5), {"size": (3, 10), "mode": "area"}),
    ((2, 3, 8, 8), {"scale_factor": 0.5, "mode": "bilinear", "antialias": True}),
    ((1, 2, 3, 4, 5), {"scale_factor": 2, "mode": "trilinear"}),
)


@pytest.mark.parametrize("case", RESIZED, ids=str)
@pytest.mark.parametrize("is_last", (False, True))
def test_resizing_and_its_gradient(case, is_last):
    shape, how = case
    if is_last and len(shape) != 4:
        pytest.skip("there are no channels to put last")
    torch._dynamo.reset()

    def function(x):
        return torch.nn.functional.interpolate(torch.relu(x), **how).sigmoid()

    compiled = torch.compile(function, backend="sterna")
    memory = torch.channels_last if is_last else torch.contiguous_format
    given = numbers(shape).to(memory_format=memory)
    torch.testing.assert_close(compiled(given), function(given), check_stride=True)
    x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
    compiled(x).square().sum().backward()
    function(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_resizing_of_open_sizes_is_one_op():
    torch._dynamo.reset()
    model = torch.nn.Upsample(scale_factor=2, mode="bilinear")
    compiled = torch.compile(model, backend="sterna", dynamic=True)
    for sizes in ((4, 5), (6, 7), (3, 9)):
        x = numbers((1, 3, *sizes))
        torch.testing.assert_close(compiled(x), model(x))
    explained = sterna.torch.explain(model, numbers((1, 3, 4, 5)))
    assert [one.op for one in explained.graphs[0].kept] == ["sterna.resize"]
