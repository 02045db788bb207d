"""Six architectures of transformers with random weights, exported to ONNX with inputs and with what torch makes of them.

A model is a folder: `model.onnx`, `case.txt`, a line for each tensor (`input|output NAME TYPE DIMS GROWS FILE`), and the
elements of each in a file, row-major. GROWS is the dim that is one longer in the next run, or `-`. Weights and inputs are those
of a fixed seed, so a folder is made once.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers as T

# Rows of the cache when the decoder is given one token more.
PAST = 512
VOCABULARY = 8000
Tensors = dict[str, torch.Tensor]

LLAMA = dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1408,
             vocab_size=VOCABULARY, max_position_embeddings=1024, tie_word_embeddings=False)


class Cached(torch.nn.Module):
    """A decoder as a function of tokens, mask and rows of its cache: the logits, and the rows that the next call is given."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, past=None):
        cache = T.DynamicCache(config=self.model.config)
        for layer, (key, value) in enumerate(past or []):
            cache.update(key, value, layer)
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        layers = result.past_key_values.layers
        return result.logits, *(rows for layer in layers for rows in (layer.keys, layer.values))


class First(torch.nn.Module):
    """A model as a function of tensors by name: its first result."""

    def __init__(self, model, **options):
        super().__init__()
        self.model = model
        self.options = options

    def forward(self, **inputs):
        return self.model(**inputs, **self.options, return_dict=False)[0]


def tokens(count: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, count))


def ones(count: int) -> torch.Tensor:
    return torch.ones(1, count, dtype=torch.int64)


def bert():
    config = T.BertConfig(num_hidden_layers=4, vocab_size=VOCABULARY)
    mask = ones(128)
    mask[0, 100:] = 0
    return config, T.BertModel, First, {"input_ids": tokens(128), "attention_mask": mask}


def llama_prefill():
    return T.LlamaConfig(**LLAMA), T.LlamaForCausalLM, Cached, {"input_ids": tokens(128), "attention_mask": ones(128)}


def llama_decode():
    rows = [(torch.randn(1, 4, PAST, 64), torch.randn(1, 4, PAST, 64)) for _ in range(LLAMA["num_hidden_layers"])]
    inputs = {"input_ids": tokens(1), "attention_mask": ones(PAST + 1), "past": rows}
    return T.LlamaConfig(**LLAMA), T.LlamaForCausalLM, Cached, inputs


def whisper_decoder():
    # The decoder of whisper-tiny, on half a minute of sound.
    config = T.WhisperConfig(d_model=384, decoder_layers=4, decoder_attention_heads=6, decoder_ffn_dim=1536, encoder_layers=1,
                             encoder_attention_heads=6, encoder_ffn_dim=1536, vocab_size=VOCABULARY, pad_token_id=0,
                             bos_token_id=1, eos_token_id=2)
    inputs = {"decoder_input_ids": tokens(64), "encoder_outputs": [torch.randn(1, 1500, 384)]}
    return config, T.WhisperForConditionalGeneration, lambda model: First(model, use_cache=False), inputs


def t5():
    config = T.T5Config(num_layers=4, num_decoder_layers=4, vocab_size=VOCABULARY)
    inputs = {"input_ids": tokens(128), "attention_mask": ones(128), "decoder_input_ids": tokens(32)}
    return config, T.T5ForConditionalGeneration, lambda model: First(model, use_cache=False), inputs


def vit():
    return T.ViTConfig(num_hidden_layers=4), T.ViTModel, First, {"pixel_values": torch.randn(1, 3, 224, 224)}


@dataclass(frozen=True)
class Architecture:
    """What makes a model, and what the table says of it."""

    made: Callable
    about: str


ARCHITECTURES = {
    "bert": Architecture(bert, "768 wide, 4 layers, 128 tokens, of which 28 are padding"),
    "llama-prefill": Architecture(llama_prefill, "512 wide, 4 layers, 8 heads on 4, 128 tokens"),
    "llama-decode": Architecture(llama_decode, f"the same, one token after {PAST} rows of cache"),
    "whisper-decoder": Architecture(whisper_decoder, "384 wide, 4 layers, 64 tokens on 1,500 rows of the encoder"),
    "t5": Architecture(t5, "512 wide, 4 and 4 layers, 128 tokens to 32"),
    "vit": Architecture(vit, "768 wide, 4 layers, 224 x 224 pixels"),
}


def opened(value):
    """The dims that the model leaves open: the lengths of tokens, masks and caches."""
    if not isinstance(value, torch.Tensor):
        return type(value)(map(opened, value))
    length = {2: 1, 4: 2}.get(value.dim()) if value.dtype == torch.int64 or value.shape[-2:] == (PAST, 64) else None
    return {length: torch.export.Dim.AUTO} if length else {}


def flat(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [leaf for part in value for leaf in flat(part)]


def of_torch(architecture: Architecture):
    """The model, and its inputs by name."""
    torch.manual_seed(0)
    config, maker, wrapped, inputs = architecture.made()
    config._attn_implementation = "eager"
    return wrapped(maker(config)).eval(), inputs


def grows(role: str, array: np.ndarray) -> int | str:
    """The dim of rows of the cache, or of those and the token."""
    places = [dim for dim, size in enumerate(array.shape) if size in (PAST, PAST + 1)]
    return places[0] if role == "input" and places else "-"


def write_case(folder: Path, inputs: list[tuple[str, np.ndarray]], outputs: list[tuple[str, np.ndarray]]) -> None:
    lines = []
    for role, arrays in [("input", inputs), ("output", outputs)]:
        for place, (name, array) in enumerate(arrays):
            file = f"{role}{place}.bin"
            np.ascontiguousarray(array).tofile(folder / file)
            lines.append(f"{role} {name} {array.dtype} {','.join(map(str, array.shape))} {grows(role, array)} {file}\n")
    (folder / "case.txt").write_text("".join(lines))


def exported(name: str, folder: Path) -> Path:
    """The folder of a model, made unless it is there."""
    place = folder / name
    if (place / "case.txt").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    model, inputs = of_torch(ARCHITECTURES[name])
    warnings.filterwarnings("ignore")
    T.logging.set_verbosity_error()
    with torch.no_grad():
        shapes = {name: opened(value) for name, value in inputs.items()}
        # A model that is given its inputs by other names takes them so in all.
        shapes = {"inputs": shapes} if isinstance(model, First) else shapes
        program = torch.onnx.export(model, (), kwargs=inputs, dynamic_shapes=shapes, dynamo=True, verbose=False)
        results = model(**inputs)
    program.save(place / "model.onnx")
    graph = program.model.graph
    leaves = [leaf for value in inputs.values() for leaf in flat(value)]
    named = [(port.name, leaf.numpy()) for port, leaf in zip(graph.inputs, leaves, strict=True)]
    results = [(port.name, leaf.numpy()) for port, leaf in zip(graph.outputs, flat(results), strict=True)]
    write_case(place, named, results)
    return place
