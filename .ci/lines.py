#!/usr/bin/env python3
"""Fails where a line of code is wider than rustfmt's `max_width`. rustfmt itself leaves comments and text as they are.

    .ci/lines.py [--rewrap]

--rewrap fills those paragraphs of comments anew that have such a line; other lines are for hands.
"""

import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["src", "benches", "import", "capi", "cli", "inspect", "fuzz", "python"]
# Messages and documents stand in these tests as they are; only their comments are filled.
COMMENTS_OF = "tests"
WIDTH = int(re.search(r"^max_width = (\d+)", (ROOT / "rustfmt.toml").read_text(), re.MULTILINE)[1])
COMMENT = re.compile(r"(\s*//[/!]?)( .*|)")
ITEM = re.compile(r"(- |\* |\d+\. )")
# Headings, rows of tables and code by indentation stay as they are.
VERBATIM = re.compile(r"#|\||<!--|    ")


def sources():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *FOLDERS, COMMENTS_OF],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    )
    return sorted({ROOT / name for name in listed.stdout.split("\0") if name.endswith(".rs") and (ROOT / name).exists()})


def paragraphs(lines):
    """Groups of lines: a paragraph of a comment with its mark, or one other line without."""
    current, in_code = None, False
    for line in lines:
        match = COMMENT.fullmatch(line)
        mark, text = (match[1], match[2].removeprefix(" ")) if match else (None, "")
        if match and text.startswith("```"):
            in_code = not in_code
        is_prose = match and not in_code and text and not text.startswith("```") and not VERBATIM.match(text)
        in_code = in_code and match is not None
        if is_prose and current and current[0] == mark and not ITEM.match(text):
            current[1].append(line)
            continue
        if current:
            yield current
        current = (mark, [line]) if is_prose else None
        if not is_prose:
            yield None, [line]
    if current:
        yield current


def rewrapped(mark, lines):
    text = " ".join(COMMENT.fullmatch(line)[2].strip() for line in lines)
    item = ITEM.match(text)
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{mark} ", subsequent_indent=f"{mark} " + " " * len(item[1] if item else ""),
        break_long_words=False, break_on_hyphens=False,
    )


def rewrap(path):
    lines = path.read_text(encoding="utf-8").split("\n")
    new = []
    for mark, group in paragraphs(lines):
        is_wide = any(len(line) > WIDTH for line in group)
        new += rewrapped(mark, group) if mark and is_wide else group
    if new != lines:
        path.write_text("\n".join(new), encoding="utf-8")


def main():
    if "--rewrap" in sys.argv[1:]:
        for path in sources():
            rewrap(path)
    wide = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)} characters, at most {WIDTH}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDTH and (COMMENT.fullmatch(line) or ROOT / COMMENTS_OF not in path.parents)
    ]
    print("\n".join(wide) or f"no line is wider than {WIDTH}")
    sys.exit(bool(wide))


main()
