#!/usr/bin/env python3
"""Compares two builds of this library in one run. Prints old time / new time for each operation, size, kind of memory
and transport.

    cmake --build --preset release --target hccl_bench && benchmarks/compare.py OLD NEW

OLD and NEW name a libhccl.so, or a build or install tree that holds one. Both are timed by the same program through the
public C interface, in turn: old, new, new, old, ... A ratio compares the medians of all rounds; a case that falls below
its bar is timed once more, and the second time counts. The method is in rivals/method.h. Exit status: 0 if the bars are
met, 1 if they are not met, 2 if the run could not decide.
"""

import argparse
import glob
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/rivals")

from cases import KIB, MIB, size_text  # noqa: E402
from runner import last_words, read_figures  # noqa: E402

OPS = ("allreduce", "broadcast", "reduce_scatter", "allgather", "alltoall", "reduce", "barrier")
SIZES = (4, 64, KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES = (64, 8 * KIB, 256 * KIB, 4 * MIB)
NAMES = ("old", "new")


class Trouble(Exception):
    pass


def library(path):
    """Returns the folder of the libhccl.so.0 to which a path leads."""
    path = os.path.abspath(path)
    if os.path.isfile(path):
        path = os.path.dirname(path)
    for inside in ("", "lib", "lib/*", "lib64", "release/lib", "build/release/lib"):
        for found in sorted(glob.glob(os.path.join(path, inside, "libhccl.so.0"))):
            return os.path.dirname(found)
    raise Trouble(f"no libhccl.so.0 in {path}")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("--quick", action="store_true", help="fewer sizes: under 2 minutes")
    p.add_argument("--ranks", type=int, default=2, help="2; 4 or 8: more ranks than cores")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, help="of one size in one round (0.05; quick: 0.02)")
    p.add_argument("--ops", default=",".join(OPS))
    p.add_argument("--sizes", help="in bytes, K or M, joined by commas")
    p.add_argument("--transports", default="shm,tcp")
    p.add_argument("--memories", default="heap,private")
    p.add_argument("--type", default="fp32", choices=("fp32", "fp16", "bf16"))
    p.add_argument("--program", default=f"{HERE}/../build/release/benchmarks/hccl_bench")
    p.add_argument("--realtime", action="store_true", help="for a machine that others use too")
    p.add_argument("--json", help="also write every figure to this file")
    a = p.parse_args()
    a.crowded = a.ranks > len(os.sched_getaffinity(0))
    a.floor, a.mean = (0.75, 0.90) if a.crowded else (0.90, 0.98)
    a.seconds = a.seconds or (0.02 if a.quick else 0.05)
    # Ranks that share cores need seconds for one operation of 64 MiB over tcp.
    sizes = QUICK_SIZES if a.quick else [s for s in SIZES if not (a.crowded and s > 16 * MIB)]
    a.sizes = a.sizes or ",".join(map(size_text, sizes))
    return a


def run(a, folder, transport, memory, ops, sizes):
    """Launches the ranks once. Returns {(op, bytes): us}, and the times of a cache line around each figure."""
    command = [a.program, "--pin", "--ops", ops, "--sizes", sizes, "--type", a.type]
    command += ["--memory", memory, "--seconds", str(a.seconds), "--limit", "120"]
    if a.realtime:
        command = ["chrt", "-r", "50", *command]
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hccl-compare-", dir=place) as home:
        open(f"{home}/page", "w").close()
        with open(f"{home}/output", "w+") as output:
            ranks = [
                subprocess.Popen(
                    [*command, "--page", f"{home}/page"],
                    stdout=output,
                    stderr=output,
                    env={
                        **os.environ,
                        "LD_LIBRARY_PATH": folder,
                        "HCCL_TRANSPORT": transport,
                        "BENCH_RANK": str(rank),
                        "BENCH_SIZE": str(a.ranks),
                    },
                )
                for rank in range(a.ranks)
            ]
            codes = [rank.wait() for rank in ranks]  # each rank ends itself after --limit
            output.seek(0)
            text = output.read()
    version, figures = read_figures(text)
    if any(codes):
        raise Trouble(f"{folder}, {transport}, {memory}: {last_words(text)}")
    if not os.path.realpath(version.split()[-1]).startswith(os.path.realpath(folder)):
        raise Trouble(f"{a.program} loads {version.split()[-1]} rather than what is in {folder}")
    lines = [ns for f in figures for ns in f.get("line_ns", [])]
    return {(f["op"], f["bytes"]): f["us"] for f in figures}, lines


def rounds(a, folders, plan, say):
    """Returns {(transport, memory, op, bytes): ([old us, ...], [new us, ...])}, and the times of a
    cache line. plan: [(transport, memory, ops, sizes)]."""
    found, lines = {}, []
    for turn in range(a.rounds):
        for transport, memory, ops, sizes in plan:
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                times, seen = run(a, folders[which], transport, memory, ops, sizes)
                lines += seen
                for case, us in times.items():
                    found.setdefault((transport, memory, *case), ([], []))[which].append(us)
        say(f"round {turn + 1} of {a.rounds}")
    return found, lines


def ratio(times):
    return statistics.median(times[0]) / statistics.median(times[1])


def table(found, floor):
    """Returns a Markdown table with a row for each operation and a column for each size."""
    sizes = sorted({case[3] for case in found if case[3]})
    text = ["| transport, memory, operation | " + " | ".join(map(size_text, sizes)) + " |"]
    text.append("|---|" + "---:|" * len(sizes))
    for head in dict.fromkeys(case[:3] for case in found):
        cells = []
        for size in sizes if head[2] != "barrier" else [0]:
            value = ratio(found[(*head, size)]) if (*head, size) in found else None
            mark = "**" if value and value < floor else ""
            cells.append("-" if value is None else f"{mark}{value:.2f}{mark}")
        cells += [""] * (len(sizes) - len(cells))
        text.append(f"| {', '.join(head)} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def report(a, found, again, lines):
    mean = math.exp(statistics.fmean(math.log(ratio(times)) for times in found.values()))
    low = {case: times for case, times in found.items() if ratio(times) < a.floor}
    print("\n" + table(found, a.floor))
    print(f"\n{a.ranks} ranks, {a.type}, {a.rounds} rounds; ratio = old time / new time.")
    if lines:
        tenths = statistics.quantiles(lines, n=10)
        print(f"A cache line took {statistics.median(lines):.0f} ns from core to core "
              f"(first and last tenth: {tenths[0]:.0f}, {tenths[-1]:.0f}).")
    print(f"Geometric mean {mean:.3f} (bar {a.mean}); {len(low)} of {len(found)} cases below "
          f"{a.floor:.2f} after {len(again)} were repeated.")
    for case, times in sorted(low.items(), key=lambda item: ratio(item[1])):
        old, new = map(statistics.median, times)
        first = f", first {ratio(again[case]):.2f}" if case in again else ""
        print(f"  {' '.join(case[:3])} {size_text(case[3])}: {old:.2f} -> {new:.2f} us, "
              f"{old / new:.2f}{first}")
    return 0 if mean >= a.mean and not low else 1


def main():
    a = arguments()
    began = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - began:.0f} s] {text}", file=sys.stderr, flush=True)

    folders = [library(a.old), library(a.new)]
    for name, folder in zip(NAMES, folders):
        print(f"{name}: {folder}")
    everything = [(t, m) for t in a.transports.split(",") for m in a.memories.split(",")]
    found, lines = rounds(a, folders, [(*each, a.ops, a.sizes) for each in everything], say)
    again = {case: times for case, times in found.items() if ratio(times) < a.floor}
    if again:
        say(f"{len(again)} cases below {a.floor:.2f} are timed once more")
        plan = []
        for head in dict.fromkeys(case[:3] for case in again):
            sizes = [case[3] or 4 for case in again if case[:3] == head]  # a barrier has no size
            plan.append((*head, ",".join(map(size_text, sizes))))
        second, more = rounds(a, folders, plan, say)
        found.update(second)
        lines += more
    if a.json:
        with open(a.json, "w") as file:
            json.dump([{"case": c, "old": o, "new": n} for c, (o, n) in found.items()], file)
    return report(a, found, again, lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as problem:
        print(f"compare: {problem}", file=sys.stderr)
        sys.exit(2)
