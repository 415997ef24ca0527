#!/usr/bin/env python3
"""spin_test.py --spin SPIN --compiler CC: checks the protocols in Promela with Spin.

Every model must hold, whichever rank dies at whichever step; every mutant of it, which lacks one rule, must fail. A
wait for ever is an invalid end state, a wrong value a failed assertion. HCCL_TEST_MODELS=long adds larger sizes."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Model: sizes of the short form, of the long form, of mutants; mutants.
MODELS = {
    "region": (["N=4 ROUNDS=2", "N=3 ROUNDS=3"], ["N=4 ROUNDS=3"], "N=3 ROUNDS=3",
               ["NO_MONITOR", "NO_POLL", "ONE_SLOT", "NO_AWAIT", "EARLY_WORD"]),
    "doorbell": ([""], [], "",
                 ["NO_MONITOR", "NO_WAKE", "NO_SECOND_LOOK", "LATE_SLEEPER", "NO_RINGS", "NO_POLL"]),
    "ring": (["MESSAGES=5"], ["MESSAGES=9"], "MESSAGES=5",
             ["NO_MONITOR", "NO_PREPARE", "NO_WAITING", "EARLY_TAIL", "EARLY_HEAD", "ONE_LOOK"]),
    "dial": (["FAULTS=0", "FAULTS=1"], ["FAULTS=2"], "FAULTS=0", ["NO_ORDER", "NO_LOOK", "LATE_WORD"]),
}


def run(command, folder):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def check(spin, compiler, model, defines, optimise):
    """Runs the verifier on the model with these definitions; returns (errors, states, text)."""
    path = os.path.join(HERE, model + ".pml")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-D" + each for each in defines.split()]
        code, text = run([spin, *flags, "-a", path], folder)
        if code != 0 or not os.path.exists(os.path.join(folder, "pan.c")):
            sys.exit(f"{model} {defines}: spin: {text}")
        code, text = run([compiler, optimise, "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"], folder)
        if code != 0:
            sys.exit(f"{model} {defines}: {compiler}: {text}")
        _, text = run(["./pan", "-m1000000"], folder)
        errors = re.search(r"errors: (\d+)", text)
        states = re.search(r"(\d+) states, stored", text)
        if errors is None or states is None or "max search depth too small" in text:
            sys.exit(f"{model} {defines}: no verdict:\n{text}")
        if int(errors[1]) != 0:
            _, trail = run([spin, *flags, "-t", "-p", path], folder)
            text += trail[-4000:]
        return int(errors[1]), int(states[1]), text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spin", required=True)
    parser.add_argument("--compiler", default="cc")
    options = parser.parse_args()
    wrong = []
    for model, (short, more, small, mutants) in MODELS.items():
        sizes = short + (more if os.environ.get("HCCL_TEST_MODELS") == "long" else [])
        for defines in sizes:
            since = time.monotonic()
            errors, states, text = check(options.spin, options.compiler, model, defines, "-O1")
            print(f"{model:9} {defines:26} {states:9} states, {errors} errors, {time.monotonic() - since:.1f} s", flush=True)
            if errors:
                wrong.append(f"{model} {defines}:\n{text}")
        for mutant in mutants:
            errors, states, text = check(options.spin, options.compiler, model, f"{small} {mutant}", "-O0")
            found = re.search(r"assertion violated|invalid end state", text)
            print(f"{model:9} {mutant:26} {states:9} states, {found[0] if errors and found else 'NOT FOUND'}", flush=True)
            if not errors:
                wrong.append(f"{model}: nothing is wrong without its rule: {mutant}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
