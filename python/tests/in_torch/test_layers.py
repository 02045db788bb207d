"""Layers that torch runs as one op without gradients, in parts."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import sterna.torch
from sterna.torch import _backend

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]

PADDING = torch.arange(12)[None] >= torch.tensor([[12], [7]])
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(12)
MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": PADDING},
    "causal": {"mask": CAUSAL, "is_causal": True},
    "window": {"mask": (torch.arange(12)[:, None] - torch.arange(12)).abs() > 3},
    "both": {"mask": CAUSAL, "src_key_padding_mask": PADDING},
}
TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2}}


def targets(function, *given, **more):
    """The results of a compiled function without gradients, and the ops that torch runs."""
    programs = []
    with torch.no_grad(), _backend.watching(lambda _, program: programs.append(program)):
        made = torch.compile(function, backend="sterna")(*given, **more)
    return made, {str(step.call.node.target) for program in programs for step in program.steps if step.call is not None}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_encoders(mask, dtype):
    for norm_first, activation in itertools.product((False, True), ("relu", "gelu")):
        layer = torch.nn.TransformerEncoderLayer(
            32, 4, 64, activation=activation, batch_first=True, norm_first=norm_first
        )
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().to(dtype)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.15)
        x = torch.randn(2, 12, 32).to(dtype)
        found, left = targets(model, x, **MASKS[mask])
        with torch.no_grad():
            torch.testing.assert_close(found, model(x, **MASKS[mask]), **TOLERANCE[dtype])
        assert not left, left
        torch._dynamo.reset()


@pytest.mark.parametrize("mask", ("none", "padding", "causal", "window"))
@pytest.mark.parametrize("shares", (False, True))
def test_attention(mask, shares):
    model = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    names = {"mask": "attn_mask", "src_key_padding_mask": "key_padding_mask", "is_causal": "is_causal"}
    given = {names[name]: one for name, one in MASKS[mask].items()}

    def function(x):
        return model(x, x, x, need_weights=shares, **given)

    x = torch.randn(2, 12, 32)
    found, _ = targets(function, x)
    with torch.no_grad():
        torch.testing.assert_close(found, function(x), rtol=1e-4, atol=1e-5)
