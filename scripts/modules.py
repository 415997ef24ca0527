#!/usr/bin/env python3
"""Compiles the modules for PyTorch that wheels bring along, and packs one archive of them for each wheel.

    scripts/modules.py PREFIX FOLDER WHEEL...

PREFIX has an installed hccl. The headers and libraries of torch come from its own wheels, and are kept in
FOLDER/torch; the modules are kept in FOLDER/modules. A WHEEL is one or more interpreters with commas between them.
FOLDER/ready/N.tar.xz is for the N-th wheel. A release of torch that pip cannot get is left out, with a message.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# One release for each minor version, and the oldest Python that it supports.
RELEASES = {"2.13.0": 310, "2.14.1": 310, "2.15.0": 311}
LIBRARIES = ["torch_python", "torch_cpu", "torch", "c10"]
ABI = "cxx11abi1"  # of all these releases; check() fails with any other
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29)}  # as the tag of the wheels says
# g++ 12 takes this function in a version that RHEL 9's libstdc++ lacks; both have the older one.
WAIT = "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
OLDER = f'__asm__(".symver {WAIT},{WAIT}@GLIBCXX_3.4.11");\n'
SOURCES = pathlib.Path("python/hccl/torch/src")
CMAKE = os.environ.get("CMAKE_EXECUTABLE", "cmake")
BUILD = runpy.run_path("python/hccl/_build.py")


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def torch_of(release, folder):
    """Returns the folder with the headers and libraries of a release, or None."""
    target = folder / release
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work]
            pip += ["--only-binary", ":all:", "--python-version", "3.11", f"torch=={release}"]
            any_release = {**os.environ, "PIP_CONSTRAINT": os.devnull}  # nothing is installed
            try:
                run(*pip, env=any_release)
            except RuntimeError as error:
                print(f"modules: torch {release} is left out: {error}", file=sys.stderr)
                return None
            with zipfile.ZipFile(*pathlib.Path(work).glob("*.whl")) as wheel:
                libraries = {f"torch/lib/lib{name}.so" for name in LIBRARIES}
                names = [name for name in wheel.namelist() if name.startswith("torch/include/")]
                wheel.extractall(f"{work}/all", [*names, *libraries])
            os.replace(f"{work}/all/torch", target)
    return target


def python_of(interpreter):
    """Returns the version of an interpreter, the folder of its headers, and the names of its ABI."""
    names = ["py_version_nodot", "INCLUDEPY", "SOABI", "EXT_SUFFIX"]
    program = f"import json, sysconfig; print(json.dumps(sysconfig.get_config_vars(*{names})))"
    return dict(zip(names, json.loads(run(interpreter, "-c", program))))


def compile_module(prefix, torch, python, target):
    include, headers = torch / "include", prefix / "include"
    libhccl = next(prefix.glob("lib*/libhccl.so.*.*"))
    includes = [include, include / "torch/csrc/api/include", python["INCLUDEPY"], headers]
    with tempfile.TemporaryDirectory() as work:
        older = pathlib.Path(work) / "older.h"
        older.write_text(OLDER)
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_FLAGS": f"-D_GLIBCXX_USE_CXX11_ABI=1 -include {older}",
            "HCCL_TORCH_INCLUDES": ";".join(map(str, includes)),
            "HCCL_TORCH_LIBRARIES": torch / "lib",
            "HCCL_TORCH_LIBRARY": libhccl,
            "HCCL_TORCH_OPTIM": libhccl.parent / "libhccl_optim.so",
            "HCCL_TORCH_SUFFIX": python["EXT_SUFFIX"],
        }
        definitions = [f"-D{name}={value}" for name, value in options.items()]
        run(CMAKE, "-S", SOURCES, "-B", work, *definitions)
        run(CMAKE, "--build", work)
        built = pathlib.Path(work) / f"_backend{python['EXT_SUFFIX']}"
        run("strip", built)
        check(built, [*(torch / "lib").iterdir(), libhccl, libhccl.parent / "libhccl_optim.so"])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(built.read_bytes())
    print(f"modules: {target}", flush=True)


def symbols(library, *options):
    return re.findall(r" [A-Za-z] (\S+)$", run("nm", "--dynamic", *options, library), re.MULTILINE)


def check(module, libraries):
    """All symbols that the module needs are in the libraries, in Python, or in old enough C and C++
    libraries."""
    defined = [name for library in libraries for name in symbols(library, "--defined-only")]
    there = {name.split("@")[0] for name in defined}
    for name in symbols(module, "--undefined-only"):
        version = re.search(r"@(GLIBC|GLIBCXX)_([\d.]+)", name)
        if version and tuple(map(int, version[2].split("."))) > NEWEST[version[1]]:
            raise RuntimeError(f"{module.name} needs {name}")
        others = re.match("_?Py|GOMP_|omp_|__gmon|_ITM", name)  # Python's, and torch's OpenMP
        if "@" not in name and name not in there and not others:
            raise RuntimeError(f"{module.name} needs {name}, which none of its libraries has")


def main():
    prefix, folder = map(pathlib.Path, sys.argv[1:3])
    for name in ("torch", "modules", "ready"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    found = {release: torch_of(release, folder / "torch") for release in RELEASES}
    digest = BUILD["digest"](SOURCES, prefix / "include")
    jobs = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or len(os.sched_getaffinity(0)))
    with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        work, wheels = [], []
        for wheel in sys.argv[3:]:
            wheels.append([])
            pythons = [python_of(interpreter) for interpreter in wheel.split(",")]
            for release, python in itertools.product(found, pythons):
                if found[release] is None or int(python["py_version_nodot"]) < RELEASES[release]:
                    continue
                minor = "torch-" + release.rpartition(".")[0]
                key = BUILD["key"](f"{minor}-{ABI}", python["SOABI"], digest)
                name = f"{key}/_backend{python['EXT_SUFFIX']}"
                wheels[-1].append(name)
                if not (folder / "modules" / name).exists():
                    arguments = (prefix, found[release], python, folder / "modules" / name)
                    work.append(threads.submit(compile_module, *arguments))
        for each in work:
            each.result()
    for number, names in enumerate(wheels, 1):
        with tarfile.open(folder / "ready" / f"{number}.tar.xz", "w:xz", preset=9) as archive:
            for name in names:
                archive.add(folder / "modules" / name, name)


if __name__ == "__main__":
    main()
