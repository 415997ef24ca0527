#!/usr/bin/env python3
"""Measures the cost of protected data: allreduce of two ranks over tcp with HCCL_WIRE=plain, crc and tls in turn.

    benchmarks/wire.py build/release/benchmarks/hccl_perf
    benchmarks/wire.py HCCL_PERF --old DIR      # and another build of the library, plain
    benchmarks/wire.py HCCL_PERF --line 10gbit  # between two namespaces (hosts.sh; root)

The figure of a size is the median of the rounds; the ratio is the time divided by that of plain. GB/s: the bytes that a
rank sends and receives per second.
"""

import argparse
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("program")
    p.add_argument("--old", help="the folder of another libhccl.so.0, timed with plain")
    p.add_argument("--line", help="a rate for hosts.sh, as 10gbit; otherwise loopback")
    p.add_argument("--sizes", default="64K,1M,64M")
    p.add_argument("--iterations", default="2000,400,10", help="a size each")
    p.add_argument("--wires", default="plain,crc,tls")
    p.add_argument("--op", default="allreduce")
    p.add_argument("--rounds", type=int, default=5)
    return p.parse_args()


def once(a, name, size, iterations):
    """Returns the microseconds of the median iteration."""
    options = ["--op", a.op, "-b", size, "-e", size, "-n", iterations, "-w", "3"]
    env = dict(os.environ, HCCL_TRANSPORT="tcp")
    if name != "old":
        env["HCCL_WIRE"] = name
    elif a.line:
        env["HCCL_WIRE"] = "plain"  # older libraries ignore the variable
    if name == "old":
        env["LD_LIBRARY_PATH"] = os.path.abspath(a.old)
    command = [a.program, *options, "--threads", "2"]
    if a.line:
        env["RANKS_PER_HOST"] = "1"
        command = [f"{HERE}/hosts.sh", a.program, a.line, *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    if done.returncode != 0 or len(rows) != 1:
        raise SystemExit(f"{name}, {size}: {done.stdout}{done.stderr}")
    return int(rows[0][0]), float(rows[0][2])


def main():
    a = arguments()
    names = (["old"] if a.old else []) + a.wires.split(",")
    print(f"# {a.op} of 2 ranks over tcp, {a.line or 'loopback'}, median of {a.rounds} rounds in turn")
    for size, iterations in zip(a.sizes.split(","), a.iterations.split(",")):
        times = {name: [] for name in names}
        for turn in range(a.rounds):
            for name in names if turn % 2 == 0 else reversed(names):
                count, us = once(a, name, size, iterations)
                times[name].append(us)
        plain = statistics.median(times.get("plain", times[names[0]]))
        for name in names:
            us = statistics.median(times[name])
            print(f"{size:>5} {name:>6} {us:12.1f} us {us / plain:7.3f} {2 * count / us / 1000:8.2f} GB/s"
                  f"   ({min(times[name]):.1f} to {max(times[name]):.1f})", flush=True)


if __name__ == "__main__":
    main()
