#!/usr/bin/env python3
"""Draws the picture of the README, docs/attention.svg, from the table of a record: the time of attention against the tiles
that a mask leaves, beside torch.

    benches/attention/picture.py [--check]

--check draws nothing, and fails where the picture is not that of the record.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "benches/record/2026-11-25-attention-peers-2.md"
PICTURE = ROOT / "docs/attention.svg"
SHAPE = "f32 8x1024x64"
# Of the 256 tiles of 64 queries and 64 keys, those with a pair that the mask keeps: column `tiles` of `peers.py`.
TILES = {
    "full": 256,
    "full tensor": 256,
    "causal tensor": 136,
    "window tensor": 31,
    "causal-document tensor": 77,
    "document tensor": 138,
    "share-question tensor": 112,
    "global-window tensor": 45,
    "causal-blockwise tensor": 112,
    "prefix-lm tensor": 164,
    "prefix-lm-document tensor": 94,
    "qk-sparse tensor": 136,
    "random-eviction tensor": 136,
    "padding tensor": 160,
    "sink-window tensor": 45,
    "strided tensor": 52,
    "chunked-local tensor": 24,
    "random-50 tensor": 256,
    "random-1 tensor": 256,
}
WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 44, 48
OWN, PEER, INK, GRID = "#0b6e99", "#d9730d", "#37352f", "#dddddd"


def points():
    """For each row of the record with a mask: its share of tiles, and the milliseconds of Sterna and of torch."""
    found = []
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and (row := cells[0].removeprefix(SHAPE + " ")) in TILES:
            found.append((TILES[row] / 256, float(cells[2]), float(cells[2]) * float(cells[3])))
    if len(found) != len(TILES):
        sys.exit(f"{RECORD.name} has {len(found)} of {len(TILES)} rows")
    return sorted(found)


def drawing():
    data = points()
    top = max(ms for _, *times in data for ms in times) * 1.08
    across = lambda share: LEFT + share * (WIDTH - LEFT - RIGHT)
    up = lambda ms: HEIGHT - BOTTOM - ms / top * (HEIGHT - TOP - BOTTOM)
    text = lambda x, y, words, anchor="middle", colour=INK: (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
    )
    line = lambda x1, y1, x2, y2, style: f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" {style}/>'
    # One element a line and no empty line: Markdown that has the text of the picture in it takes it as a whole.
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="13" role="img" aria-label="Time of masked attention against the tiles '
        'that the mask leaves, beside torch">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#ffffff"/>',
    ]
    for percent in range(0, 101, 20):
        x = across(percent / 100)
        lines.append(line(x, TOP, x, HEIGHT - BOTTOM, f'stroke="{GRID}"'))
        lines.append(text(x, HEIGHT - BOTTOM + 18, f"{percent} %"))
    for ms in range(0, int(top) + 1, 5):
        lines.append(line(LEFT, up(ms), WIDTH - RIGHT, up(ms), f'stroke="{GRID}"'))
        lines.append(text(LEFT - 8, up(ms) + 4, f"{ms}", "end"))
    whole = min(own for share, own, _ in data if share == 1)
    lines.append(line(across(0), up(0), across(1), up(whole), f'stroke="{OWN}" stroke-dasharray="5 4" opacity="0.6"'))
    for share, own, peer in data:
        lines.append(f'<circle cx="{across(share):.1f}" cy="{up(peer):.1f}" r="4.5" fill="{PEER}"/>')
        lines.append(f'<circle cx="{across(share):.1f}" cy="{up(own):.1f}" r="4.5" fill="{OWN}"/>')
    lines.append(text(LEFT, 24, "ms, attention of 8 heads, 1,024 queries and keys, depth 64, f32, one thread", "start"))
    lines.append(text(across(0.5), HEIGHT - 10, "tiles of 64 x 64 scores that the mask leaves"))
    for number, (colour, words) in enumerate([(PEER, "torch"), (OWN, "Sterna"), (OWN, "cost of the tiles left")]):
        y = up(top) + 120 + 20 * number
        mark = f'<circle cx="{across(0.03):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
        dashes = line(across(0.02), y, across(0.04), y, f'stroke="{colour}" stroke-dasharray="5 4" opacity="0.6"')
        lines += [dashes if number == 2 else mark, text(across(0.05), y + 4, words, "start")]
    return "\n".join([*lines, "</svg>"]) + "\n"


def main():
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(drawing(), encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != drawing():
        sys.exit(f"{PICTURE.relative_to(ROOT)} is not the picture of {RECORD.name}: benches/attention/picture.py draws it")


if __name__ == "__main__":
    main()
