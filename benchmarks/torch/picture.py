#!/usr/bin/env python3
"""picture.py: draws bench.svg from the allreduces in bench.md: Gloo's time divided by hccl's time,
by size. Standard library only."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from curves import draw, size_bytes

COLOURS = {"2 ranks, heap": "#0b5fa5", "2 ranks, ordinary": "#e07b00", "4 ranks, heap": "#3fa34d", "4 ranks, ordinary": "#8a5cc2"}


def read(text):
    """Returns {"2 ranks, heap": [(bytes, ratio), ...]}."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        ranks = section.partition("\n")[0]
        for memory, size, unit, ratio in re.findall(
            r"^\| all_reduce, (\w+) \| (\d+) ([KM]?)i?B \|.*?\|.*?\| ([\d.]+) \|", section, flags=re.M
        ):
            found.setdefault(f"{ranks}, {memory}", []).append((size_bytes(size + unit), float(ratio)))
    return found


def main():
    lines = [(label, COLOURS[label], points) for label, points in read((HERE / "bench.md").read_text()).items()]
    (HERE / "bench.svg").write_text(draw("all_reduce of torch.distributed: time of Gloo / time of hccl", lines))


if __name__ == "__main__":
    main()
