"""Installs each rival by its package name, with the ordinary clients, into a folder of its own, and
builds the timed programs against it. If a rival cannot be installed, state.json has the reason, and
all other rivals are still installed.

  <folder>/<library>/   a Python environment (wheels), or the contents of Debian's packages
  <folder>/bin/         the programs
  <folder>/state.json   {library: {"present": true} or {"present": false, "reason": text}}"""

import glob
import json
import os
import shutil
import subprocess
import sys

SOURCES = os.path.dirname(os.path.abspath(__file__))
C = ["-O2", "-std=c99", "-Wall", "-Wextra"]
METHOD = [f"{SOURCES}/{name}.c" for name in ("method", "page", "values")]
HARNESS = [f"{SOURCES}/mpi_bench.c", *METHOD]


class Absent(Exception):
    """The rival cannot be installed. The text is the reason."""


def run(command, what, **more):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200, **more
    )
    if done.returncode != 0:
        lines = [
            line for line in done.stdout.splitlines() if line.strip() and "WARNING" not in line
        ]
        raise Absent(f"{what}: {lines[-1][:200] if lines else 'failed without a word'}")


def wheels(folder, library, packages):
    """Makes a Python environment with the packages, unless it exists. Returns its folder."""
    home, done = f"{folder}/{library}", f"{folder}/{library}/installed"
    if os.path.exists(done):
        return home
    shutil.rmtree(home, ignore_errors=True)
    run([sys.executable, "-m", "venv", home], "making a Python environment")
    run(
        [
            f"{home}/bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *packages,
        ],
        "pip install " + " ".join(packages),
    )
    open(done, "w").close()
    return home


def debian(folder, library, packages):
    """Unpacks Debian packages into a folder. Needs no root, and changes nothing outside the
    folder."""
    home, done = f"{folder}/{library}", f"{folder}/{library}/installed"
    if os.path.exists(done):
        return home
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Absent("no Debian packages here")
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(home)
    command = ["apt-get", "download", "-qq", *packages]
    try:
        run(command, "apt-get download " + " ".join(packages), cwd=home)
    except Absent:
        run(["apt-get", "update", "-qq"], "apt-get update")  # the lists may never have been fetched
        run(command, "apt-get download " + " ".join(packages), cwd=home)
    for package in glob.glob(f"{home}/*.deb"):
        run(["dpkg-deb", "-x", package, home], "unpacking")
    open(done, "w").close()
    return home


def link(library_folder):
    return [f"-L{library_folder}", f"-Wl,-rpath,{library_folder}"]


def build_mpi(folder, library, compiler, *flags):
    program = f"{folder}/bin/mpi_bench_{library}"
    run([compiler, *C, *HARNESS, "-o", program, *flags], "compiling")


def open_mpi_of_debian(folder):
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None:
        raise Absent(
            "packages openmpi-bin and libopenmpi-dev are not installed (scripts/setup.sh does)"
        )
    build_mpi(folder, "ompi4", compiler)


def wrapped_mpi(library, package):
    def install(folder):
        home = wheels(folder, library, [package])
        build_mpi(folder, library, f"{home}/bin/mpicc")

    return install


def mpich_of_debian(folder):
    home = debian(folder, "mpich4", ["mpich", "libmpich12", "libmpich-dev", "libslurm38"]) + "/usr"
    headers, libraries = f"{home}/include/x86_64-linux-gnu/mpich", f"{home}/lib/x86_64-linux-gnu"
    build_mpi(folder, "mpich4", "gcc", f"-I{headers}", *link(libraries), "-lmpich")


def intel_mpi(folder):
    home = wheels(folder, "impi", ["impi-rt", "impi-devel"])
    build_mpi(folder, "impi", "gcc", f"-I{home}/include", *link(f"{home}/lib"), "-lmpi")


def one_ccl(folder):
    home = wheels(folder, "ccl", ["oneccl", "oneccl-devel"])
    objects = [f"{folder}/bin/{os.path.basename(source)[:-2]}.o" for source in METHOD]
    for source, out in zip(METHOD, objects):
        run(["gcc", *C, "-c", source, "-o", out], "compiling")
    run(
        [
            "g++",
            "-O2",
            "-std=c++17",
            "-isystem",
            f"{home}/include",
            f"{SOURCES}/ccl_bench.cc",
            *objects,
            "-o",
            f"{folder}/bin/ccl_bench",
            *link(f"{home}/lib"),
            f"-Wl,-rpath-link,{home}/lib",
            "-lccl",
        ],
        "compiling",
    )


def gloo(folder):
    home = wheels(folder, "gloo", ["torch", "numpy"])
    run(
        [f"{home}/bin/python", "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
        "importing torch",
    )


RIVALS = {
    "ompi4": open_mpi_of_debian,
    "ompi5": wrapped_mpi("ompi5", "openmpi"),
    "mpich4": mpich_of_debian,
    "mpich5": wrapped_mpi("mpich5", "mpich"),
    "impi": intel_mpi,
    "ccl": one_ccl,
    "gloo": gloo,
}


def install(folder, without=(), say=print):
    """Installs the rivals. Writes their state into the folder, and returns it."""
    folder = os.path.abspath(folder)
    os.makedirs(f"{folder}/bin", exist_ok=True)
    state = {}
    for library, action in RIVALS.items():
        if library in without:
            state[library] = {"present": False, "reason": "left out (--without)"}
            continue
        try:
            say(f"rivals: {library}")
            action(folder)
            state[library] = {"present": True}
        except (Absent, OSError, subprocess.TimeoutExpired) as problem:
            state[library] = {"present": False, "reason": str(problem).replace(folder, "")[:300]}
            say(f"rivals: {library} is absent: {state[library]['reason']}")
    try:
        wheels(folder, "plot", ["matplotlib"])
    except (Absent, OSError, subprocess.TimeoutExpired) as problem:
        say(f"rivals: no plot: {problem}")
    with open(f"{folder}/state.json", "w") as file:
        json.dump(state, file, indent=1)
    return state


def installed(folder):
    """Returns the state that the last install wrote."""
    try:
        with open(f"{folder}/state.json") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {library: {"present": False, "reason": "not installed"} for library in RIVALS}
