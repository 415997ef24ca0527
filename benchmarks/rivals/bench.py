#!/usr/bin/env python3
"""Ours against the rivals in one run; started by scripts/bench.sh. See benchmarks/README.md."""

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
from settings import LIBRARIES, all_settings, limit_settings, our_settings
from states import figures_in_states, group_of, lines_seen

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOPELESS = 1.6  # a setting this much behind the best rival at every size is not run in later rounds


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
        "--out", help="folder of the results (benchmarks/results; quick: build/bench-quick)"
    )
    p.add_argument(
        "--report", metavar="RAW", help="run nothing: the table of a raw.json, to standard output"
    )
    p.add_argument("--list", action="store_true", help="print the cases and end")
    a = p.parse_args()
    a.rounds = a.rounds or (1 if a.quick else 5)
    a.seconds = a.seconds or (0.06 if a.quick else 0.3)
    partial = a.quick or a.only or a.libraries
    a.out = a.out or f"{ROOT}/" + ("build/bench-quick" if partial else "benchmarks/results")
    a.rivals, a.build = os.path.abspath(a.rivals), os.path.abspath(a.build)
    return a


def plan(a, chosen, state):
    """[(field, setting, ops, sizes, type)]: what one round runs, in the order in which it does."""
    wanted = a.libraries.split(",") if a.libraries else list(LIBRARIES)
    present = [
        s
        for s in all_settings()
        if s.library in wanted and state[s.library]["present"] and (s.quick or not a.quick)
    ]
    order = []
    for field in dict.fromkeys(case.field for case in chosen):
        mine = [case for case in chosen if case.field == field]
        memories = [m for m in ("private", "heap") if any(m in case.memories for case in mine)]
        ops = c.ops_of(field, mine)
        sizes = c.sizes_of(field, mine)
        settings = our_settings(field.ranks, field.transport, memories) + [
            s
            for s in present
            if s.transport == field.transport and field.ranks in s.ranks and field.kind in s.kinds
            # A quick run has no time for ranks that wait for each other's time slices.
            and not (a.quick and s.spins and field.ranks > machine.processors())
        ]
        if (field.ranks, field.transport, field.kind) == (2, "shm", "allreduce"):
            settings += limit_settings()
        for setting in settings:
            fitting = [size for size in sizes if setting.smallest <= size <= setting.largest]
            if setting.library == "hccl":  # only the sizes that some case asks of this memory
                fitting = [
                    size
                    for size in sizes
                    if any(setting.name in case.memories and case.bytes == size for case in mine)
                ]
            if fitting:
                order.append((field, setting, ops, fitting, "fp32"))
                if (
                    setting.library == "hccl"
                    and c.TYPE_BYTES in fitting
                    and (field.ranks, field.transport, field.kind) == (2, "shm", "allreduce")
                ):
                    order += [(field, setting, ops, [c.TYPE_BYTES], kind) for kind in c.TYPES]
    return order


def times_in_states(runs, field):
    """{(op, bytes, state): {(library, setting): [us, ...]}} of one field."""
    found = {}
    for run, f, state in figures_in_states([run for run in runs if run["field"] == field.name]):
        if run["outcome"] != "wrong results":
            found.setdefault((f["op"], f["bytes"], state), {}).setdefault(
                (run["library"], run["setting"]), []
            ).append(f["us"])
    return found


def hopeless(runs, field, setting):
    """True if this rival's setting was run and was far behind the best rival at every size,
    comparing only what was timed in one state of the machine."""
    name = (setting.library, setting.name)
    if setting.library not in LIBRARIES or not any(
        (run["library"], run["setting"]) == name and run["field"] == field.name for run in runs
    ):
        return False
    for times in times_in_states(runs, field).values():
        best = min(
            (min(own) for (library, _), own in times.items() if library in LIBRARIES), default=None
        )
        if name in times and min(times[name]) <= HOPELESS * best:
            return False
    return True


def lacking(runs, order):
    """{line of a state: [entry of the order, ...]}: what was not timed in an undisturbed state in
    which others of its field were, with the sizes that this holds for."""
    seen = {}  # {(field, type, state): {(library, setting): sizes}}
    for run, f, state in figures_in_states(runs):
        if not state.disturbed:
            seen.setdefault((run["field"], f["type"], state.line), {}).setdefault(
                (run["library"], run["setting"]), set()
            ).add(f["bytes"])
    wanted = {}
    for field, setting, ops, sizes, kind in order:
        name = (setting.library, setting.name)
        failed = any(
            run["field"] == field.name
            and (run["library"], run["setting"]) == name
            and not run["figures"]
            for run in runs
        )
        if failed or hopeless(runs, field, setting):
            continue
        for (where, type_, line), by_setting in seen.items():
            others = set().union(*by_setting.values()) - by_setting.get(name, set())
            missing = [size for size in sizes if size in others]
            if (where, type_) == (field.name, kind) and missing:
                wanted.setdefault(line, []).append((field, setting, ops, missing, kind))
    return wanted


def write(a, results, chosen):
    os.makedirs(a.out, exist_ok=True)
    raw = f"{a.out}/raw.json"
    with open(raw, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    text = report.markdown(results, chosen)
    with open(f"{a.out}/ratios.md", "w") as file:
        file.write(text)
    python = f"{a.rivals}/plot/bin/python"
    if os.path.exists(python):
        subprocess.run(
            [
                python,
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "plot.py"),
                raw,
                f"{a.out}/ratios.svg",
            ],
            check=False,
        )
    return text


def main():
    a = arguments()
    chosen = c.selected(a.only, a.quick)
    if a.list or not chosen:
        print(
            "\n".join(f"{case.name}  >= {case.required:g}" for case in chosen)
            or "no case has that name"
        )
        return 0 if chosen else 2
    if a.report:
        with open(a.report) as file:
            former = json.load(file)
        print(
            report.markdown(
                former, c.selected(a.only, former["quick"]), a.libraries and a.libraries.split(",")
            )
        )
        return 0
    state = (
        install.installed(a.rivals)
        if a.skip_install
        else install.install(
            a.rivals, [w for w in a.without.split(",") if w], lambda text: print(text, flush=True)
        )
    )
    for library in install.RIVALS:
        state.setdefault(library, {"present": False, "reason": "not installed"})
    prefix = []
    if a.realtime:
        if not shutil.which("chrt"):
            print("bench: --realtime needs chrt", file=sys.stderr)
            return 2
        prefix = ["chrt", "-r", "50"]  # round robin: ranks that share a processor must take turns

    probe = machine.Probe(f"{a.build}/benchmarks/machine_bench", prefix)
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "machine": machine.describe(),
        "rounds": 0,
        "seconds": a.seconds,
        "quick": a.quick,
        "realtime": a.realtime,
        "rivals": state,
        "add_GBps": None,
        "runs": [],
    }
    runs = results["runs"]
    runner = Runner(
        a.rivals, a.build, machine.processors(), probe, prefix, repeats=1 if a.quick else 3
    )
    order = plan(a, chosen, state)
    began = time.monotonic()

    def run(head, field, setting, ops, sizes, kind):
        record = runner.run(setting, field, ops, sizes, a.seconds, 12 if a.quick else 90, kind)
        runs.append(record)
        times = " ".join(
            f"{c.size_text(f['bytes'])}:{report.time_text(f['us'])}"
            + "".join(f"/{max(f[name]):.0f}" for name in ("line_ns", "core_ns") if name in f)
            for f in record["figures"]
        )
        words = [
            f"[{head}, {time.monotonic() - began:.0f} s]",
            field.name,
            setting.key,
            kind if kind != "fp32" else "",
            record["outcome"] if record["outcome"] != "ok" else "",
            f"({'/'.join(f'{ns:.0f}' for ns in record['probe_ns'])} ns)",
            times,
        ]
        print(" ".join(word for word in words if word), flush=True)

    def measure_add():
        # The most that was ever seen is what the machine can do.
        results["add_GBps"] = max(
            filter(None, [results["add_GBps"], probe.add_bandwidth()]), default=None
        )

    def measure():
        measure_add()
        for turn in range(a.rounds):
            results["rounds"] = turn + 1
            for number, entry in enumerate(order, 1):
                if turn == 0 or not hopeless(runs, *entry[:2]):
                    run(f"round {turn + 1}/{a.rounds}, {number}/{len(order)}", *entry)
            measure_add()
            write(a, results, chosen)
        # What a state of the machine lacks is made up for while the machine is in it, for a time.
        took = time.monotonic() - began
        end = time.monotonic() + (min(30, took) if a.quick else took / 3)
        while time.monotonic() < end:
            wanted = lacking(runs, order)
            now = group_of(probe(), lines_seen(runs))
            if not wanted:
                break
            if now in wanted:
                run(f"making up, {sum(map(len, wanted.values()))} left", *wanted[now][0])
            else:
                time.sleep(1)

    try:
        measure()
    finally:  # who interrupts it has what was timed until then
        if runs:
            print("\n" + write(a, results, chosen))
            print(f"bench: written to {a.out}: ratios.md, ratios.svg, raw.json")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
