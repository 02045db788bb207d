"""Products of groups of rows, whose sizes are data, against products of each group in torch."""

import pytest

torch = pytest.importorskip("torch")

import sterna.torch
from sterna.torch import _backend, _grouped

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]

TYPES = (torch.float32, torch.bfloat16, torch.float16)
#: Ends of groups: empty ones first, within and last, rows behind the last one, and all rows in one.
ENDS = [(40, 40, 93, 100), (0, 3, 3, 3), (0, 0, 0, 0), (1, 2, 50, 100), (0, 0, 100, 100), (17, 33, 65, 100)]


def by_group(x, weights, ends):
    out, start = x.new_zeros(x.shape[0], weights.shape[2]), 0
    for weight, end in zip(weights, ends, strict=True):
        out[start:end] = x[start:end] @ weight
        start = end
    return out


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("transposed", (False, True))
def test_rows(ends, dtype, transposed):
    x, offsets = torch.randn(100, 24).to(dtype), torch.tensor(ends, dtype=torch.int32)
    weights = torch.randn(4, 16, 24).to(dtype).transpose(1, 2) if transposed else torch.randn(4, 24, 16).to(dtype)
    tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 6e-2}
    torch.testing.assert_close(_grouped.of_experts(x, weights, offsets), by_group(x, weights, ends), **tolerance)
    torch.testing.assert_close(_grouped.of_aten(x, weights, offsets), by_group(x, weights, ends), **tolerance)
    grad = torch.randn(100, 16).to(dtype)
    of_rows, of_weights = _grouped.of_experts_backward(x, weights, offsets, grad)
    torch.testing.assert_close(of_rows, by_group(grad, weights.transpose(1, 2), ends), **tolerance)
    starts = (0, *ends[:-1])
    wanted = [x[a:b].T.float() @ grad[a:b].float() for a, b in zip(starts, ends, strict=True)]
    assert of_weights.stride() == weights.stride()
    torch.testing.assert_close(of_weights.float(), torch.stack(wanted), rtol=2e-2, atol=2e-1)


def test_other_forms_stay_with_torch():
    x, offsets = torch.randn(10, 16, dtype=torch.float64), torch.tensor([4, 10], dtype=torch.int32)
    with pytest.raises(RuntimeError):
        _grouped.of_aten(x, torch.randn(2, 16, 8, dtype=torch.float64), offsets)
    x, y = torch.randn(2, 4, 16, dtype=torch.bfloat16), torch.randn(2, 16, 8, dtype=torch.bfloat16)
    torch.testing.assert_close(_grouped.of_aten(x, y), torch._grouped_mm(x, y))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_experts_of_a_model(dtype):
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50, num_local_experts=4, pad_token_id=None,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config).to(dtype).eval()
    ids = torch.randint(0, 50, (2, 40))
    programs = []
    with _backend.watching(lambda _, program: programs.append(program)):
        compiled = torch.compile(model, backend="sterna")
        tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
        with torch.no_grad():
            # Other tokens have groups of other sizes.
            for given in (ids, ids.flip(0).roll(7, 1)):
                torch.testing.assert_close(compiled(given).logits, model(given).logits, **tolerance)
    called = [step.call.function for step in programs[0].steps if step.call is not None]
    assert sum(function in _grouped.CALLS.values() for function in called) == 4
    with torch.no_grad():
        found = sterna.torch.explain(model, ids)
    assert found.share == 1 and not any("grouped" in part.op for graph in found.graphs for part in graph.kept)
    alone = [part for graph in found.graphs for part in graph.partitions if "grouped_mm" in part.ops[0]]
    assert len(alone) == 4 and all(part.flops > 0 for part in alone)
