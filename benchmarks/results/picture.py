#!/usr/bin/env python3
"""picture.py [RATIOS.md ...]: draws picture.svg beside each table that scripts/bench.sh wrote.

A curve is an fp32 allreduce of the table: the ratio of the fastest rival's time to ours, by size.
Standard library only. Without arguments: every ratios.md in this folder and below.
"""

import math
import pathlib
import re
import sys

# Curves: label, colour, and the beginnings of the table's headings whose rows belong to the curve.
CURVES = [
    ("2 ranks, device memory", "#0b5fa5", ("2 ranks, shm, any", "2 ranks, shm, heap")),
    ("4 ranks, device memory", "#3fa34d", ("4 ranks, shm, heap",)),
    ("8 ranks, device memory", "#8a5cc2", ("8 ranks, shm, heap",)),
    ("2 ranks, ordinary memory", "#e07b00", ("2 ranks, shm, any", "2 ranks, shm, private")),
    ("2 ranks, tcp", "#c0392b", ("2 ranks, tcp",)),
]
LEFT, TOP, WIDTH, HEIGHT = 56, 46, 520, 300


def size_bytes(text):
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def read_ratios(text):
    """{heading: [(bytes, ratio), ...]} of the allreduce sections of a table."""
    sections = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, body = section.partition("\n")
        if not heading.startswith("allreduce, ") or re.search(r", (bf16|fp16|int\d+)$", heading):
            continue
        lines = [line for line in body.split("\n") if "|" in line]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        size, ratio = rows[0].index("size"), rows[0].index("ratio")
        points = [(row[size], re.search(r"[\d.]*\d", row[ratio])) for row in rows[2:]]
        sections[heading.removeprefix("allreduce, ")] = [
            (size_bytes(size), float(number[0])) for size, number in points if number
        ]
    return sections


def draw(text):
    sections = read_ratios(text)
    lines = []
    for label, colour, starts in CURVES:
        parts = [points for heading, points in sections.items() if heading.startswith(starts)]
        if any(parts):
            lines.append((label, colour, sorted(sum(parts, []))))
    sizes = [size for _, _, points in lines for size, _ in points]
    ratios = [ratio for _, _, points in lines for _, ratio in points]
    top, bottom = max(ratios), min(1.0, *ratios) / 1.1
    low, high = math.log2(min(sizes)), math.log2(max(sizes))

    def x(size):
        return LEFT + WIDTH * (math.log2(size) - low) / (high - low)

    def y(ratio):
        return TOP + HEIGHT * (1 - math.log2(ratio / bottom) / math.log2(top * 1.1 / bottom))

    machine = text.split("\n")[2].split("; ")[1].split(",")[0].replace("(R)", "")
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {LEFT + WIDTH + 20} {TOP + HEIGHT + 110}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="13">allreduce: time of the fastest rival / '
        f"time of hccl, {machine}</text>",
    ]
    for ratio in (0.5, 1, 2, 3, 4, 6, 8, 12):
        if bottom <= ratio <= top * 1.1:
            stroke = '#444" stroke-width="1.5' if ratio == 1 else "#ddd"
            height = f"{y(ratio):.1f}"
            out.append(f'<path d="M{LEFT} {height}h{WIDTH}" stroke="{stroke}"/>')
            place = f'x="{LEFT - 8}" y="{height}" dy="4" text-anchor="end"'
            out.append(f"<text {place}>{ratio:g}x</text>")
    for name in ("8", "64", "1K", "8K", "64K", "1M", "4M", "16M", "64M", "256M"):
        if low <= math.log2(size_bytes(name)) <= high:
            place = f'x="{x(size_bytes(name)):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle"'
            out.append(f"<text {place}>{name}</text>")
    place = f'x="{LEFT + 4}" y="{y(1) + 14:.1f}" fill="#444"'
    out.append(f"<text {place}>below this line a rival is faster</text>")
    for i, (label, colour, points) in enumerate(lines):
        path = " ".join(f"{x(size):.1f},{y(ratio):.1f}" for size, ratio in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        column, row = LEFT + 182 * (i % 3), TOP + HEIGHT + 50 + 22 * (i // 3)
        out.append(f'<path d="M{column} {row - 4}h22" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{column + 28}" y="{row}">{label}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    here = pathlib.Path(__file__).parent
    for table in map(pathlib.Path, sys.argv[1:] or sorted(here.rglob("ratios.md"))):
        table.with_name("picture.svg").write_text(draw(table.read_text()))
        print(table.with_name("picture.svg"))


if __name__ == "__main__":
    main()
