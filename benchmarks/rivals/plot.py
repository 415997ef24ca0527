"""Plots a raw result file: plot.py raw.json ratios.svg. It must run in the environment that has
matplotlib."""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

from cases import size_text  # noqa: E402
from report import collect, fastest  # noqa: E402
from settings import LIBRARIES  # noqa: E402


def curves(results):
    """Returns {(ranks, transport): {label: [(bytes, us), ...]}} of fp32 allreduce."""
    panels = {}
    for (ranks, transport, op, kind, size), figures in sorted(collect(results).items()):
        if (op, kind) != ("allreduce", "fp32"):
            continue
        panel = panels.setdefault((ranks, transport), {})
        for library, name in LIBRARIES.items():
            best = fastest([f for f in figures if f.library == library])
            if best:
                panel.setdefault(name, []).append((size, best.us))
        for figure in figures:
            if figure.library == "hccl":
                panel.setdefault(f"hccl, {figure.setting}", []).append((size, figure.us))
    return panels


def draw(results, path):
    panels = curves(results)
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.6), squeeze=False)
    colors = {label: f"C{i}" for i, label in enumerate(LIBRARIES.values())}
    for axis, ((ranks, transport), panel) in zip(axes[0], panels.items()):
        for label, points in panel.items():
            ours = label.startswith("hccl")
            axis.plot(
                *zip(*points),
                label=label,
                marker="o",
                markersize=3,
                linewidth=2.2 if ours else 1,
                color="black" if ours else colors[label],
                linestyle="--" if label == "hccl, private" else "-",
            )
        sizes = sorted({size for points in panel.values() for size, _ in points})
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(sizes, [size_text(size) for size in sizes], rotation=60)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.set_title(f"allreduce, {ranks} ranks, {transport}")
        axis.set_xlabel("bytes")
        axis.set_ylabel("microseconds (slowest rank)")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    with open(sys.argv[1]) as source:
        draw(json.load(source), sys.argv[2])
