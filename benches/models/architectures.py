#!/usr/bin/env python3
"""architectures.py [--folder DIR] [--seconds S] [--rounds N] [--out PAGE] [NAME...]: times of the architectures that
`.ci/models.py` exports, in Sterna, ONNX Runtime and OpenVINO, by turns, on one thread and on two.

A model has two layers of width 512, 8 heads and 512 tokens of which the last are padding, or an image of 224 pixels, in f32. Each
peer has its own turn of some milliseconds in every round; the median of a turn counts, and the best of the rounds. Columns of peers
are their time by Sterna's. --folder keeps exported models, --export makes them and measures nothing, --out replaces the tables of a
page after its heading "Times".

Architectures with experts are left out: what the exporter writes of them copies the weights of an expert for each token.

Needs what `.ci/models.py` needs and the package `sterna`.
"""

import argparse
import datetime
import pathlib
import statistics
import sys
import textwrap
import warnings

import numpy as np
import onnxruntime
import openvino
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / ".ci"))
sys.path.insert(0, str(ROOT / "benches/models"))
import models  # noqa: E402
import python_peers  # noqa: E402
import report  # noqa: E402

# The sizes of layers by the names that configurations give them.
WIDE = dict(
    hidden_size=512, n_embd=512, dim=512, d_model=512, word_embed_proj_dim=512, embedding_size=128,
    intermediate_size=2048, hidden_dim=2048, d_ff=2048, ffn_dim=2048, moe_intermediate_size=1024,
    num_attention_heads=8, n_head=8, n_heads=8, num_heads=8, attention_heads=8,
    head_dim=64, d_kv=64, rotary_dim=32, v_head_dim=64, qk_nope_head_dim=32, qk_rope_head_dim=32,
    q_lora_rank=256, kv_lora_rank=128, sliding_window=128, local_attention=128,
    image_size=224, patch_size=16,
)  # fmt: skip
TOKENS = 512
WITHOUT_EXPERTS = [name for name in models.ARCHITECTURES if name not in ("deepseek-v3", "gpt-oss", "mixtral")]
HEADING = "\n## Times\n"


def widened(name):
    """The arguments of an architecture at the sizes that are measured."""
    config_name, class_name, arguments = models.ARCHITECTURES[name]
    wide = {key: WIDE.get(key, value) if value is not None else None for key, value in arguments.items()}
    if "num_key_value_heads" in wide:
        # Groups stay groups, and heads of their own stay so.
        same = wide["num_key_value_heads"] == arguments["num_attention_heads"]
        wide["num_key_value_heads"] = 8 if same else 4
    return config_name, class_name, wide


def export(names, folder):
    """Exports what is not there yet; the inputs stand beside each model."""
    for name in names:
        path = folder / f"{name}.onnx"
        if path.exists():
            continue
        models.ARCHITECTURES[name] = widened(name)
        try:
            inputs, _ = models.exported(name, path, TOKENS)
        except Exception as error:  # the exporters fail in ways of their own
            print(name, repr(error)[:300], file=sys.stderr)
            continue
        np.savez(folder / f"{name}.npz", **inputs)
        print(name, "exported", file=sys.stderr, flush=True)


def session(path, threads):
    """A session on a model with its inputs beside it, and the names of those that it takes: a rate chooses a branch."""
    import sterna

    known = {name: of for name, of in np.load(path.with_suffix(".npz")).items() if name == "sr"}
    made = sterna.load(path, values=known, engine=sterna.Engine(threads=threads))
    return made, [port["name"] for port in made.inputs]


def of_sterna(path, threads):
    made, names = session(path, threads)
    return lambda feeds: next(iter(made.run({name: feeds[name] for name in names}).values()))


def of_openvino(path, threads):
    peer = python_peers.OpenVino()
    peer.load(path, threads, 1)
    request = peer.model.create_infer_request()
    return lambda feeds: request.infer(feeds, share_inputs=True, share_outputs=True)[0]


PEERS = {"Sterna": of_sterna, "ONNX Runtime": python_peers.first_of_runtime, "OpenVINO": of_openvino}


def measured(path, threads, rounds, seconds):
    """The best median of each peer, in seconds; none where it refuses the model or gives something else."""
    names = {port.name for port in onnxruntime.InferenceSession(path).get_inputs()}
    feeds = {key: value for key, value in np.load(path.with_suffix(".npz")).items() if key in names}
    runs, expected = {}, None
    for peer, make in PEERS.items():
        try:
            run = make(path, threads)
            result = np.array(run(feeds))
        except Exception as error:  # what a peer refuses has no time
            print(path.stem, peer, repr(error)[:300], file=sys.stderr)
            continue
        expected = result if expected is None else expected
        if models.distance(result, expected) <= 10 * models.MOST:
            runs[peer] = run
        else:
            print(path.stem, peer, "is off by", models.distance(result, expected), file=sys.stderr)
    best = dict.fromkeys(PEERS)
    for _ in range(rounds):
        for peer, run in runs.items():
            seconds_of_one = statistics.median(python_peers.turn(run, feeds, seconds))
            best[peer] = min(best[peer] or seconds_of_one, seconds_of_one)
    return best


def cells(best):
    """Milliseconds of Sterna, and the times of its peers by it."""
    ours = best["Sterna"]
    if ours is None:
        return ["–"] * len(PEERS), [None] * (len(PEERS) - 1)
    ratios = [time and time / ours for peer, time in best.items() if peer != "Sterna"]
    return [f"{ours * 1e3:.3g}"] + [f"{ratio:.2f}" if ratio else "–" for ratio in ratios], ratios


ABOUT = """\
`benches/models/architectures.py` measures the same architectures at two layers of width 512 with 8 heads: two sequences of 512
tokens, of which the second ends with 200 of padding, or an image of 224 × 224 in patches of 16, in f32. Each peer runs for
{seconds} s a round, by turns in one process; the median of a turn counts, and the best of {rounds} rounds. Columns of peers are
their time divided by Sterna's: above 1 Sterna is ahead. {date}; {machine}. ONNX Runtime {runtime}, OpenVINO {openvino}, models of
torch {torch} and transformers {transformers}.
"""
HEAD = """
| model | Sterna, 1 thread, ms | ONNX Runtime | OpenVINO | Sterna, 2 threads, ms | ONNX Runtime | OpenVINO |
|---|---|---|---|---|---|---|
"""


def table(arguments):
    """The table of times, and the medians below it."""
    lines, columns = [], [[] for _ in range(4)]
    for name in arguments.names:
        path = arguments.folder / f"{name}.onnx"
        if not path.exists():
            continue
        row, ratios = [name], []
        for threads in (1, 2):
            shown, of_peers = cells(measured(path, threads, arguments.rounds, arguments.seconds))
            row += shown
            ratios += of_peers
        for column, ratio in zip(columns, ratios):
            column += [ratio] if ratio else []
        lines.append("| " + " | ".join(row) + " |\n")
        print(*row, sep="  ", file=sys.stderr, flush=True)
    medians = [f"{statistics.median(column):.2f}" if column else "–" for column in columns]
    lines.append("| *median* | | " + " | ".join(medians[:2]) + " | | " + " | ".join(medians[2:]) + " |\n")
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=WITHOUT_EXPERTS)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/architectures")
    parser.add_argument("--export", action="store_true", help="exports models and measures nothing")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a turn runs a model (0.3)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every peer (3)")
    parser.add_argument("--out", type=pathlib.Path, help="the page whose tables are replaced, instead of printing them")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    export(arguments.names, arguments.folder)
    if arguments.export:
        return
    about = ABOUT.format(
        machine=report.machine(),
        date=datetime.date.today().isoformat(),
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        runtime=onnxruntime.__version__,
        openvino=openvino.__version__.split("-")[0],
        torch=models.torch.__version__.split("+")[0],
        transformers=transformers.__version__,
    )
    section = HEADING + "\n" + textwrap.fill(about, 120, break_on_hyphens=False) + "\n" + HEAD + table(arguments)
    if arguments.out:
        kept = arguments.out.read_text().split(HEADING)[0]
        arguments.out.write_text(kept + section)
    else:
        print(section, end="")


if __name__ == "__main__":
    main()
