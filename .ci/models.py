#!/usr/bin/env python3
"""models.py [--short] [--out DOC] [--sterna PROGRAM] [NAME...]: exports architectures of transformers and torch with random
weights to ONNX, runs each by `sterna run` on the inputs on which ONNX Runtime, torch and OpenVINO run it, and prints a table:
what loads, ops, partitions, attention, the tiles that masks leave out, and the distance from all three. Ends with 1 if a result
is further from ONNX Runtime or torch than rounding explains, or a model does not load.

--short counts no tiles, for which each model is exported again.

Needs torch, transformers, onnx, onnxscript, onnxruntime and openvino. Weights and inputs are those of fixed seeds.
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
import openvino
import torch
import transformers as T

TOKENS, VOCABULARY = 64, 200
# The tokens of which the tiles of masks are counted, and those at the end of the second sequence that are padding.
MANY_TOKENS, PADDING = 512, {64: 9, 512: 200}
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
    "clip-text": ("CLIPText", "CLIPTextModel", dict(TEXT, eos_token_id=2, max_position_embeddings=600)),
    "clip-vision": ("CLIPVision", "CLIPVisionModel", IMAGE),
    "cohere2": ("Cohere2", "AutoModelForCausalLM", dict(GROUPED, sliding_window=16)),
    "deberta": (
        "Deberta",
        "AutoModel",
        dict(TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=16),
    ),
    "deberta-v2": (
        "DebertaV2",
        "AutoModel",
        dict(TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16),
    ),
    "deepseek-v3": (
        "DeepseekV3",
        "AutoModelForCausalLM",
        dict(
            TEXT, num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
            q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
            moe_intermediate_size=32, first_k_dense_replace=1,
        ),  # fmt: skip
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
    "mpnet": ("MPNet", "AutoModel", dict(TEXT, max_position_embeddings=600)),
    "mpt": ("Mpt", "AutoModelForCausalLM", dict(d_model=64, n_layers=2, n_heads=4, vocab_size=VOCABULARY)),
    "olmo2": ("Olmo2", "AutoModelForCausalLM", GROUPED),
    "opt": ("OPT", "AutoModelForCausalLM", dict(TEXT, ffn_dim=128, word_embed_proj_dim=64)),
    "phi3": ("Phi3", "AutoModelForCausalLM", GROUPED),
    "qwen2": ("Qwen2", "AutoModelForCausalLM", GROUPED),
    "qwen3": ("Qwen3", "AutoModelForCausalLM", dict(GROUPED, head_dim=16)),
    "roberta": ("Roberta", "AutoModel", dict(TEXT, max_position_embeddings=600)),
    "siglip": ("SiglipVision", "SiglipVisionModel", IMAGE),
    "t5-encoder": (
        "T5",
        "T5EncoderModel",
        dict(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=VOCABULARY),
    ),
    "vit": ("ViT", "AutoModel", IMAGE),
    "xglm": (
        "XGLM",
        "AutoModelForCausalLM",
        dict(d_model=64, num_layers=2, attention_heads=4, ffn_dim=128, vocab_size=VOCABULARY),
    ),
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


def made(name, tokens):
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
        return model, {"first": torch.randn(1, 3, arguments["image_size"], arguments["image_size"])}
    # The last tokens of the second sequence are padding.
    mask = torch.ones(2, tokens, dtype=torch.int64)
    mask[1, tokens - PADDING[tokens] :] = 0
    return model, {"first": torch.randint(3, VOCABULARY, (2, tokens)), "attention_mask": mask}


def exported(name, path, tokens):
    """Exports a model; gives its inputs and the result of torch."""
    model, inputs = made(name, tokens)
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


def ran(sterna, path, feeds, folder, *more):
    """A run of a model on some inputs."""
    arguments = [sterna, "run", path, *more]
    for key, value in feeds.items():
        np.save(folder / f"{key}.npy", value)
        arguments += ["--input", f"{key}={folder / key}.npy"]
    return subprocess.run(arguments, capture_output=True, text=True)


def from_openvino(result, path, feeds):
    """The distance of a result from that of OpenVINO in f32, as a cell."""
    try:
        model = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return f"{distance(result, model(feeds)[0]):.1e}"
    except Exception as error:  # what it refuses is nothing of ours
        print(path.stem, "OpenVINO:", repr(error)[:300], file=sys.stderr)
        return "refused"


def tiles_left_out(name, sterna, folder):
    """The tiles of scores that masks leave out in a model of many tokens, of all, as a cell."""
    path = folder / f"{name}-long.onnx"
    try:
        inputs, _ = exported(name, path, MANY_TOKENS)
    except Exception as error:  # some have no positions for so many tokens
        print(name, "of many tokens:", repr(error)[:300], file=sys.stderr)
        return "–"
    if "attention_mask" not in inputs:
        return "–"
    names = [port.name for port in onnxruntime.InferenceSession(path).get_inputs()]
    feeds = {key: inputs[key] for key in names}
    report = ran(sterna, path, feeds, folder, "--verbose").stdout
    counts = re.findall(r"^ +mask +(\d+) of (\d+) tiles skipped(?:.*?(\d+) constant)?", report, re.M)
    left_out = sum(int(masked) + int(constant or 0) for masked, _, constant in counts)
    return f"{left_out} of {sum(int(count) for _, count, _ in counts)}" if counts else "–"


def row(name, sterna, folder, is_short):
    """The cells of an architecture, and whether all is well."""
    path = folder / f"{name}.onnx"
    inputs, of_torch = exported(name, path, TOKENS)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {port.name: inputs[port.name] for port in session.get_inputs()}
    of_runtime = session.run(None, feeds)[0]
    output = session.get_outputs()[0].name
    run = ran(sterna, path, feeds, folder, "--output", f"{output}={folder / 'result.npy'}")
    if run.returncode != 0:
        return [name, "no: " + run.stderr.strip().splitlines()[-1].replace("|", "\\|")] + [""] * 7, False
    result = np.load(folder / "result.npy")
    apart = [distance(result, of_runtime), distance(result, of_torch)]
    shown = subprocess.run([sterna, "inspect", path, "--format", "text"], capture_output=True, text=True).stdout
    ops = re.search(r"ops (\d+), partitions (\d+)", shown)
    softmaxes = len(re.findall(r"^  op +SoftMax ", shown, re.M))
    attention = len(re.findall(r"^  phase +attention:", shown, re.M))
    tiles = "" if is_short else tiles_left_out(name, sterna, folder)
    cells = [name, "yes", ops[1], ops[2], f"{attention} of {softmaxes}", tiles]
    cells += [f"{value:.1e}" for value in apart] + [from_openvino(result, path, feeds)]
    return cells, max(apart) <= MOST


HEAD = """# Models as they are exported

`.ci/long models` writes this page with `.ci/models.py`: architectures of transformers {transformers} with random weights, two
layers of width 64, exported by `torch.onnx.export` of torch {torch} from token ids or pixels, and run by `sterna run`. Attention
counts the phases in which both products and the SoftMax between them are one, beside all ops `SoftMax`; those of routers and of
pooling are no attention. Tiles are those of 64 queries and 64 keys that masks leave out, beside all, of two sequences of 512
tokens, of which the second ends with 200 of padding. Distances are the largest difference from ONNX Runtime {runtime}, from torch,
and from OpenVINO {openvino} in f32, as a share of the largest element.

| model | loads | ops | partitions | attention of SoftMaxes | tiles left out | from ONNX Runtime | from torch | from OpenVINO |
|---|---|---|---|---|---|---|---|---|
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES))
    parser.add_argument("--short", action="store_true", help="counts no tiles")
    parser.add_argument("--out", type=pathlib.Path, help="the page to write, instead of printing it")
    parser.add_argument("--sterna", default="target/release/sterna")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    T.logging.set_verbosity_error()
    page = HEAD.format(
        transformers=T.__version__,
        torch=torch.__version__.split("+")[0],
        runtime=onnxruntime.__version__,
        openvino=openvino.__version__.split("-")[0],
    )
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            try:
                cells, fits = row(name, arguments.sterna, pathlib.Path(folder), arguments.short)
            except Exception as error:  # the exporters fail in ways of their own
                print(name, repr(error)[:300], file=sys.stderr)
                cells, fits = [name, "not exported"] + [""] * 7, False
            is_good &= fits
            page += "| " + " | ".join(cells) + " |\n"
            print(*cells, sep="  ", file=sys.stderr, flush=True)
    if arguments.out:
        # What follows is written by `benches/models/packages.py` and `benches/models/architectures.py`.
        before = arguments.out.read_text() if arguments.out.exists() else ""
        arguments.out.write_text(page + "".join(before.partition("\n## ")[1:]))
    else:
        print(page, end="")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
