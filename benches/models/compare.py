#!/usr/bin/env python3
"""Runs whole models in Sterna and in its peers, each in a process of its own and by turns, and checks that all give the same.

Installs what it needs into a cache directory, then runs itself there. README.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

# Nothing is written beside the sources.
sys.dont_write_bytecode = True

HERE = Path(__file__).resolve().parent
MODELS = ["bert", "llama-prefill", "llama-decode", "whisper-decoder", "t5", "vit"]
IN_PYTHON = ["onnxruntime", "openvino"]
PEERS = ["sterna", *IN_PYTHON, "rten", "tract", "candle"]
# Threads of a run, and callers at once.
SETTINGS = [(1, 1), (2, 1), (1, 4)]
# The most that a result may differ from torch, as a share of the largest element: f32 and sums in other orders.
MOST = 1e-4
# Seconds after which a process is stopped.
PATIENCE = 600


def parse() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sterna-whole-models"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="MODEL",
                        help=f"some of: {', '.join(MODELS)} (all)")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, metavar="PEER",
                        help=f"some of: {', '.join(PEERS)} (all)")
    parser.add_argument("--rounds", type=int, default=3, help="turns that every peer has in every row (3)")
    parser.add_argument("--seconds", type=float, default=2, help="how long a turn runs a model (2)")
    parser.add_argument("--short", action="store_true", help="one short round, for the answers and not for the times")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where models.md and models.json are written")
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR",
                        help="where the environment, the programs and the models are kept (%(default)s)")
    parser.add_argument("--venv", type=Path, metavar="DIR", help="another environment (the one in the cache)")
    parser.add_argument("--program", type=Path, help="sterna-model-peers, if it is built already")
    return parser.parse_args()


def run(*command: str | Path) -> None:
    print("$", *command, file=sys.stderr, flush=True)
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr)


def enter(venv: Path) -> None:
    """Goes on in the environment's Python, which is made unless it is there."""
    python = venv / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", venv)
        run(python, "-m", "pip", "install", "--quiet", "--requirement", HERE / "requirements.txt")
    if Path(sys.prefix).resolve() != venv.resolve():
        os.execv(python, [str(python), *sys.argv])


def built(cache: Path) -> Path:
    """The program with Sterna and the peers in Rust."""
    run("cargo", "build", "--release", "--locked", "--manifest-path", HERE / "Cargo.toml", "--target-dir", cache / "target")
    return cache / "target" / "release" / "sterna-model-peers"


def answer(peer: str, program: Path, folder: Path, threads: int, callers: int, seconds: float) -> dict:
    """What a process of a peer says."""
    begin = [sys.executable, "-B", HERE / "python_peers.py"] if peer in IN_PYTHON else [program]
    count = str(threads)
    environment = os.environ | {"RTEN_NUM_THREADS": count, "RAYON_NUM_THREADS": count, "OMP_NUM_THREADS": count}
    command = [*begin, peer, folder, count, str(callers), str(seconds)]
    # The last ones: the first is where systems tend to do their own work.
    cpus = sorted(os.sched_getaffinity(0))[-max(threads, min(callers, 2)):]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE,
                              preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    except subprocess.TimeoutExpired:
        return {"refused": f"had not ended after {PATIENCE} seconds"}
    try:
        said = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = {"refused": last_words(done.stderr) or f"ended with {done.returncode}"}
    if "refused" not in said and not (said["distance"] is not None and said["distance"] <= MOST):
        said["wrong"] = f"differs by {said['distance']} of the largest element"
    return said


def last_words(text: str) -> str:
    """The message of a panic, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("note:")]
    return next((after for line, after in zip(lines, lines[1:]) if "panicked at" in line), lines[-1] if lines else "")


def turns(arguments: argparse.Namespace, program: Path) -> list[dict]:
    """The answers of all peers in all rounds. One that refuses is not asked again."""
    from export import exported

    rounds, seconds = (1, 0.2) if arguments.short else (arguments.rounds, arguments.seconds)
    answers, refused = [], set()
    for model in arguments.models:
        folder = exported(model, arguments.cache / "models")
        for threads, callers in SETTINGS:
            for _ in range(rounds):
                for peer in arguments.peers:
                    if (model, peer) in refused:
                        continue
                    said = answer(peer, program, folder, threads, callers, seconds)
                    if "refused" in said:
                        refused.add((model, peer))
                    answers.append({"model": model, "peer": peer, "threads": threads, "callers": callers, **said})
                    print(json.dumps(answers[-1]), file=sys.stderr, flush=True)
    return answers


def command(words: list[str]) -> str:
    """How to repeat this run: without the paths of this machine."""
    kept, rest = [], iter(words)
    for word in rest:
        if word in ("--out", "--cache", "--venv", "--program"):
            next(rest, None)
        else:
            kept.append(word)
    return shlex.join(["python3", "benches/models/compare.py", *kept, "--out", "DIR"])


def judge(answers: list[dict]) -> int:
    """Prints what is not right, and counts. A refusal is a peer's right, but not Sterna's."""
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for said in answers:
        is_ours = said["peer"] == "sterna"
        why = said.get("refused") or said.get("wrong")
        count["passed" if not why else "failed" if is_ours else "skipped"] += 1
        if why:
            print(f"{said['model']}: {said['peer']}: {why}")
    print(", ".join(f"{number} {name}" for name, number in count.items()))
    return count["failed"]


def main() -> None:
    arguments = parse()
    arguments.cache = arguments.cache.resolve()
    enter((arguments.venv or arguments.cache / "venv").resolve())
    answers = turns(arguments, arguments.program or built(arguments.cache))
    if arguments.out:
        from report import markdown

        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "models.json").write_text("\n".join(map(json.dumps, answers)) + "\n")
        (arguments.out / "models.md").write_text(markdown(answers, command(sys.argv[1:])))
    sys.exit(1 if judge(answers) else 0)


if __name__ == "__main__":
    main()
