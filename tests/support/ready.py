"""Helpers for the tests of modules that are built in advance: a package on a host without a compiler."""

import pathlib
import shutil
import tarfile

import hccl


def package(folder):
    """Copies the package without a built module; returns its path, and the variables of a host without a compiler."""
    target = folder / "site" / "hccl"
    for source in pathlib.Path(hccl.__file__).parents[1].glob("hccl*"):  # a wheel's libraries are beside the package
        if source.name in ("hccl", "hccl.libs"):
            ignored = shutil.ignore_patterns("_built", "__pycache__", "ready.tar.xz")
            shutil.copytree(source, target.with_name(source.name), ignore=ignored)
    (folder / "bin").mkdir()
    variables = {
        "PYTHONPATH": str(target.parent),
        "PATH": str(folder / "bin"),
        "CXX": "",
        "CMAKE_EXECUTABLE": "",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return target, variables


def pack(target, module, names):
    """Makes the package's archive of modules: it contains this environment's module under other names."""
    with tarfile.open(target / "ready.tar.xz", "w:xz", preset=0) as archive:
        for name in names:
            archive.add(module.find(), f"{name}/{module.file}")
