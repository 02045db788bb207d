#!/usr/bin/env python3
"""models.py [--out DOC] [--sterna PROGRAM] [NAME...]: exports architectures of transformers and torch with random weights to
ONNX, runs each by `sterna run` on the inputs on which ONNX Runtime and torch run it, and prints a table: what loads, ops,
partitions, attention, and the distance from both. Ends with 1 if a result is wrong or a model does not load.

Needs torch, transformers, onnx, onnxscript and onnxruntime. Weights and inputs are those of fixed seeds.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnxruntime
import torch
import transformers as T

TOKENS, VOCABULARY = 64, 200
# The most that a result may differ from one of the peers, as a share of its largest element: f32 and sums in other orders.
MOST = 2e-5
TEXT = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=VOCABULARY)
GROUPED = dict(TEXT, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
IMAGE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8)
TINY = dict(n_embd=64, n_layer=2, n_head=4, vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2)

# Each architecture by the name of its configuration in transformers, the class that makes the model, and the arguments.
ARCHITECTURES = {
    "albert": ("Albert", "AutoModel", dict(TEXT, embedding_size=32)),
    "bert": ("Bert", "AutoModel", TEXT),
    "bloom": ("Bloom", "AutoModelForCausalLM", dict(hidden_size=64, n_layer=2, n_head=4, vocab_size=VOCABULARY)),
    "clip-text": ("CLIPText", "CLIPTextModel", dict(TEXT, eos_token_id=2)),
    "clip-vision": ("CLIPVision", "CLIPVisionModel", IMAGE),
    "cohere2": ("Cohere2", "AutoModelForCausalLM", dict(GROUPED, sliding_window=16)),
    "deberta-v2": (
        "DebertaV2",
        "AutoModel",
        dict(TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16),
    ),
    "dinov2": ("Dinov2", "AutoModel", dict(IMAGE, mlp_ratio=2)),
    "distilbert": (
        "DistilBert",
        "AutoModel",
        dict(dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=VOCABULARY),
    ),
    "esm": ("Esm", "AutoModel", dict(TEXT, pad_token_id=1, position_embedding_type="rotary", mask_token_id=3)),
    "falcon": ("Falcon", "AutoModelForCausalLM", dict(TEXT, bos_token_id=1, eos_token_id=2)),
    "gemma2": ("Gemma2", "AutoModelForCausalLM", dict(GROUPED, head_dim=16, sliding_window=16)),
    "gemma3": ("Gemma3Text", "AutoModelForCausalLM", dict(GROUPED, head_dim=16, sliding_window=16)),
    "gpt2": ("GPT2", "AutoModelForCausalLM", TINY),
    "gpt-j": ("GPTJ", "AutoModelForCausalLM", dict(TINY, rotary_dim=8)),
    "gpt-neox": ("GPTNeoX", "AutoModelForCausalLM", dict(TEXT, bos_token_id=1, eos_token_id=2)),
    "gpt-oss": (
        "GptOss",
        "AutoModelForCausalLM",
        dict(GROUPED, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    ),
    "llama": ("Llama", "AutoModelForCausalLM", GROUPED),
    "mistral": ("Mistral", "AutoModelForCausalLM", dict(GROUPED, sliding_window=16)),
    "mixtral": ("Mixtral", "AutoModelForCausalLM", dict(GROUPED, num_local_experts=4, sliding_window=None)),
    "modernbert": ("ModernBert", "AutoModel", dict(TEXT, pad_token_id=0, local_attention=16)),
    "mpnet": ("MPNet", "AutoModel", TEXT),
    "mpt": ("Mpt", "AutoModelForCausalLM", dict(d_model=64, n_layers=2, n_heads=4, vocab_size=VOCABULARY)),
    "olmo2": ("Olmo2", "AutoModelForCausalLM", GROUPED),
    "opt": ("OPT", "AutoModelForCausalLM", dict(TEXT, ffn_dim=128, word_embed_proj_dim=64)),
    "phi3": ("Phi3", "AutoModelForCausalLM", GROUPED),
    "qwen2": ("Qwen2", "AutoModelForCausalLM", GROUPED),
    "qwen3": ("Qwen3", "AutoModelForCausalLM", dict(GROUPED, head_dim=16)),
    "roberta": ("Roberta", "AutoModel", TEXT),
    "siglip": ("SiglipVision", "SiglipVisionModel", IMAGE),
    "t5-encoder": (
        "T5",
        "T5EncoderModel",
        dict(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=VOCABULARY),
    ),
    "vit": ("ViT", "AutoModel", IMAGE),
}


class FirstResult(torch.nn.Module):
    """A model of transformers as a function of tensors: its first result, without a cache."""

    def __init__(self, model, is_decoder):
        super().__init__()
        self.model = model
        self.options = {"use_cache": False} if is_decoder else {}

    def forward(self, first, attention_mask=None):
        if attention_mask is None:
            return self.model(pixel_values=first, return_dict=False)[0]
        return self.model(
            input_ids=first, attention_mask=attention_mask, return_dict=False, **self.options
        )[0]


def made(name):
    """The model of an architecture, and its inputs by name."""
    config_name, class_name, arguments = ARCHITECTURES[name]
    torch.manual_seed(0)
    config = getattr(T, config_name + "Config")(**arguments)
    config._attn_implementation = "eager"
    # A product for each token: the product of groups has no form in ONNX.
    config._experts_implementation = "batched_mm"
    maker = getattr(T, class_name)
    model = maker.from_config(config) if class_name.startswith("Auto") else maker(config)
    model = FirstResult(model, class_name == "AutoModelForCausalLM").eval()
    if "image_size" in arguments:
        return model, {"first": torch.randn(1, 3, 32, 32)}
    # The last tokens of the second sequence are padding.
    mask = torch.ones(2, TOKENS, dtype=torch.int64)
    mask[1, TOKENS - 9 :] = 0
    return model, {"first": torch.randint(3, VOCABULARY, (2, TOKENS)), "attention_mask": mask}


def exported(name, path):
    """Exports a model; gives its inputs and the result of torch."""
    model, inputs = made(name)
    with torch.no_grad():
        program = torch.onnx.export(model, (), kwargs=inputs, dynamo=True, verbose=False)
        result = model(**inputs)
    program.save(path)
    return {key: value.numpy() for key, value in inputs.items()}, result.numpy()


def distance(given, expected):
    """The largest difference as a share of the largest number; infinite where only one of them is a number."""
    if given.shape != expected.shape or (np.isnan(given) != np.isnan(expected)).any():
        return float("inf")
    size = np.nanmax(np.abs(expected)) or 1.0
    return float(np.nanmax(np.abs(given.astype(np.float64) - expected)) / size)


def row(name, sterna, folder):
    """The cells of an architecture, and whether all is well."""
    path = folder / f"{name}.onnx"
    inputs, of_torch = exported(name, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {port.name: inputs[port.name] for port in session.get_inputs()}
    of_runtime = session.run(None, feeds)[0]
    arguments = [sterna, "run", path]
    for key, value in feeds.items():
        np.save(folder / f"{key}.npy", value)
        arguments += ["--input", f"{key}={folder / key}.npy"]
    output = session.get_outputs()[0].name
    arguments += ["--output", f"{output}={folder / 'result.npy'}"]
    ran = subprocess.run(arguments, capture_output=True, text=True)
    if ran.returncode != 0:
        return [name, "no: " + ran.stderr.strip().splitlines()[-1].replace("|", "\\|")] + [""] * 5, False
    result = np.load(folder / "result.npy")
    apart = [distance(result, of_runtime), distance(result, of_torch)]
    shown = subprocess.run([sterna, "inspect", path, "--format", "text"], capture_output=True, text=True).stdout
    ops = re.search(r"ops (\d+), partitions (\d+)", shown)
    softmaxes = len(re.findall(r"^  op +SoftMax ", shown, re.M))
    attention = len(re.findall(r"^  phase +attention:", shown, re.M))
    cells = [name, "yes", ops[1], ops[2], f"{attention} of {softmaxes}"]
    return cells + [f"{value:.1e}" for value in apart], max(apart) <= MOST


HEAD = """# Models as they are exported

`.ci/long models` writes this page with `.ci/models.py`: architectures of transformers {transformers} with random weights, two
layers of width 64, exported by `torch.onnx.export` of torch {torch} from token ids or pixels, and run by `sterna run`. Attention
counts the phases in which both products and the SoftMax between them are one, beside all ops `SoftMax`; those of routers and of
pooling are no attention. Distances are the largest difference from ONNX Runtime {runtime} and from torch, as a share of the
largest element.

| model | loads | ops | partitions | attention of SoftMaxes | from ONNX Runtime | from torch |
|---|---|---|---|---|---|---|
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES))
    parser.add_argument("--out", type=pathlib.Path, help="the page to write, instead of printing it")
    parser.add_argument("--sterna", default="target/release/sterna")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    T.logging.set_verbosity_error()
    page = HEAD.format(
        transformers=T.__version__, torch=torch.__version__.split("+")[0], runtime=onnxruntime.__version__
    )
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            try:
                cells, fits = row(name, arguments.sterna, pathlib.Path(folder))
            except Exception as error:  # the exporters fail in ways of their own
                print(name, repr(error)[:300], file=sys.stderr)
                cells, fits = [name, "not exported"] + [""] * 5, False
            is_good &= fits
            page += "| " + " | ".join(cells) + " |\n"
            print(*cells, sep="  ", file=sys.stderr, flush=True)
    if arguments.out:
        arguments.out.write_text(page)
    else:
        print(page, end="")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
