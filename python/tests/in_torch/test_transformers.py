"""Models of transformers with Sterna's attention against their own: prefill, decoding, gradients."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import sterna.torch
from sterna.torch import _transformers

pytestmark = pytest.mark.filterwarnings("ignore")

HEADS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 80}
SMALL = {**HEADS, "intermediate_size": 48}
SHARED = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
WINDOW = {**SHARED, "head_dim": 8, "sliding_window": 8}
PICTURE = {"image_size": 16, "patch_size": 4, **SMALL}
T = transformers

#: A model and its configuration.
DECODERS = {
    "gpt2": (T.GPT2LMHeadModel, T.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=80, n_positions=64)),
    "gpt_neox": (T.GPTNeoXForCausalLM, T.GPTNeoXConfig(**SMALL, max_position_embeddings=64)),
    "llama": (T.LlamaForCausalLM, T.LlamaConfig(**SHARED)),
    "mistral": (T.MistralForCausalLM, T.MistralConfig(**WINDOW)),
    "mixtral": (T.MixtralForCausalLM, T.MixtralConfig(**SHARED, num_local_experts=2)),
    "gemma2": (T.Gemma2ForCausalLM, T.Gemma2Config(**WINDOW, query_pre_attn_scalar=8, attn_logit_softcapping=2.0)),
    "gemma3": (T.Gemma3ForCausalLM, T.Gemma3TextConfig(**WINDOW, query_pre_attn_scalar=8)),
    "qwen3": (T.Qwen3ForCausalLM, T.Qwen3Config(**SHARED, head_dim=8)),
    "phi3": (T.Phi3ForCausalLM, T.Phi3Config(**SHARED)),
    "gpt_oss": (T.GptOssForCausalLM, T.GptOssConfig(**WINDOW, num_local_experts=2, num_experts_per_tok=1)),
}
ENCODERS = {
    "bert": (T.BertModel, T.BertConfig(**SMALL)),
    "distilbert": (T.DistilBertModel, T.DistilBertConfig(dim=32, hidden_dim=48, n_layers=2, n_heads=4, vocab_size=80)),
    "roberta": (T.RobertaModel, T.RobertaConfig(**SMALL)),
    "albert": (T.AlbertModel, T.AlbertConfig(**SMALL, embedding_size=16)),
    "modernbert": (T.ModernBertModel, T.ModernBertConfig(**SMALL, local_attention=8, pad_token_id=0)),
    "vit": (T.ViTModel, T.ViTConfig(**PICTURE)),
    "clip": (T.CLIPTextModel, T.CLIPTextConfig(**SMALL, max_position_embeddings=64)),
    "clip of pictures": (T.CLIPVisionModel, T.CLIPVisionConfig(**PICTURE)),
    "swin": (T.SwinModel, T.SwinConfig(
        image_size=16, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 2], window_size=4, drop_path_rate=0.0,
    )),
}  # fmt: skip
PAIRS = {
    "t5": (T.T5ForConditionalGeneration, T.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=80, dropout_rate=0.0,
        decoder_start_token_id=0,
    )),
    "bart": (T.BartForConditionalGeneration, T.BartConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=80, max_position_embeddings=64,
    )),
    "whisper": (T.WhisperForConditionalGeneration, T.WhisperConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=80, num_mel_bins=8, max_source_positions=24,
        max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )),
}  # fmt: skip
MODELS = {**DECODERS, **ENCODERS, **PAIRS}
#: Models in which transformers has no place for another attention, and how often they call that of torch.
OWN = {
    "bloom": (T.BloomForCausalLM, T.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=80), 0),
    "mpt": (T.MptForCausalLM, T.MptConfig(d_model=32, n_heads=4, n_layers=2, vocab_size=80, max_seq_len=64), 0),
    "falcon": (T.FalconForCausalLM, T.FalconConfig(**HEADS), 2),
    "deberta": (T.DebertaV2Model, T.DebertaV2Config(**HEADS, intermediate_size=48), 0),
}


@pytest.fixture(autouse=True, scope="module")
def registered():
    sterna.torch.register()


class Calls(dict):
    """How often Sterna and torch computed an attention of registered models."""

    def __init__(self, monkeypatch):
        self.update(sterna=0, torch=[])
        before = _transformers.attention

        def counted(*args, **kwargs):
            found = before(*args, **kwargs)
            if isinstance(found, str):
                self["torch"].append(found)
            else:
                self["sterna"] += 1
            return found

        monkeypatch.setattr(_transformers, "attention", counted)


def two(name, dtype=torch.float32):
    """A model with Sterna's attention, and the same one with its own."""
    make, config = MODELS[name]
    torch.manual_seed(0)
    made = []
    for kind in ("sterna", "eager"):
        own = copy.deepcopy(config)
        own._attn_implementation = kind
        model = make._from_config(own).to(dtype).eval()
        if made:
            model.load_state_dict(made[0].state_dict())
        made.append(model)
    with torch.no_grad():
        for parameters in zip(*(model.parameters() for model in made), strict=True):
            # Scores of tiny models are all the same otherwise, and sinks are 0.
            parameters[1].copy_(parameters[0].mul_(3) if parameters[0].dim() > 1 else parameters[0].add_(0.1))
    return made


def inputs_of(name, tokens=20):
    """What a model is called with, and which rows of its result count."""
    torch.manual_seed(1)
    if name in ("vit", "clip of pictures", "swin"):
        return {"pixel_values": torch.randn(2, 3, 16, 16)}, None
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 48), "decoder_input_ids": torch.randint(3, 80, (2, 7))}, None
    padding = torch.ones(2, tokens, dtype=torch.int64)
    padding[1, :6] = 0
    if name not in DECODERS:
        padding = padding.flip(1)
    given = {"input_ids": torch.randint(3, 80, (2, tokens)), "attention_mask": padding}
    if name in PAIRS:
        given["decoder_input_ids"] = torch.randint(3, 80, (2, 7))
        return given, None
    return given, padding.bool()


def result_of(model, given, rows):
    found = model(**given)
    found = found.logits if hasattr(found, "logits") else found.last_hidden_state
    return found if rows is None else found[rows]


def assert_near(found, wanted, tolerance=1e-4):
    """Compares with the largest number of what is wanted."""
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * max(wanted.abs().max().item(), 1e-3))


def assert_gradients_near(model, found, wanted):
    """Compares those of all parameters of a model that have one."""
    largest = max(one.abs().max().item() for one in wanted if one is not None)
    for (parameter, _), one, other in zip(model.named_parameters(), found, wanted, strict=True):
        if other is not None:
            # That of the bias of keys is 0 but for what is rounded.
            bound = 1e-4 * max(other.abs().max().item(), 1e-2 * largest)
            assert (one - other).abs().max().item() <= bound, parameter


def decoded(model, given, cache, tokens):
    """The tokens that a model finds, and their logits."""
    options = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    return model.generate(
        **given, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, num_beams=1, pad_token_id=0,
        return_dict_in_generate=True, output_logits=True, **options,
    )  # fmt: skip


def assert_same_tokens(found, wanted):
    assert torch.equal(found.sequences, wanted.sequences)
    for one, other in zip(found.logits, wanted.logits, strict=True):
        assert_near(one, other)


@pytest.mark.parametrize("name", MODELS)
def test_prefill(name, monkeypatch):
    calls = Calls(monkeypatch)
    ours, theirs = two(name)
    given, rows = inputs_of(name)
    with torch.no_grad():
        assert_near(result_of(ours, given, rows), result_of(theirs, given, rows))
        if "attention_mask" in given:
            # Without padding, causality is all that there is.
            del given["attention_mask"]
            assert_near(result_of(ours, given, None), result_of(theirs, given, None))
        exact = result_of(theirs, given, None)
        ours, theirs = ours.bfloat16(), theirs.bfloat16()
        given = {name: one.bfloat16() if one.is_floating_point() else one for name, one in given.items()}
        errors = [(result_of(model, given, None) - exact).abs() for model in (ours, theirs)]
        assert errors[0].mean() <= 1.25 * errors[1].mean()
    assert calls["sterna"] > 0 and not calls["torch"], calls


@pytest.mark.parametrize("name", MODELS)
def test_backward(name, monkeypatch):
    calls = Calls(monkeypatch)
    ours, theirs = two(name)
    given, rows = inputs_of(name)
    for model in (ours, theirs):
        result = result_of(model, given, rows)
        (result * torch.linspace(-1, 1, result.shape[-1])).sum().backward()
    found, wanted = ([one.grad for one in model.parameters()] for model in (ours, theirs))
    assert [one is None for one in found] == [one is None for one in wanted]
    assert_gradients_near(ours, found, wanted)
    assert calls["sterna"] > 0 and not calls["torch"], calls


#: Models of two parts have a cache for each.
DECODED = [*((name, "dynamic") for name in [*DECODERS, "t5", "bart"]), *((name, "static") for name in DECODERS)]


@pytest.mark.parametrize(("name", "cache"), DECODED)
def test_decoding(name, cache, monkeypatch):
    calls = Calls(monkeypatch)
    given, _ = inputs_of(name)
    given.pop("decoder_input_ids", None)
    ours, theirs = (decoded(model, given, cache, 5) for model in two(name))
    assert_same_tokens(ours, theirs)
    assert calls["sterna"] > 0 and not calls["torch"], calls


@pytest.mark.parametrize("name", OWN)
def test_models_with_an_attention_of_their_own(name):
    make, config, calls = OWN[name]
    torch.manual_seed(0)
    config._attn_implementation = "sdpa" if calls else "eager"
    model = make._from_config(config).eval()
    given, rows = inputs_of("llama")
    with torch.no_grad():
        wanted = result_of(model, given, rows)
        with sterna.torch.sdpa() as block:
            assert_near(result_of(model, given, rows), wanted)
    assert block.taken == calls and not block.left


def test_dropout_stays_with_torch(monkeypatch):
    calls = Calls(monkeypatch)
    ours, _ = two("bert")
    given, _ = inputs_of("bert")
    ours.train()(**given).last_hidden_state.sum().backward()
    assert calls == {"sterna": 0, "torch": []}


def test_compiled_code_stays_with_its_compiler(monkeypatch):
    calls = Calls(monkeypatch)
    # One with caps, which torch's own attention does not have.
    ours, theirs = two("gemma2")
    given, rows = inputs_of("gemma2")
    with torch.no_grad():
        compiled = torch.compile(ours, backend="aot_eager")
        assert_near(result_of(compiled, given, rows), result_of(theirs, given, rows))
    assert calls == {"sterna": 0, "torch": []}


def test_other_names():
    sterna.torch.register("other")
    _, config = MODELS["llama"]
    own = copy.deepcopy(config)
    own._attn_implementation = "other"
    assert T.LlamaForCausalLM._from_config(own).config._attn_implementation == "other"
