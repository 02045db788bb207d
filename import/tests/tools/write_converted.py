"""Converts the node cases of the package onnx by the package openvino: import/tests/openvino_cases.rs reads them.

    write_converted.py FOLDER CASES

CASES is what write_onnx_cases.py has written. FOLDER gets a model NAME.xml and NAME.bin for each case of tensors that the
package reads, and `cases.json`, the list of these cases.
"""

import json
import sys
from pathlib import Path

import openvino as ov


def main() -> None:
    folder, source = Path(sys.argv[1]), Path(sys.argv[2])
    core = ov.Core()
    converted = []
    for case in json.loads((source / "cases.json").read_text()):
        if not case["tensors"]:
            continue
        try:
            model = core.read_model(source / case["name"] / "model.onnx")
            if len(model.inputs) == len(case["inputs"]) and len(model.outputs) == len(case["outputs"]):
                ov.save_model(model, folder / f"{case['name']}.xml", compress_to_fp16=False)
                names = [parameter.get_friendly_name() for parameter in model.get_parameters()]
                converted.append(case | {"inputs": names})
        except RuntimeError:
            continue
    (folder / "cases.json").write_text(json.dumps(converted, indent=0))


if __name__ == "__main__":
    main()
