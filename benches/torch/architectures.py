"""Architectures of transformers and torch.nn with random weights, a row each: how the model is made, and what it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf


@dataclass(frozen=True)
class Scale:
    """How large the models are."""

    hidden: int
    heads: int
    layers: int
    tokens: int
    vocabulary: int = 1000

    @property
    def inner(self) -> int:
        return 4 * self.hidden


#: A model of tests, one whose time says something, and one of many tokens, where windows do.
SMALL = Scale(hidden=64, heads=4, layers=2, tokens=24, vocabulary=99)
FULL = Scale(hidden=512, heads=8, layers=4, tokens=256)
LONG = Scale(hidden=512, heads=8, layers=4, tokens=2048)
SCALES = {"small": SMALL, "full": FULL, "long": LONG}


@dataclass(frozen=True)
class Architecture:
    """A model as a function of its scale."""

    model: Callable[[Scale], torch.nn.Module]
    #: The kind of inputs, as `inputs` knows them.
    inputs: str


def usual(s: Scale) -> dict[str, Any]:
    return {
        "hidden_size": s.hidden,
        "num_attention_heads": s.heads,
        "num_hidden_layers": s.layers,
        "intermediate_size": s.inner,
        "vocab_size": s.vocabulary,
        "max_position_embeddings": max(512, s.tokens),
    }


def of(
    model: Any, config: Any, inputs: str, names: dict[str, str | None] | None = None, **options: Any
) -> Architecture:
    """A model by its configuration, which may have the usual options by other names, or not at all; options that are
    functions get the scale."""

    def make(s: Scale) -> torch.nn.Module:
        named = {(names or {}).get(name, name): value for name, value in usual(s).items()}
        named |= {name: value(s) if callable(value) else value for name, value in options.items()}
        named.pop(None, None)
        torch.manual_seed(0)
        made: torch.nn.Module = model(config(**named)).eval()
        return made

    return Architecture(make, inputs)


def decoder(model: Any, config: Any, **options: Any) -> Architecture:
    """A decoder whose keys are shared by two queries, without a token that stands for padding."""
    shared: dict[str, Any] = {"num_key_value_heads": lambda s: s.heads // 2, "pad_token_id": None}
    return of(model, config, "decoder", **shared, **options)


def named(hidden: str, heads: str, layers: str, inner: str | None = None) -> dict[str, str | None]:
    """The usual options by other names, without the number of positions."""
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "intermediate_size": inner,
        "max_position_embeddings": None,
    }


def pairs(s: Scale) -> dict[str, Any]:
    """The options of an encoder and a decoder."""
    return {
        "d_model": s.hidden,
        "encoder_layers": s.layers,
        "decoder_layers": s.layers,
        "encoder_attention_heads": s.heads,
        "decoder_attention_heads": s.heads,
        "encoder_ffn_dim": s.inner,
        "decoder_ffn_dim": s.inner,
        "vocab_size": s.vocabulary,
        "pad_token_id": 1,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "decoder_start_token_id": 2,
    }


def bart(s: Scale) -> torch.nn.Module:
    torch.manual_seed(0)
    return hf.BartForConditionalGeneration(hf.BartConfig(**pairs(s), max_position_embeddings=512)).eval()


def whisper(s: Scale) -> torch.nn.Module:
    torch.manual_seed(0)
    config = hf.WhisperConfig(**pairs(s), max_source_positions=s.tokens, max_target_positions=512, num_mel_bins=16)
    return hf.WhisperForConditionalGeneration(config).eval()


def clip(s: Scale) -> torch.nn.Module:
    torch.manual_seed(0)
    text = {**usual(s), "max_position_embeddings": s.tokens, "bos_token_id": 1, "eos_token_id": 2}
    vision = {**usual(s), "image_size": 64, "patch_size": 8}
    return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision)).eval()


def swin(s: Scale) -> torch.nn.Module:
    torch.manual_seed(0)
    config = hf.SwinConfig(image_size=64, patch_size=2, window_size=4, embed_dim=s.hidden // 4, depths=[2, 2], num_heads=[4, 8])
    return hf.SwinModel(config).eval()


def torch_encoder(s: Scale) -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(s.hidden, s.heads, s.inner, dropout=0.1, batch_first=True)
    return torch.nn.TransformerEncoder(layer, s.layers, enable_nested_tensor=False).eval()


def head_size(s: Scale) -> int:
    return s.hidden // s.heads


ARCHITECTURES: dict[str, Architecture] = {
    "bert": of(hf.BertModel, hf.BertConfig, "encoder"),
    "distilbert": of(
        hf.DistilBertModel, hf.DistilBertConfig, "encoder", named("dim", "n_heads", "n_layers", "hidden_dim"),
    ),
    "roberta": of(hf.RobertaModel, hf.RobertaConfig, "encoder"),
    "deberta-v2": of(
        hf.DebertaV2Model, hf.DebertaV2Config, "encoder",
        relative_attention=True, pos_att_type=lambda _: ["c2p", "p2c"], position_buckets=32,
        norm_rel_ebd="layer_norm", share_att_key=True,
    ),
    "albert": of(hf.AlbertModel, hf.AlbertConfig, "encoder", embedding_size=lambda s: s.hidden // 2),
    "modernbert": of(
        hf.ModernBertModel, hf.ModernBertConfig, "encoder",
        pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
        local_attention=lambda s: s.tokens // 4, global_attn_every_n_layers=2,
    ),
    "gpt2": of(hf.GPT2LMHeadModel, hf.GPT2Config, "decoder", named("n_embd", "n_head", "n_layer")),
    "gpt-neox": of(hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig, "decoder"),
    "llama": decoder(hf.LlamaForCausalLM, hf.LlamaConfig),
    "mistral": decoder(
        hf.MistralForCausalLM, hf.MistralConfig, sliding_window=lambda s: s.tokens // 4,
    ),
    "gemma2": decoder(
        hf.Gemma2ForCausalLM, hf.Gemma2Config,
        sliding_window=lambda s: s.tokens // 4, head_dim=head_size,
    ),
    "gemma3": decoder(
        hf.Gemma3ForCausalLM, hf.Gemma3TextConfig,
        sliding_window=lambda s: s.tokens // 4, head_dim=head_size,
    ),
    "qwen3": decoder(hf.Qwen3ForCausalLM, hf.Qwen3Config, head_dim=head_size),
    "phi3": decoder(hf.Phi3ForCausalLM, hf.Phi3Config),
    "falcon": of(hf.FalconForCausalLM, hf.FalconConfig, "decoder", new_decoder_architecture=False),
    "bloom": of(hf.BloomForCausalLM, hf.BloomConfig, "decoder", named("hidden_size", "n_head", "n_layer")),
    "mpt": of(hf.MptForCausalLM, hf.MptConfig, "decoder", named("d_model", "n_heads", "n_layers")),
    "t5": of(
        hf.T5ForConditionalGeneration, hf.T5Config, "pair", named("d_model", "num_heads", "num_layers", "d_ff"),
        d_kv=head_size, pad_token_id=0, decoder_start_token_id=0,
    ),
    "bart": Architecture(bart, "pair"),
    "whisper": Architecture(whisper, "sound"),
    "vit": of(
        hf.ViTModel, hf.ViTConfig, "image", {"vocab_size": None, "max_position_embeddings": None},
        image_size=64, patch_size=4,
    ),
    "clip": Architecture(clip, "image and text"),
    "swin": Architecture(swin, "image"),
    "mixtral": decoder(
        hf.MixtralForCausalLM, hf.MixtralConfig, num_local_experts=4, num_experts_per_tok=2,
    ),
    "gpt-oss": decoder(
        hf.GptOssForCausalLM, hf.GptOssConfig, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=lambda s: s.tokens // 4, head_dim=head_size,
    ),
    "torch.nn": Architecture(torch_encoder, "hidden"),
}  # fmt: skip


def padding(batch: int, tokens: int) -> torch.Tensor:
    """A mask of ones that leaves out the last third of every other row."""
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    mask[1::2, tokens - tokens // 3 :] = 0
    return mask


def inputs(kind: str, s: Scale, batch: int, padded: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """What a model of a kind of inputs gets."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, s.vocabulary, (batch, s.tokens), generator=generator)
    numbers = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
    mask = {"attention_mask": padding(batch, s.tokens)} if padded else {}
    match kind:
        case "encoder" | "decoder":
            made = {"input_ids": ids, **mask}
        case "pair":
            made = {"input_ids": ids, "decoder_input_ids": ids[:, : s.tokens // 2], **mask}
        case "sound":
            made = {"input_features": numbers(batch, 16, 2 * s.tokens), "decoder_input_ids": ids[:, : s.tokens // 2]}
        case "image":
            made = {"pixel_values": numbers(batch, 3, 64, 64)}
        case "image and text":
            made = {"input_ids": ids, "pixel_values": numbers(batch, 3, 64, 64), **mask}
        case "hidden":
            hidden = numbers(batch, s.tokens, s.hidden)
            made = {"src": hidden, **({"src_key_padding_mask": mask["attention_mask"] == 0} if padded else {})}
        case _:
            raise ValueError(kind)
    return made


def tensors_of(found: Any) -> list[torch.Tensor]:
    """The numbers of an output."""
    if isinstance(found, torch.Tensor):
        return [found]
    if hasattr(found, "logits"):
        return [found.logits]
    if hasattr(found, "logits_per_image"):
        return [found.logits_per_image, found.text_embeds, found.image_embeds]
    return [found.last_hidden_state]
