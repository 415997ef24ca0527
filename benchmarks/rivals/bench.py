#!/usr/bin/env python3
"""Times this library and its rivals in one run. scripts/bench.sh starts the program. See benchmarks/README.md."""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time

import cases as c
import install
import machine
import report
from runner import Runner
from settings import BF16, LIBRARIES, all_settings, our_settings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOPELESS = 1.6  # later rounds skip a setting if it takes this many times the best rival's time at all sizes


def arguments():
    p = argparse.ArgumentParser(prog="scripts/bench.sh", description=__doc__)
    p.add_argument("--quick", action="store_true", help="few sizes, one round, under 3 minutes")
    p.add_argument(
        "--only",
        metavar="WORDS",
        help="cases whose name holds one of these, joined by commas; "
        "parts joined by + must all be there: 2-shm,tcp+64K",
    )
    p.add_argument("--libraries", metavar="LIST", help="only these rivals: " + ",".join(LIBRARIES))
    p.add_argument("--rounds", type=int, help="how often each library is run in turn (5; quick: 1)")
    p.add_argument("--seconds", type=float, help="time for one size in one run (0.3; quick: 0.06)")
    p.add_argument(
        "--realtime",
        action="store_true",
        help="ranks run at real-time priority: for a machine that others use too",
    )
    p.add_argument("--skip-install", action="store_true", help="use the rivals that are there")
    p.add_argument(
        "--without", default="", metavar="LIST", help="do not install these rivals (gloo is 5 GB)"
    )
    p.add_argument("--rivals", default=f"{ROOT}/build/rivals", help="folder of the rivals")
    p.add_argument(
        "--build",
        default=f"{ROOT}/build/release",
        help="build folder of this project; if given, it is used as it is",
    )
    p.add_argument(
        "--out", help="folder of table and picture (benchmarks/results; quick or partial: build/bench)"
    )
    p.add_argument(
        "--report", metavar="RAW", help="run nothing: table and picture of a raw.json, into --out"
    )
    p.add_argument("--list", action="store_true", help="print the cases and end")
    a = p.parse_args()
    a.rounds = a.rounds or (1 if a.quick else 5)
    a.seconds = a.seconds or (0.06 if a.quick else 0.3)
    partial = a.quick or a.only or a.libraries
    a.out = a.out or f"{ROOT}/" + ("build/bench" if partial else "benchmarks/results")
    a.raw = a.report or f"{ROOT}/build/bench/raw.json"  # the build folder, because raw results never belong in the tree
    a.rivals, a.build = os.path.abspath(a.rivals), os.path.abspath(a.build)
    return a


def plan(a, chosen, state):
    """Returns the launches of one round in their order: [(field, setting, ops, sizes)]."""
    wanted = a.libraries.split(",") if a.libraries else list(LIBRARIES)
    present = [
        s
        for s in all_settings()
        if s.library in wanted and state[s.library]["present"] and (s.quick or not a.quick)
    ]
    order = []
    for field in dict.fromkeys(case.field for case in chosen):
        mine = [case for case in chosen if case.field == field]
        memories = [m for m in ("private", "heap") if any(case.memory == m for case in mine)]
        rivals = [
            s
            for s in present
            if s.transport == field.transport and field.ranks in s.ranks and field.kind in s.kinds
            and (field.type == "fp32" or s.library in BF16)
            # A quick run has no time for ranks that wait for each other's time slices.
            and not (a.quick and s.spins and field.ranks > machine.processors())
        ]
        for setting in our_settings(field.ranks, field.transport, memories) + rivals:
            sizes = [
                size
                for size in c.sizes_of(field, mine)
                if setting.smallest <= size <= setting.largest
            ]
            if sizes:
                order.append((field, setting, c.ops_of(field, mine), sizes))
    return order


def hopeless(runs, field, setting):
    """Returns True if this setting of a rival has run and was far slower than the best rival at
    every size."""
    times = {}  # {(op, bytes): {(library, setting): least us}}
    for run in runs:
        name = (run["library"], run["setting"])
        if run["field"] != field.name or run["library"] not in LIBRARIES:
            continue
        for f in run["figures"]:
            by_name = times.setdefault((f["op"], f["bytes"]), {})
            by_name[name] = min(f["us"], by_name.get(name, f["us"]))
    name = (setting.library, setting.name)
    own = [by_name for by_name in times.values() if name in by_name]
    return bool(own) and all(b[name] > HOPELESS * min(b.values()) for b in own)


def write(a, results, chosen):
    os.makedirs(a.out, exist_ok=True)
    if not a.report:
        os.makedirs(os.path.dirname(a.raw), exist_ok=True)
        with open(a.raw, "w") as file:
            json.dump(results, file, indent=1)
    text = report.markdown(results, chosen, a.libraries and a.libraries.split(","))
    with open(f"{a.out}/ratios.md", "w") as file:
        file.write(text)
    python, here = f"{a.rivals}/plot/bin/python", os.path.dirname(os.path.abspath(__file__))
    if os.path.exists(python):
        command = [python, f"{here}/plot.py", a.raw, f"{a.out}/ratios.svg"]
        subprocess.run(command, check=False)
    return text


def rivals(a):
    """Installs the missing libraries. Returns for each library whether it is present, and its version."""
    if a.skip_install:
        state = install.installed(a.rivals)
    else:
        without = [word for word in a.without.split(",") if word]
        state = install.install(a.rivals, without, lambda text: print(text, flush=True))
    for library in install.RIVALS:
        state.setdefault(library, {"present": False, "reason": "not installed"})
    return state


def show(head, field, setting, record):
    words = [head, field.name, setting.key]
    words += [record["outcome"]] if record["outcome"] != "ok" else []
    for f in record["figures"]:
        line = f"/{max(f['line_ns']):.0f}ns" if "line_ns" in f else ""
        words.append(f"{c.size_text(f['bytes'])}:{report.time_text(f['us'])}{line}")
    print(" ".join(words), flush=True)


def measure(a, runner, order, results, chosen):
    """Runs all rounds, and writes the results after each round."""
    runs, began = results["runs"], time.monotonic()
    for turn in range(a.rounds):
        results["rounds"] = turn + 1
        for number, (field, setting, ops, sizes) in enumerate(order, 1):
            if turn > 0 and hopeless(runs, field, setting):
                continue
            runs.append(runner.run(setting, field, ops, sizes, a.seconds, 12 if a.quick else 90))
            head = f"[round {turn + 1}/{a.rounds}, {number}/{len(order)}"
            show(f"{head}, {time.monotonic() - began:.0f} s]", field, setting, runs[-1])
        write(a, results, chosen)


def main():
    a = arguments()
    chosen = c.selected(a.only, a.quick)
    if a.list or not chosen:
        print("\n".join(case.name for case in chosen) or "no case has that name")
        return 0 if chosen else 2
    if a.report:
        with open(a.report) as file:
            former = json.load(file)
        print(write(a, former, c.selected(a.only, former["quick"])))
        return 0
    state = rivals(a)
    if a.realtime and not shutil.which("chrt"):
        print("bench: --realtime needs chrt", file=sys.stderr)
        return 2
    # Round robin: ranks that share a processor must take turns.
    prefix = ["chrt", "-r", "50"] if a.realtime else []
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "machine": machine.describe(),
        "rounds": 0,
        "seconds": a.seconds,
        "quick": a.quick,
        "realtime": a.realtime,
        "rivals": state,
        "runs": [],
    }
    repeats = 1 if a.quick else 3
    runner = Runner(a.rivals, a.build, machine.processors(), prefix, repeats)
    try:
        measure(a, runner, plan(a, chosen, state), results, chosen)
    finally:  # after an interrupt, the results so far are kept
        if results["runs"]:
            print("\n" + write(a, results, chosen))
            print(f"bench: written: {a.out}/ratios.md, {a.out}/ratios.svg, {a.raw}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
