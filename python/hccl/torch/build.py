"""Builds the backend for the torch of this Python environment: python -m hccl.torch.build

PyTorch has no stable interface for backends, so the module is compiled for each version of torch.
The result is kept, by the versions and sources it was made of, beside the package, or in the
user's cache where the package cannot be written. One process builds; others wait for it.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

PACKAGE = pathlib.Path(__file__).resolve().parent.parent  # hccl/
SOURCES = PACKAGE / "torch" / "src"
HEADERS = PACKAGE / "include"


class BuildError(RuntimeError):
    """The module cannot be built; the text says what is missing."""


def build(force=False):
    """The path of the module for the torch of this environment; it is built if there is none."""
    for folder in _folders():
        if module_path(folder).exists() and not force:
            return module_path(folder)
    folder = _writable(_folders())
    with _lock(folder):
        target = module_path(folder)
        if force or not target.exists():  # another process may have built it meanwhile
            _compile(target)
        return target


def module_path(folder):
    return folder / _key() / f"_backend{sysconfig.get_config_var('EXT_SUFFIX')}"


def find():
    """The path of the module, or None where it has not been built."""
    return next((module_path(f) for f in _folders() if module_path(f).exists()), None)


def _folders():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return [PACKAGE / "torch" / "_built", cache / "hccl" / "torch"]


def _key():
    """Names what a module was made of: it fits no other torch, Python or source."""
    import torch

    digest = hashlib.sha256()
    for path in sorted([*SOURCES.iterdir(), *HEADERS.rglob("*.h")]):
        digest.update(path.name.encode() + path.read_bytes())
    abi = sysconfig.get_config_var("SOABI")
    return f"torch-{torch.__version__}-{abi}-{digest.hexdigest()[:12]}"


def _writable(folders):
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    raise BuildError(f"hccl: none of these folders can be written: {', '.join(map(str, folders))}")


@contextlib.contextmanager
def _lock(folder):
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another process, which builds the PyTorch backend")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # the lock ends with the file


def _say(text):
    print(f"hccl: {text}", file=sys.stderr, flush=True)


def _tool(name, *variables):
    for candidate in [*(os.environ.get(v) for v in variables), name]:
        found = candidate and shutil.which(candidate.split()[0])
        if found:
            return found
    hint = " or ".join([f"install {name}", *(f"set {variable}" for variable in variables)])
    raise BuildError(
        f"hccl: the PyTorch backend is compiled for each torch, but {name} is missing: {hint}"
    )


def _compile(target):
    import torch
    from torch.utils import cpp_extension

    cmake, compiler = _tool("cmake", "CMAKE_EXECUTABLE"), _tool("g++", "CXX")
    _say(f"building the PyTorch backend for torch {torch.__version__} (once; a minute or two)")
    begin = time.monotonic()
    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include"), str(HEADERS)]
    with tempfile.TemporaryDirectory(prefix="hccl-torch-") as work:
        _run(
            [
                *(cmake, "-S", SOURCES, "-B", work, "-DCMAKE_BUILD_TYPE=Release"),
                f"-DCMAKE_CXX_COMPILER={compiler}",
                f"-DCMAKE_CXX_FLAGS=-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
                f"-DHCCL_TORCH_INCLUDES={';'.join(includes)}",
                f"-DHCCL_TORCH_LIBRARIES={';'.join(cpp_extension.library_paths())}",
                f"-DHCCL_TORCH_LIBRARY={_library('libhccl.so.*')}",
                f"-DHCCL_TORCH_OPTIM={_library('libhccl_optim.so')}",
                f"-DHCCL_TORCH_SUFFIX={sysconfig.get_config_var('EXT_SUFFIX')}",
            ]
        )
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or len(os.sched_getaffinity(0))
        _run([cmake, "--build", work, "-j", jobs])
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(f".{os.getpid()}")
        shutil.copy(pathlib.Path(work) / target.name, temporary)
        os.replace(temporary, target)  # others see all of it or nothing
    _say(f"built {target} in {time.monotonic() - begin:.0f} s")


def _library(name):
    library = next(PACKAGE.glob(name), None)
    if library is None:
        raise BuildError(f"hccl: {name} is not in {PACKAGE}: install the package again")
    return library


def _run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(
            "hccl: building the PyTorch backend failed:\n"
            + f"$ {' '.join(map(str, command))}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
        )


def main():
    try:
        print(build(force="--force" in sys.argv[1:]))
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
