"""The reference of the package as HTML, from its docstrings and the types of its stubs, by pdoc.

    python python/docs/reference.py FOLDER

needs the package and pdoc installed. A warning of pdoc is an error, as is a public name that the page lacks.
"""

from __future__ import annotations

import inspect
import pathlib
import sys
import warnings

import pdoc
from pdoc import doc_pyi

import sterna

# The package takes its functions and classes from the native module, to which the stubs belong.
STUBS = pathlib.Path(sterna.__file__).with_name("_sterna.pyi")


def anchors():
    """The anchors that the page must have: each public name, and what a class has of its own."""
    for name in sterna.__all__:
        yield name
        item = getattr(sterna, name)
        if inspect.isclass(item) and item.__module__ != "sterna._errors":
            yield from (f"{name}.{member}" for member in vars(item) if not member.startswith("_"))


def main():
    folder = pathlib.Path(sys.argv[1])
    warnings.simplefilter("error")
    # Fields of errors are plain data, of which nobody can say that.
    warnings.filterwarnings("ignore", "Cannot determine where .* is taken from")
    doc_pyi.find_stub_file = lambda name: STUBS if name == "sterna" else None
    pdoc.render.configure(docformat="google", show_source=False, footer_text=f"sterna {sterna.__version__}")
    pdoc.pdoc("sterna", output_directory=folder)
    page = (folder / "sterna.html").read_text()
    missing = [anchor for anchor in anchors() if f'id="{anchor}"' not in page]
    if missing:
        sys.exit(f"the reference lacks {', '.join(missing)}")
    print(folder / "sterna.html")


if __name__ == "__main__":
    main()
