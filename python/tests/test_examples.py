"""The examples run, and the programs of the guide do what the guide says."""

import ast
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "python/examples").glob("*.py"))
WITH_PROGRAMS = ["docs/guide/python.md", "docs/guide/pytorch.md", "docs/guide/cookbook.md", "python/README.md", "README.md"]
PAGES = [ROOT / page for page in WITH_PROGRAMS]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path):
    if "import torch" in path.read_text():
        pytest.importorskip("torch")
    done = subprocess.run([sys.executable, path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_notebook():
    """The cells run one after the other, and what stands last in a cell has a picture where it is shown."""
    cells = json.loads((ROOT / "python/examples/masks.ipynb").read_text())["cells"]
    names, shown = {}, 0
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        assert cell["outputs"] == [], "the notebook is kept without what it shows"
        program = ast.parse("".join(cell["source"]))
        last = program.body.pop() if isinstance(program.body[-1], ast.Expr) else None
        exec(compile(program, "masks.ipynb", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "masks.ipynb", "eval"), names)
            shown += "<table" in value._repr_html_()
    assert shown == 5


def blocks(page):
    """The programs of a page, each with what it prints if a block of language `output` follows."""
    text = page.read_text()
    found = re.findall(r"```python\n(.*?)```(?:\s*```output\n(.*?)```)?", text, re.DOTALL)
    return [pytest.param(code, output, id=f"{page.stem}-{index}") for index, (code, output) in enumerate(found)]


@pytest.mark.parametrize(("code", "output"), [block for page in PAGES for block in blocks(page)])
def test_pages(code, output, tmp_path):
    for module in ("torch", "transformers"):
        if f"import {module}" in code or f"from {module} " in code:
            pytest.importorskip(module)
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path, env=None
    )
    assert done.returncode == 0, done.stderr
    if output:
        assert done.stdout == output
