"""Whole models through torch.compile against eager torch: training for twenty steps, and decoding with caches."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import sterna.torch
from test_transformers import MODELS, assert_gradients_near, assert_same_tokens, decoded, inputs_of, result_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]

STEPS = 20
TRAINED = ["bert", "gpt2", "mistral", "t5", "vit"]
DECODED = ["gpt2", "llama", "gemma3"]


def made(name):
    """A model with torch's own attention, without dropout."""
    make, config = MODELS[name]
    own = copy.deepcopy(config)
    own._attn_implementation = "sdpa"
    torch.manual_seed(0)
    return make._from_config(own).eval()


def trained(model, function, name):
    """The losses of the steps of an optimizer, and the gradients of the first one."""
    given, rows = inputs_of(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, gradients = [], None
    for _ in range(STEPS):
        result = result_of(function, given, rows)
        loss = (result - torch.linspace(-1, 1, result.shape[-1])).square().mean()
        loss.backward()
        if gradients is None:
            gradients = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses), gradients


@pytest.mark.parametrize("name", TRAINED)
def test_training(name):
    model = made(name)
    other = copy.deepcopy(model)
    wanted, of_eager = trained(model, model, name)
    found, of_compiled = trained(other, torch.compile(other, backend=sterna.torch.backend), name)
    assert wanted[-1] < 0.9 * wanted[0], "the model learns"
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
    for (parameter, _), one, eager in zip(other.named_parameters(), of_compiled, of_eager, strict=True):
        if eager is None:
            # Compiled code has zeros, whatever the backend.
            assert one is None or not one.any(), parameter
    assert_gradients_near(other, of_compiled, of_eager)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", DECODED)
def test_decoding(name, cache):
    given, _ = inputs_of(name)
    wanted = decoded(made(name), given, cache, 8)
    model = made(name)
    model.forward = torch.compile(model.forward, backend=sterna.torch.backend)
    assert_same_tokens(decoded(model, given, cache, 8), wanted)
