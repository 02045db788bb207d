"""Whole models through torch.compile against eager torch: training for twenty steps, and decoding with caches."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import sterna.torch
from test_transformers import MODELS, assert_near, inputs_of, result_of

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
    largest = max(one.abs().max().item() for one in of_eager if one is not None)
    for (parameter, _), one, eager in zip(other.named_parameters(), of_compiled, of_eager, strict=True):
        if eager is None:
            # Compiled code has zeros, whatever the backend.
            assert one is None or not one.any(), parameter
        else:
            # That of the bias of keys is 0 but for what is rounded.
            bound = 1e-4 * max(eager.abs().max().item(), 1e-2 * largest)
            assert (one - eager).abs().max().item() <= bound, parameter


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", DECODED)
def test_decoding(name, cache):
    given, _ = inputs_of(name)
    options = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    found = []
    for is_compiled in (False, True):
        model = made(name)
        if is_compiled:
            model.forward = torch.compile(model.forward, backend=sterna.torch.backend)
        found.append(
            model.generate(
                **given, max_new_tokens=8, min_new_tokens=8, do_sample=False, num_beams=1, pad_token_id=0,
                return_dict_in_generate=True, output_logits=True, **options,
            )
        )  # fmt: skip
    assert torch.equal(found[1].sequences, found[0].sequences)
    for one, other in zip(found[1].logits, found[0].logits, strict=True):
        assert_near(one, other)
