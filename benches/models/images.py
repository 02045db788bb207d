#!/usr/bin/env python3
"""images.py [--short] [--seconds S] [--rounds N] [--threads N] [--folder DIR] [--out PAGE] [FILTER...]: architectures for images of timm
and torchvision, exported to ONNX, in Sterna and ONNX Runtime, by turns.

Weights are random and of a fixed seed, as are the statistics of batch norms. All outputs of both must be the same before either is
timed. Each has its own turn of some milliseconds in every round; the best run of a turn counts, and the best of the rounds. FILTERs are
parts of names. --short takes every seventh architecture, with turns of 50 ms in one round. --folder keeps exported models. The end is 1
if an answer differs, or if Sterna refuses a model.

Needs what `.ci/models.py` needs and the packages `sterna`, `timm` and `torchvision`.
"""

import argparse
import datetime
import logging
import pathlib
import sys
import textwrap
import warnings

import numpy as np
import onnxruntime
import timm
import torch
import torchvision

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "benches/models"))
import ops  # noqa: E402
import python_peers  # noqa: E402
import report  # noqa: E402

# The smallest of each family.
OF_TIMM = """
    cait_xxs24_224 coat_tiny convit_tiny cpubone_nano crossvit_tiny_240 cs3darknet_focus_s csatv2 cspnext_tiny deit_tiny_patch16_224
    densenet121 dla46x_c dpn48b edgenext_xx_small efficientformer_l1 efficientformerv2_s0 efficientvim_m1 efficientvit_b0
    efficientvit_m0 ese_vovnet19b_slim_dw fasternet_t0 fastvit_t8 gcvit_xxtiny ghostnet_050 gmlp_ti16_224 halonet_h1 hardcorenas_b
    hgnetv2_b0 hrnet_w18_small iformer_t inception_next_atto lcnetv2_small legacy_seresnet18 levit_128s lowformer_b0
    mobilenetv3_small_050 mobilevit_xxs pit_ti_224 poolformerv2_s12 pvt_v2_b0 regnetx_002 repghostnet_050 repvit_m1 resnest14d
    resnetv2_18 rexnet_100 shvit_s1 skresnet18 starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224 test_byobnet test_coatnet
    test_convnext test_efficientnet test_mambaout test_nfnet test_resnet test_vit test_vit_relpos tiny_vit_5m_224 visformer_tiny
    vit_tiny_patch16_dinov3_qkvb vit_tiny_r_s16_p8_224 volo_d1_224 xcit_nano_12_p8_224
""".split()
OF_TORCHVISION = """
    deeplabv3_mobilenet_v3_large densenet121 efficientnet_b0 googlenet lraspp_mobilenet_v3_large mc3_18 mnasnet0_5 mobilenet_v2
    mobilenet_v3_large mobilenet_v3_small r2plus1d_18 raft_small regnet_x_400mf regnet_y_400mf resnet18 s3d shufflenet_v2_x1_0
    squeezenet1_1
""".split()
NAMES = [f"timm {name}" for name in OF_TIMM] + [f"torchvision {name}" for name in OF_TORCHVISION]

# Dims of the inputs that are not one image of 224 pixels, and arguments beside the weights.
IMAGE = (1, 3, 224, 224)
DIMS = {
    "mc3_18": [(1, 3, 16, 112, 112)],
    "r2plus1d_18": [(1, 3, 16, 112, 112)],
    "s3d": [(1, 3, 16, 224, 224)],
    "raft_small": [(1, 3, 128, 128)] * 2,
}
ARGUMENTS = {
    "googlenet": dict(init_weights=False),
    "deeplabv3_mobilenet_v3_large": dict(weights_backbone=None),
    "lraspp_mobilenet_v3_large": dict(weights_backbone=None),
}
# The largest difference, as a share of the largest element: sums of many layers.
MOST = 2e-4


class Flat(torch.nn.Module):
    """A module that gives the tensors of what another gives, in their order."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *inputs):
        tensors = []

        def take(given):
            if isinstance(given, torch.Tensor):
                tensors.append(given)
                return
            for part in given.values() if isinstance(given, dict) else given:
                take(part)

        take(self.inner(*inputs))
        return tuple(tensors)


def made(name):
    """The module of an architecture, and its inputs."""
    package, _, architecture = name.partition(" ")
    if package == "timm":
        module = timm.create_model(architecture)
        dims = [(1, *module.default_cfg["input_size"])]
    else:
        module = torchvision.models.get_model(architecture, weights=None, **ARGUMENTS.get(architecture, {}))
        dims = DIMS.get(architecture, [IMAGE])
    for norm in module.modules():
        if isinstance(norm, torch.nn.modules.batchnorm._BatchNorm):
            norm.running_mean.normal_(0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
    return Flat(module.eval()), [torch.rand(of) for of in dims]


def exported(name, folder):
    """The file of an architecture in a folder, and what its inputs are given."""
    path = folder / f"{name.replace(' ', '-')}.onnx"
    if not path.exists():
        torch.manual_seed(0)
        module, inputs = made(name)
        with torch.no_grad():
            torch.onnx.export(module, tuple(inputs), path, dynamo=True, external_data=False, verbose=False)
        ports = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()
        np.savez(path.with_suffix(".npz"), **{port.name: given.numpy() for port, given in zip(ports, inputs, strict=True)})
    return path, dict(np.load(path.with_suffix(".npz")))


def of_runtime(path, threads):
    """What gives all outputs of a model by name."""
    peer = python_peers.runtime_by_turns(path, threads)
    names = [port.name for port in peer.session.get_outputs()]
    return lambda feeds: dict(zip(names, peer.caller(feeds)(), strict=True))


def of_sterna(path, threads):
    import sterna

    session = sterna.load(path, engine=sterna.Engine(threads=threads))
    return lambda feeds: session.run({port["name"]: feeds[port["name"]] for port in session.inputs})


def distance(results, expected):
    """The largest difference of all outputs, as a share of the largest element of each; infinite for another shape."""
    apart = 0.0
    for name, of in expected.items():
        result = np.asarray(results[name])
        if result.shape != of.shape:
            return np.inf
        apart = max(apart, float(np.abs(result - of).max(initial=0) / max(np.abs(of).max(initial=0), 1e-30)))
    return apart


def times(path, feeds, arguments):
    """The best seconds of Sterna and of ONNX Runtime, or why there are none."""
    runtime = of_runtime(path, arguments.threads)
    try:
        ours = of_sterna(path, arguments.threads)
        apart = distance(ours(feeds), runtime(feeds))
    except Exception as error:  # a refusal is reported as any other fault
        return None, f"refused: {str(error).splitlines()[0][:150]}"
    if not apart <= MOST:
        return None, f"off by {apart:.1e}"
    best = [float("inf")] * 2
    for _ in range(arguments.rounds):
        for place, run in enumerate((ours, runtime)):
            best[place] = min(best[place], *python_peers.turn(run, feeds, arguments.seconds))
    return best, None


ABOUT = """\
`benches/models/images.py` runs architectures for images of timm {timm} and torchvision {torchvision} with random weights, in f32, on
{threads} thread{s}, as torch {torch} exports them. Sterna and ONNX Runtime {runtime} run for {seconds} s a round, by turns in one
process; the best run counts, of {rounds} rounds. The ratio is the time of ONNX Runtime divided by Sterna's: above 1 Sterna is ahead.
{date}; {machine}.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filters", nargs="*", help="parts of names of architectures; all without any")
    parser.add_argument("--short", action="store_true", help="every seventh architecture, in one round of short turns")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a turn runs a model (0.5)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/images")
    parser.add_argument("--out", type=pathlib.Path, help="the page that is written, instead of printing it")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.seconds, arguments.rounds = 0.05, 1
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in NAMES if not arguments.filters or any(part in name for part in arguments.filters)]
    best, wrong = {}, []
    for name in names[:: 7 if arguments.short else 1]:
        path, feeds = exported(name, arguments.folder)
        found, fault = times(path, feeds, arguments)
        if fault:
            wrong.append(f"{name}: {fault}")
        else:
            best[name] = found
        print(name, fault or f"{found[1] / found[0]:.2f}", file=sys.stderr, flush=True)
    about = ABOUT.format(
        machine=report.machine(), date=datetime.date.today().isoformat(), seconds=arguments.seconds, rounds=arguments.rounds,
        runtime=onnxruntime.__version__, threads=arguments.threads, s="s" * (arguments.threads > 1), torch=torch.__version__,
        timm=timm.__version__, torchvision=torchvision.__version__,
    )  # fmt: skip
    page = textwrap.fill(about, 120, break_on_hyphens=False) + "\n\n" + ops.slowest_first(best, "architecture", "ms")
    if arguments.out:
        arguments.out.write_text(page)
    else:
        print(page, end="")
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
