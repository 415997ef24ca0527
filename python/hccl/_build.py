"""Builds a module against a framework of this Python environment, once. hccl.torch.build and
hccl.tensorflow.build use it.

Frameworks have no stable interface for backends, so a module is compiled for each version. The
result is stored under a name made of the versions and sources: in the package, or in the user's
cache if the package is not writable. One process builds the module; others wait for it.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from typing import Callable, Iterator, Optional

PACKAGE = pathlib.Path(__file__).resolve().parent  # hccl/
HEADERS = PACKAGE / "include"


class BuildError(RuntimeError):
    """The module cannot be built; the text names the missing part."""


@dataclass(frozen=True)
class Module:
    """A module that is compiled on the machine that uses it."""

    title: str  # in messages: "PyTorch backend"
    folder: str  # a folder of the package; it contains src/
    file: str  # the name of the result
    framework: Callable[[], str]  # "torch 2.13.0"; imports the framework
    options: Callable[[], list[str]]  # CMake options with the place of the framework
    takes: str  # in messages: "a minute or two"

    def build(self, force: bool = False) -> pathlib.Path:
        """Returns the path of the module for this environment's framework. Builds it if needed."""
        found = None if force else self.find()
        if found is not None:
            return found
        folder = self._writable()
        with self._lock(folder):
            target = self._path(folder)
            if force or not target.exists():  # another process may have built it meanwhile
                self._compile(target)
            return target

    def find(self) -> Optional[pathlib.Path]:
        """Returns the path of the module, or None if it has not been built."""
        return next((self._path(f) for f in self._folders() if self._path(f).exists()), None)

    def main(self) -> None:
        """python -m hccl.….build [--force]"""
        try:
            print(self.build(force="--force" in sys.argv[1:]))
        except BuildError as error:
            sys.exit(str(error))

    @property
    def _sources(self) -> pathlib.Path:
        return PACKAGE / self.folder / "src"

    def _path(self, folder: pathlib.Path) -> pathlib.Path:
        return folder / self._key() / self.file

    def _folders(self) -> list[pathlib.Path]:
        folders = [PACKAGE / self.folder / "_built"]
        cache = os.environ.get("XDG_CACHE_HOME")
        with contextlib.suppress(RuntimeError):  # users in containers may have no home
            users = pathlib.Path(cache) if cache else pathlib.Path.home() / ".cache"
            folders.append(users / "hccl" / self.folder)
        return folders

    def _key(self) -> str:
        """Returns a name that depends on the framework, Python and the module's sources, because
        the module fits no others."""
        digest = hashlib.sha256()
        for path in sorted([*self._sources.iterdir(), *HEADERS.rglob("*.h")]):
            digest.update(path.name.encode() + path.read_bytes())
        version = self.framework().replace(" ", "-")
        return f"{version}-{sysconfig.get_config_var('SOABI')}-{digest.hexdigest()[:12]}"

    def _writable(self) -> pathlib.Path:
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    return folder
        names = ", ".join(map(str, self._folders()))
        raise BuildError(f"hccl: none of these folders can be written: {names}")

    @contextlib.contextmanager
    def _lock(self, folder: pathlib.Path) -> Iterator[None]:
        with open(folder / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _say(f"waiting for another process, which builds the {self.title}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield  # closing the file ends the lock

    def _tool(self, name: str, *variables: str) -> str:
        for candidate in [*(os.environ.get(v) for v in variables), name]:
            found = shutil.which(candidate.split()[0]) if candidate else None
            if found:
                return found
        hint = " or ".join([f"install {name}", *(f"set {variable}" for variable in variables)])
        raise BuildError(
            f"hccl: the {self.title} is compiled for each {self.framework().split()[0]}, "
            f"but {name} is missing: {hint}"
        )

    def _compile(self, target: pathlib.Path) -> None:
        cmake, compiler = self._tool("cmake", "CMAKE_EXECUTABLE"), self._tool("g++", "CXX")
        _say(f"building the {self.title} for {self.framework()} (once; {self.takes})")
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="hccl-build-") as work:
            self._run(
                [
                    *(cmake, "-S", str(self._sources), "-B", work, "-DCMAKE_BUILD_TYPE=Release"),
                    f"-DCMAKE_CXX_COMPILER={compiler}",
                    *self.options(),
                ]
            )
            jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or len(os.sched_getaffinity(0))
            self._run([cmake, "--build", work, "-j", str(jobs)])
            self._keep(pathlib.Path(work) / target.name, target)
        _say(f"built {target} in {time.monotonic() - begin:.0f} s")

    def _keep(self, built: pathlib.Path, target: pathlib.Path) -> None:
        """Stores the module in one step: other processes see all of it or nothing."""
        temporary = target.with_suffix(f".{os.getpid()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(built, temporary)
            os.replace(temporary, target)
        except OSError as error:  # the disk is full
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise BuildError(
                f"hccl: the {self.title} has been built, but cannot be kept: {error}"
            ) from error

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(
                f"hccl: building the {self.title} failed:\n"
                f"$ {' '.join(command)}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
            )


def library(name: str) -> pathlib.Path:
    """Returns the path of a library of the package, by its file name or pattern."""
    found = next(PACKAGE.glob(name), None)
    if found is None:
        raise BuildError(f"hccl: {name} is not in {PACKAGE}: install the package again")
    return found


def _say(text: str) -> None:
    print(f"hccl: {text}", file=sys.stderr, flush=True)
