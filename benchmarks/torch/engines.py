#!/usr/bin/env python3
"""engines.py [--ranks 2]: compares allreduce with the allreduces that inference engines for CPUs bring.

DeepSpeed's and vLLM's allreduces come from their source packages and are compiled for this
comparison only; Intel MPI comes with rivals/install.py. All are timed at their C interfaces, in
turn, by the method of rivals/method.h: the time of a loop of rewriting and allreduce without
barriers, less the time of the rewriting. Results are checked. The table has medians over the
rounds, for the best setting of each library. Run it with a Python that has torch."""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
from torch.utils import cpp_extension

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RIVALS = HERE.parent / "rivals"
sys.path.insert(0, str(RIVALS))

import install
import settings
from cases import KIB, MIB, Field, size_text
from runner import Runner

VERSIONS = {"deepspeed": "0.19.8", "vllm": "0.33.0"}
# To learn the name of a source package, pip runs its setup.py. vLLM's setup.py needs these
# packages; the variables below answer its questions.
SETUP = ["setuptools_rust", "setuptools_scm", "wheel", "regex", "cmake", "ninja"]
ANSWERS = {
    "VLLM_TARGET_DEVICE": "empty",
    "VLLM_VERSION_OVERRIDE": VERSIONS["vllm"],
    "SETUPTOOLS_SCM_PRETEND_VERSION": VERSIONS["vllm"],
}
SIZES = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
TYPES = ["bf16", "fp32"]
NAMES = {"deepspeed": "DeepSpeed", "vllm": "vLLM", "impi": "Intel MPI"}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a size, about")
    parser.add_argument("--limit", type=float, default=1000, help="seconds for all: no round begins after it")
    parser.add_argument("--build", default="build/release", help="where benchmarks/hccl_bench is")
    parser.add_argument("--folder", default="build/rivals", help="of rivals/install.py, and for the engines")
    parser.add_argument("--install", action="store_true", help="only get and compile the rivals")
    return parser.parse_args()


# ---- the engines' sources and programs ----


def source(folder, name):
    """Returns the folder csrc of the engine's source package."""
    package = f"{name}-{VERSIONS[name]}"
    if not (folder / package).exists():
        tools, pip = folder / "setup", [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        if not tools.exists():
            subprocess.run([*pip, "install", "--target", tools, *SETUP], check=True)
        command = ["download", "--no-binary", name, "--no-deps", "--no-build-isolation", "-d", folder]
        environment = {**os.environ, **(ANSWERS if name == "vllm" else {}), "PYTHONPATH": str(tools)}
        subprocess.run([*pip, *command, package.replace("-", "==")], check=True, env=environment)
        subprocess.run(
            ["tar", "xzf", f"{package}.tar.gz", "--wildcards", f"{package}/csrc/*"], check=True, cwd=folder
        )
    return folder / package / "csrc"


def build_engine(folder, name):
    """Builds the timed program in the folder of the rivals' programs."""
    program = folder.parent / "bin" / f"{name}_bench"
    code = HERE / "engine_bench.cc"
    if program.exists() and program.stat().st_mtime > code.stat().st_mtime:
        return
    headers = folder / "headers/torch"  # replaces torch's header, which needs Python's headers
    headers.mkdir(parents=True, exist_ok=True)
    (headers / "extension.h").write_text("#include <torch/all.h>\n")
    includes = [headers.parent, source(folder, name), ROOT]
    objects = []
    for each in ("method", "page", "values"):
        objects.append(folder / f"{each}.o")
        subprocess.run(["gcc", "-O2", "-c", RIVALS / f"{each}.c", "-o", objects[-1]], check=True)
    defined = [f'-DENGINE_VERSION="{name} {VERSIONS[name]}"']
    defined += ["-DENGINE_VLLM"] if name == "vllm" else []
    libraries = cpp_extension.library_paths()[0]
    subprocess.run(
        [
            *["g++", "-std=c++20", "-O3", "-march=native", "-fopenmp", "-w", *defined],
            *[f"-I{each}" for each in includes],
            *[f"-isystem{each}" for each in cpp_extension.include_paths()],
            *[code, *objects, "-o", program],
            *[f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch", "-ltorch_cpu", "-lc10"],
        ],
        check=True,
    )


def prepare(folder):
    (folder / "engines").mkdir(parents=True, exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin/mpi_bench_impi").exists():
        install.intel_mpi(str(folder))
    for name in VERSIONS:
        build_engine(folder / "engines", name)


# ---- the comparison ----


def contenders(ranks):
    """Returns {column of the table: the settings to time for it}."""
    found = {}
    for memory, column in (("private", "ordinary"), ("heap", "heap")):
        found[column] = settings.our_settings(ranks, "shm", [memory])
    for name in VERSIONS:
        found[NAMES[name]] = [settings.Setting(name, "default", environment=ONE_THREAD)]
    found[NAMES["impi"]] = [
        each
        for each in settings.all_settings()
        if each.library == "impi" and each.transport == "shm" and ranks in each.ranks and each.quick
    ]
    return found


def measure(given, folder):
    """Returns {(type, bytes): {column: {setting: [microseconds]}}}."""
    runner = Runner(str(folder), given.build, os.cpu_count(), repeats=0)
    found = {(kind, size): {} for kind in TYPES for size in SIZES}
    end = time.monotonic() + given.limit
    for turn in range(given.rounds):
        if time.monotonic() > end:
            break
        for kind in TYPES:
            for column, each in contenders(given.ranks).items():
                for setting in each:
                    run_once(runner, given, setting, kind, found, column)
        print(f"round {turn + 1} done", file=sys.stderr, flush=True)
    return found


def run_once(runner, given, setting, kind, found, column):
    sizes = [size for size in SIZES if setting.smallest <= size <= setting.largest]
    field = Field(given.ranks, "shm", "allreduce", kind)
    limit = 10 + 10 * given.seconds * len(sizes)
    record = runner.run(setting, field, ["allreduce"], sizes, given.seconds, limit)
    if record["outcome"] != "ok":
        print(f"{setting.key}, {kind}: {record['outcome']}", file=sys.stderr, flush=True)
    if record["outcome"] == "wrong results":
        return
    for figure in record["figures"]:
        by_setting = found[kind, figure["bytes"]].setdefault(column, {})
        by_setting.setdefault(setting.name, []).append(figure["us"])


def best(by_setting):
    return min(statistics.median(each) for each in by_setting.values())


def show(given, found):
    rivals = list(NAMES.values())
    print(f"\n{given.ranks} ranks; microseconds; then how many times as long as ours the rivals take\n")
    print("| type | bytes | ordinary | heap | " + " | ".join(rivals) + " | engines / ordinary | / heap | best / ordinary | / heap |")
    print("|---" * (9 + 2) + "|")
    ratios = {"ordinary": [], "heap": []}
    for (kind, size), columns in found.items():
        times = {name: best(each) for name, each in columns.items()}
        engines = [times[NAMES[name]] for name in VERSIONS if NAMES[name] in times]
        fastest = min(times[name] for name in rivals if name in times)
        cells = [kind, size_text(size), *(f"{times[name]:.1f}" if name in times else "-" for name in ("ordinary", "heap", *rivals))]
        for memory in ratios:
            ratios[memory] += [each / times[memory] for each in engines]
        cells += [", ".join(f"{each / times[memory]:.2f}" for each in engines) for memory in ratios]
        cells += [f"{fastest / times[memory]:.2f}" for memory in ratios]
        print("| " + " | ".join(cells) + " |")
    for memory, bar in (("ordinary", 1.5), ("heap", 2)):
        mean = statistics.geometric_mean(ratios[memory])
        print(f"\nThe engines take {mean:.2f} times as long as ours with {memory} memory, in the geometric mean (bar: {bar}).")


def main():
    given = arguments()
    folder = pathlib.Path(given.folder).resolve()
    prepare(folder)
    if not given.install:
        show(given, measure(given, folder))


if __name__ == "__main__":
    main()
