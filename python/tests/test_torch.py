"""Tensors of torch come in and out without a copy."""

import numpy as np
import pytest

import sterna

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "float8_e5m2",
     "float8_e4m3fn"],
)  # fmt: skip
def test_types(dtype):
    dtype = getattr(torch, dtype)
    x, y = (torch.randint(0, 2, (3, 4), generator=torch.manual_seed(seed)).to(dtype) for seed in range(2))
    cond = torch.rand(3, 4) < 0.5
    out = torch.empty_like(x)
    assert sterna.select(cond, x, y, out=out) is out
    assert torch.equal(out.view(torch.uint8), torch.where(cond, x, y).view(torch.uint8))


def test_strides_and_scalars():
    x = torch.arange(12.0).reshape(3, 4)
    cond = torch.tensor([True, False, True])
    assert sterna.select(cond, x.T, -1.0).tolist() == torch.where(cond, x.T, torch.tensor(-1.0)).tolist()
    out = torch.zeros(4, 6)
    sterna.select(cond, x.T, -1.0, out=out[:, ::2])
    assert torch.equal(out[:, ::2], torch.where(cond, x.T, -1.0))
    assert sterna.select(torch.tensor(True), torch.tensor(2.0), 0.0) == 2.0


def test_attention():
    q, k, v = (torch.randn(2, 3, 65, 16, generator=torch.manual_seed(seed)) for seed in range(3))
    mask = torch.rand(2, 1, 65, 65, generator=torch.manual_seed(4)) < 0.8
    out = torch.empty_like(q)
    for options, of_torch in [
        ({}, {}),
        ({"mask": mask}, {"attn_mask": mask}),
        ({"mask": mask.float()}, {"attn_mask": mask.float()}),
        ({"causal": True}, {"is_causal": True}),
    ]:
        sterna.attention(q, k, v, out=out, **options)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, **of_torch)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    halves = [x.bfloat16() for x in (q, k, v)]
    out = torch.empty_like(halves[0])
    sterna.attention(*halves, causal=True, out=out)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(out.float(), expected, atol=3e-2, rtol=3e-2)


def test_sessions_and_types_by_torch_dtypes():
    g = sterna.GraphBuilder()
    g.output("y", g.relu(g.input("x", torch.bfloat16, [None])))
    x = torch.tensor([-1.0, 2.0]).bfloat16()
    out = torch.empty(2, dtype=torch.bfloat16)
    assert g.build().session().run({"x": x}, out={"y": out})["y"] is out
    assert out.tolist() == [0.0, 2.0]


def test_what_does_not_lie_in_memory():
    with pytest.raises(sterna.ArrayError):
        sterna.select([True], torch.empty(1, device="meta"), 0.0)
    with pytest.raises(sterna.ArrayError):
        sterna.select([True], torch.ones(1).to_sparse(), 0.0)
    with pytest.raises(sterna.ArrayError):
        sterna.select([True], torch.zeros(1, dtype=torch.complex64), 0.0)


def test_numpy_and_torch_together():
    x = np.zeros(3, np.float32)
    assert sterna.select(torch.tensor([True, False, True]), x, torch.ones(3)).tolist() == [0, 1, 0]
