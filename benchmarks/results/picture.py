#!/usr/bin/env python3
"""picture.py [RATIOS.md ...]: draws picture.svg beside each table that scripts/bench.sh wrote.

Each curve shows an fp32 allreduce of the table, by size: the fastest rival's time divided by this
library's time. Standard library only. Without arguments, the program draws a picture for every
ratios.md in this folder and below.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from curves import draw, size_bytes

# Curves: label, colour, and the beginnings of the table's headings whose rows belong to the curve.
CURVES = [
    ("2 ranks, device memory", "#0b5fa5", ("2 ranks, shm, any", "2 ranks, shm, heap")),
    ("4 ranks, device memory", "#3fa34d", ("4 ranks, shm, heap",)),
    ("8 ranks, device memory", "#8a5cc2", ("8 ranks, shm, heap",)),
    ("2 ranks, ordinary memory", "#e07b00", ("2 ranks, shm, any", "2 ranks, shm, private")),
    ("2 ranks, tcp", "#c0392b", ("2 ranks, tcp",)),
]


def read_ratios(text):
    """Returns {heading: [(bytes, ratio), ...]} of the allreduce sections of a table."""
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


def picture(text):
    sections = read_ratios(text)
    lines = []
    for label, colour, starts in CURVES:
        parts = [points for heading, points in sections.items() if heading.startswith(starts)]
        if any(parts):
            lines.append((label, colour, sorted(sum(parts, []))))
    machine = text.split("\n")[2].split("; ")[1].split(",")[0].replace("(R)", "")
    return draw(f"allreduce: time of the fastest rival / time of hccl, {machine}", lines)


def main():
    for table in map(pathlib.Path, sys.argv[1:] or sorted(HERE.rglob("ratios.md"))):
        table.with_name("picture.svg").write_text(picture(table.read_text()))
        print(table.with_name("picture.svg"))


if __name__ == "__main__":
    main()
