#!/usr/bin/env python3
"""Says which public items have no example in their documentation, and belong to none that has one.

    .ci/examples.py RUSTDOC.json

A method, field or variant belongs to its type, the type of a field or variant to whose it is (the faults to `Error`), a
method of a trait to the trait, and what is in a module to the module; nothing belongs to the crate as a whole. The file is what rustdoc of the nightly toolchain writes as JSON.
"""

import json
import re
import sys

COMPILED = {"", "rust", "no_run", "should_panic"}


def has_example(docs):
    """Whether a block of code in some documentation is compiled."""
    fences = re.findall(r"^\s*```(.*)$", docs or "", re.M)
    return any(fence.strip() in COMPILED for fence in fences[::2])


def types_in(type):
    """The ids of the types that a type is made of."""
    if isinstance(type, dict):
        path = type.get("resolved_path")
        return ([path["id"]] if path else []) + [id for part in type.values() for id in types_in(part)]
    return [id for part in type for id in types_in(part)] if isinstance(type, list) else []


def children(index, kind, inner):
    """The ids of what belongs to an item."""
    if kind in ("module", "trait"):
        return inner["items"]
    found = []
    if kind == "enum":
        found += inner["variants"]
    if kind in ("struct", "variant") and isinstance(inner["kind"], dict):
        for fields in inner["kind"].values():
            found += fields["fields"] if isinstance(fields, dict) else fields
    if kind == "struct_field":
        found += types_in(inner)
    for block in inner.get("impls", []):
        implemented = index[str(block)]["inner"]["impl"] if str(block) in index else None
        if implemented and implemented["trait"] is None:
            found += implemented["items"]
    return found


def main(file):
    with open(file) as text:
        crate = json.load(text)
    index = crate["index"]
    seen, covered_ones = {}, set()

    def visit(id, path, covered):
        item = index.get(str(id))
        if item is None or item["visibility"] not in ("public", "default"):
            return
        (kind, inner), = item["inner"].items()
        if kind == "use":
            if inner["id"] is not None:
                visit(inner["id"], path, covered)
            return
        is_crate = kind == "module" and inner["is_crate"]
        path = path + [item["name"] or "?"]
        covered = covered or has_example(item["docs"])
        if id in covered_ones or (id in seen and not covered):
            return
        seen.setdefault(id, "::".join(path))
        if covered:
            covered_ones.add(id)
        for child in children(index, kind, inner) if isinstance(inner, dict) else []:
            visit(child, path, covered and not is_crate)

    visit(crate["root"], [], False)
    missing = [path for id, path in seen.items() if id not in covered_ones]
    print(f"{len(seen)} public items, {len(missing)} without an example")
    if len(seen) < 100:
        sys.exit("a library has more public items than that")
    if missing:
        sys.exit("\n".join(missing))


if __name__ == "__main__":
    main(sys.argv[1])
