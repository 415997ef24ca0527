"""Prints the installed parts of hccl and their settings: python -m hccl.info"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
import sys
from typing import Iterator, Optional

import hccl
from hccl import _build, _variables

PACKAGE = pathlib.Path(hccl.__file__).resolve().parent


def main() -> None:
    for name, value in [*_versions(), *_transports(), *_memory(), *_frameworks()]:
        print(f"{name:<12} {value}")


def _versions() -> Iterator[tuple[str, str]]:
    yield "package", f"hccl {importlib.metadata.version('hccl')} in {PACKAGE}"
    for library in sorted(PACKAGE.glob("libhccl.so*")):
        yield "library", f"{library.name}, {library.stat().st_size / 2**20:.1f} MiB"
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "host", f"{platform.node()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def _transports() -> Iterator[tuple[str, str]]:
    plugins = {"ofi": "libfabric", "mpi": "MPI", "pmix": "PMIx: joining under mpirun"}
    yield "transport", f"{_variables.value('HCCL_TRANSPORT', 'auto')} (HCCL_TRANSPORT); built in: shm, tcp"
    for name, what in plugins.items():
        yield "plugin", f"{name} ({what}): {_loads(PACKAGE / f'libhccl_{name}.so')}"


def _loads(plugin: pathlib.Path) -> str:
    if not plugin.exists():
        return "not in this build"
    try:
        ctypes.CDLL(str(plugin))
    except OSError as error:
        return f"cannot be used: {error}"
    return "there"


def _memory() -> Iterator[tuple[str, str]]:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    locked = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    yield "memory", f"{total / 2**30:.1f} GiB; {locked / 2**30:.1f} GiB free in /dev/shm"
    yield "device heap", "sealed memory files, shared by the ranks of a host (hccl.empty, hccl.torch.empty, aclrtMalloc)"


def _frameworks() -> Iterator[tuple[str, str]]:
    for title, packages in (("torch", ["torch"]), ("tensorflow", ["tensorflow", "tensorflow-cpu"])):
        version = next(filter(None, map(_version, packages)), None)
        if version is None:
            yield title, "not installed"
            continue
        module = importlib.import_module(f"hccl.{title}.build").MODULE
        yield title, f"{title} {version}"
        yield "module", str(module.find() or _unbuilt(title, module))


def _unbuilt(title: str, module: _build.Module) -> str:
    if module.ready():
        return "ready in the package: the first use unpacks it"
    missing = (module.missing() or "").removeprefix("hccl: ")
    return missing or f"not built: python -m hccl.{title}.build, or the first use"


def _version(package: str) -> Optional[str]:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
