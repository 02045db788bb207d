#!/usr/bin/env python3
"""Generates text with a decoder that torch exports, in torch and by the examples `text_generation`, and compares.

generation.py FOLDER PROGRAM... exports a Llama of four layers with random weights and its cache to FOLDER, generates 100 tokens
behind a prompt in torch, always the likeliest, and runs each program as `PROGRAM MODEL TOKENS STEPS`. Every one must print the
same tokens.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import torch
import transformers

STEPS = 100
PROMPT = [576, 659, 1771, 12, 4, 900, 33]
CONFIG = dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=704,
              vocab_size=2000, max_position_embeddings=512, tie_word_embeddings=False, initializer_range=0.1)
LAYERS = range(CONFIG["num_hidden_layers"])
HEADS, DEPTH = CONFIG["num_key_value_heads"], CONFIG["hidden_size"] // CONFIG["num_attention_heads"]


class Decoder(torch.nn.Module):
    """Tokens, mask and rows of the cache to logits and the rows behind the tokens."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, past):
        cache = transformers.DynamicCache(config=self.model.config)
        for layer, (keys, values) in enumerate(past):
            cache.update(keys, values, layer)
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        rows = [(layer.keys, layer.values) for layer in result.past_key_values.layers]
        return result.logits, *(part for pair in rows for part in pair)


def rows(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(1, HEADS, count, DEPTH), torch.randn(1, HEADS, count, DEPTH)) for _ in LAYERS]


def export(decoder: Decoder, path: Path) -> None:
    inputs = (torch.randint(3, 2000, (1, 4)), torch.ones(1, 12, dtype=torch.int64), rows(8))
    auto = torch.export.Dim.AUTO
    shapes = ({1: auto}, {1: auto}, [({2: auto}, {2: auto}) for _ in LAYERS])
    names = [f"{layer}.{part}" for layer in LAYERS for part in ("key", "value")]
    program = torch.onnx.export(
        decoder, inputs, dynamic_shapes=shapes, dynamo=True, verbose=False,
        input_names=["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in names)],
        output_names=["logits", *(f"present.{name}" for name in names)])
    program.save(path)


def generated(decoder: Decoder) -> list[int]:
    """The tokens of torch."""
    tokens, past, found = torch.tensor([PROMPT]), rows(0), []
    for _ in range(STEPS):
        length = past[0][0].shape[2] + tokens.shape[1]
        logits, *flat = decoder(tokens, torch.ones(1, length, dtype=torch.int64), past)
        past = list(zip(flat[::2], flat[1::2]))
        found.append(int(logits[0, -1].argmax()))
        tokens = torch.tensor([[found[-1]]])
    return found


def main() -> None:
    folder, programs = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    model.config._attn_implementation = "eager"
    decoder, path = Decoder(model).eval(), folder / "decoder.onnx"
    with torch.no_grad():
        export(decoder, path)
        expected = generated(decoder)
    wrong = 0
    for program in programs:
        command = [program, str(path), ",".join(map(str, PROMPT)), str(STEPS)]
        done = subprocess.run(command, capture_output=True, text=True)
        # All print the tokens as a list in one line.
        numbers = [[int(word) for word in line.strip("[]").replace(",", " ").split()]
                   for line in done.stdout.splitlines() if line.strip("[]").replace(",", " ").replace(" ", "").isdigit()]
        if numbers == [expected]:
            print(f"{program}: {STEPS} tokens, {len(set(expected))} of them different, are torch's")
        else:
            wrong += 1
            print(f"{program}: {numbers} is not {expected}\n{done.stdout}{done.stderr}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
