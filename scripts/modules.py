#!/usr/bin/env python3
"""Compiles the modules for PyTorch and TensorFlow that wheels bring along, and packs one archive of them for each wheel.

    scripts/modules.py PREFIX FOLDER WHEEL...

PREFIX has an installed hccl. The headers and libraries of the frameworks come from their own wheels, and are kept in
FOLDER/torch and FOLDER/tensorflow; the modules are kept in FOLDER/modules. A WHEEL is one or more interpreters with
commas between them. FOLDER/ready/N.tar.xz is for the N-th wheel. A release that pip cannot get is left out, with a
message.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import platform
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from typing import Callable

NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29)}  # the versions that the wheels' tag promises
# g++ 12 binds this function to a version that RHEL 9's libstdc++ lacks; both have the older version.
WAIT = "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
OLDER = f'__asm__(".symver {WAIT},{WAIT}@GLIBCXX_3.4.11");\n'
CMAKE = os.environ.get("CMAKE_EXECUTABLE", "cmake")
BUILD = runpy.run_path("python/hccl/_build.py")


def torch_options(torch, python, headers, libhccl):
    include = torch / "include"
    includes = [include, include / "torch/csrc/api/include", python["INCLUDEPY"], headers]
    return {
        "CMAKE_CXX_FLAGS": "-D_GLIBCXX_USE_CXX11_ABI=1",
        "HCCL_TORCH_INCLUDES": ";".join(map(str, includes)),
        "HCCL_TORCH_LIBRARIES": torch / "lib",
        "HCCL_TORCH_LIBRARY": libhccl,
        "HCCL_TORCH_OPTIM": libhccl.parent / "libhccl_optim.so",
        "HCCL_TORCH_SUFFIX": python["EXT_SUFFIX"],
    }


def tensorflow_options(tensorflow, _, headers, libhccl):
    return {
        "HCCL_TF_INCLUDES": f"{tensorflow / 'include'};{headers}",
        "HCCL_TF_DEFINITIONS": "_GLIBCXX_USE_CXX11_ABI=1;EIGEN_MAX_ALIGN_BYTES=64",
        "HCCL_TF_LIBRARY": tensorflow / "libtensorflow_framework.so.2",
        "HCCL_TF_HCCL": libhccl,
    }


@dataclasses.dataclass
class Framework:
    name: str  # of the framework's package, and of its folder in the package hccl
    pip: str
    abi: str  # of all its releases; check() fails with any other C++ ABI
    releases: dict[str, range]  # one for each minor version, with the Pythons that it supports
    libraries: list[str]
    options: Callable  # returns options for CMake
    file: str  # the module, without a suffix that depends on Python
    all_pythons: bool = False  # one module serves all Pythons


FRAMEWORKS = [
    Framework(
        name="tensorflow",
        pip="tensorflow-cpu",
        abi="cxx11abi1-eigen64",
        releases={"2.15.1": range(309, 312), "2.21.0": range(310, 314)},
        libraries=["libtensorflow_framework.so.2"],
        options=tensorflow_options,
        file="_ops.so",
        all_pythons=True,
    ),
    Framework(
        name="torch",
        pip="torch",
        abi="cxx11abi1",
        releases={"2.13.0": range(310, 400), "2.14.1": range(310, 400), "2.15.0": range(311, 400)},
        libraries=[f"lib/lib{name}.so" for name in ("torch_python", "torch_cpu", "torch", "c10")],
        options=torch_options,
        file="_backend",
    ),
]


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def framework_of(framework, release, folder):
    """Returns the folder with the headers and libraries of a release, or None."""
    target = folder / framework.name / release
    target.parent.mkdir(exist_ok=True)
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work]
            pip += ["--only-binary", ":all:", "--python-version", "3.11", f"{framework.pip}=={release}"]
            any_release = {**os.environ, "PIP_CONSTRAINT": os.devnull}  # nothing is installed
            try:
                run(*pip, env=any_release)
            except RuntimeError as error:
                print(f"modules: {framework.pip} {release} is left out: {error}", file=sys.stderr)
                return None
            with zipfile.ZipFile(*pathlib.Path(work).glob("*.whl")) as wheel:
                libraries = [f"{framework.name}/{name}" for name in framework.libraries]
                headers = f"{framework.name}/include/"
                names = [name for name in wheel.namelist() if name.startswith(headers)]
                wheel.extractall(f"{work}/all", [*names, *libraries])
            os.replace(f"{work}/all/{framework.name}", target)
    return target


def python_of(interpreter):
    """Returns the version of an interpreter, the folder of its headers, and the names of its ABI."""
    names = ["py_version_nodot", "INCLUDEPY", "SOABI", "EXT_SUFFIX"]
    program = f"import json, sysconfig; print(json.dumps(sysconfig.get_config_vars(*{names})))"
    return dict(zip(names, json.loads(run(interpreter, "-c", program))))


def compile_module(framework, prefix, there, python, target):
    libhccl = next(prefix.glob("lib*/libhccl.so.*.*"))
    with tempfile.TemporaryDirectory() as work:
        older = pathlib.Path(work) / "older.h"
        older.write_text(OLDER)
        options = framework.options(there, python, prefix / "include", libhccl)
        options["CMAKE_BUILD_TYPE"] = "Release"
        options["CMAKE_CXX_FLAGS"] = f"{options.get('CMAKE_CXX_FLAGS', '')} -include {older}"
        definitions = [f"-D{name}={value}" for name, value in options.items()]
        run(CMAKE, "-S", f"python/hccl/{framework.name}/src", "-B", work, *definitions)
        run(CMAKE, "--build", work)
        built = pathlib.Path(work) / target.name
        run("strip", built)
        libraries = [there / name for name in framework.libraries]
        check(built, [*libraries, libhccl, libhccl.parent / "libhccl_optim.so"])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(built.read_bytes())
    print(f"modules: {target}", flush=True)


def symbols(library, *options):
    return re.findall(r" [A-Za-z] (\S+)$", run("nm", "--dynamic", *options, library), re.MULTILINE)


def check(module, libraries):
    """Checks that all symbols which the module needs are in the libraries, in Python, or in old enough C and C++
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


def name_of(framework, release, python, headers):
    """Returns the path of a module in the archive, by which the package finds it."""
    sources = pathlib.Path(f"python/hccl/{framework.name}/src")
    version = f"{framework.name}-{release.rpartition('.')[0]}-{framework.abi}"
    abi = platform.machine() if framework.all_pythons else python["SOABI"]
    suffix = "" if framework.all_pythons else python["EXT_SUFFIX"]
    key = BUILD["key"](version, abi, BUILD["digest"](sources, headers))
    return f"{key}/{framework.file}{suffix}"


def main():
    prefix, folder = map(pathlib.Path, sys.argv[1:3])
    for name in ("modules", "ready"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    jobs = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or len(os.sched_getaffinity(0)))
    wheels = [[python_of(each) for each in wheel.split(",")] for wheel in sys.argv[3:]]
    packed = [{} for _ in wheels]  # the names for each wheel, in order
    with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        work = {}
        for framework, release in [(each, release) for each in FRAMEWORKS for release in each.releases]:
            there = framework_of(framework, release, folder)
            for names, python in [(names, python) for names, each in zip(packed, wheels) for python in each]:
                supported = int(python["py_version_nodot"]) in framework.releases[release]
                if there is None or not supported:
                    continue
                name = name_of(framework, release, python, prefix / "include")
                names[name] = True
                target = folder / "modules" / name
                if name not in work and not target.exists():
                    arguments = (framework, prefix, there, python, target)
                    work[name] = threads.submit(compile_module, *arguments)
        for each in work.values():
            each.result()
    for number, names in enumerate(packed, 1):
        with tarfile.open(folder / "ready" / f"{number}.tar.xz", "w:xz", preset=9) as archive:
            for name in names:
                archive.add(folder / "modules" / name, name)


if __name__ == "__main__":
    main()
