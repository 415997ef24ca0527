"""Builds a module against a framework of this Python environment, once. hccl.torch.build and
hccl.tensorflow.build use it.

Frameworks have no stable interface for backends, so a module is compiled for each version. A wheel
brings an archive of compiled modules, and the first use unpacks the module that fits; if none fits,
the first use compiles one. The module is stored under a name made of the versions and sources: in
the package, or in the user's cache if the package is not writable. One process builds the module;
others wait for it. If neither folder is writable, each process unpacks a module for itself.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from dataclasses import dataclass
from typing import Callable, Iterator, Optional

PACKAGE = pathlib.Path(__file__).resolve().parent  # hccl/
HEADERS = PACKAGE / "include"
ARCHIVE = PACKAGE / "ready.tar.xz"  # a folder for each module: scripts/modules.py


_temporaries: dict[str, pathlib.Path] = {}  # for each folder of the package


class BuildError(RuntimeError):
    """The module cannot be built; the text says why."""


@dataclass(frozen=True)
class Module:
    """A module that is compiled for each version of a framework."""

    title: str  # in messages: "PyTorch backend"
    folder: str  # a folder of the package; it contains src/
    file: str  # the name of the result
    framework: Callable[[], str]  # "torch 2.13.0"; imports the framework
    options: Callable[[], list[str]]  # CMake options with the path of the framework
    takes: str  # in messages: "a minute or two"
    # Returns the versions that one ready module fits ("torch-2.13-cxx11abi1"), or None if no ready
    # module can fit.
    release: Callable[[], Optional[str]] = lambda: None
    # Returns a text if src/ does not compile for the framework, which is too old.
    too_old: Callable[[], Optional[str]] = lambda: None
    abi: str = str(sysconfig.get_config_var("SOABI"))  # Python's ABI or, if unused, the machine

    def build(self, force: bool = False) -> pathlib.Path:
        """Returns the path of the module for this environment's framework. Builds it if needed."""
        found = None if force else self.find()
        if found is not None:
            return found
        try:
            folder = self._writable()
            return self._temporary() if folder is None else self._build_in(folder, force)
        except OSError as error:  # no folder for temporary files, or a full disk
            raise BuildError(f"hccl: the {self.title} cannot be built: {error}") from error

    def _build_in(self, folder: pathlib.Path, force: bool) -> pathlib.Path:
        target = self._path(folder)
        failure = target.parent.with_name(target.parent.name + ".failed")
        begin = time.time()
        with self._lock(folder):
            if force or not target.exists():  # another process may have built it meanwhile
                if failure.exists() and failure.stat().st_mtime > begin:  # or have failed
                    raise BuildError(failure.read_text(errors="replace"))
                if force or not self._unpack(target):
                    try:
                        self._compile(target)
                    except BuildError as error:
                        with contextlib.suppress(OSError):
                            failure.write_text(str(error), errors="replace")
                        raise
        return target

    def find(self) -> Optional[pathlib.Path]:
        """Returns the path of the module, or None if it has not been built."""
        return next((self._path(f) for f in self._folders() if self._path(f).exists()), None)

    def ready(self) -> Optional[str]:
        """Returns the name of the module in the package's archive that fits exactly this
        environment, or None."""
        release = self.release()
        if release is None:
            return None
        name = f"{key(release, self.abi, digest(self._sources, HEADERS))}/{self.file}"
        return name if name in self._archived() else None

    def main(self) -> None:
        """python -m hccl.….build [--force]"""
        parser = argparse.ArgumentParser(
            prog=f"python -m hccl.{self.folder}.build",
            description=f"Builds the {self.title}, which takes {self.takes}, and prints its path.",
        )
        parser.add_argument("--force", action="store_true", help="also if it has been built")
        force = parser.parse_args().force
        try:
            print(self.build(force))
        except BuildError as error:
            sys.exit(str(error))

    @property
    def _sources(self) -> pathlib.Path:
        return PACKAGE / self.folder / "src"

    def _archived(self) -> list[str]:
        with contextlib.suppress(OSError, tarfile.TarError):  # no archive, or a Python without lzma
            with tarfile.open(ARCHIVE) as archive:
                return archive.getnames()
        return []

    def _unpack(self, target: pathlib.Path) -> bool:
        """Unpacks the module from the package's archive. Returns False if none fits."""
        name = self.ready()
        if name is None:
            return False
        with tarfile.open(ARCHIVE) as archive, tempfile.NamedTemporaryFile() as file:
            member = archive.extractfile(name)
            assert member is not None
            file.write(member.read())
            file.flush()
            self._keep(pathlib.Path(file.name), target)
        return True

    def _with_ready(self) -> str:
        """Returns the end of an error text: the versions for which the package has a module."""
        keys = [name.split("/")[0].split("-") for name in self._archived()]
        keys = [words for words in keys if words[0] == self.folder]
        versions = ", ".join(dict.fromkeys(f"{words[0]} {words[1]}" for words in keys))
        pythons = dict.fromkeys("-".join(words[3:5]) for words in keys if "cpython" in words)
        with_pythons = f" with {', '.join(pythons)}" if pythons else ""
        return f". No compiler is needed for {versions}{with_pythons}" if keys else ""

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
        version = self.framework().replace(" ", "-")
        return key(version, self.abi, digest(self._sources, HEADERS))

    def _writable(self) -> Optional[pathlib.Path]:
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    return folder
        return None

    def _temporary(self) -> pathlib.Path:
        """Unpacks a ready module into a folder of this process. BuildError if none fits, because
        compiling in each process would take too long."""
        if self.ready() is None:
            names = ", ".join(map(str, self._folders()))
            raise BuildError(
                f"hccl: the {self.title} must be compiled for {self.framework()}, but none of these "
                f"folders can be written: {names}. Set XDG_CACHE_HOME to a folder that can be"
                f"{self._with_ready()}"
            )
        if self.folder not in _temporaries:
            _temporaries[self.folder] = pathlib.Path(tempfile.mkdtemp(prefix="hccl-module-"))
            self._unpack(self._path(_temporaries[self.folder]))
        return self._path(_temporaries[self.folder])

    @contextlib.contextmanager
    def _lock(self, folder: pathlib.Path) -> Iterator[None]:
        with open(folder / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.ready() is None:  # unpacking is quick
                    _say(f"waiting for another process, which builds the {self.title}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield  # closing the file ends the lock

    def missing(self) -> Optional[str]:
        """Returns the reason why the module cannot be compiled here, or None if it can be."""
        try:
            self._tools()
        except BuildError as error:
            return str(error)
        return None

    def _tools(self) -> tuple[str, str]:
        """Returns the command of CMake, and the compiler's command with its flags, as in CXX."""
        old = self.too_old()
        if old is not None:
            raise BuildError(f"hccl: {old}")
        words = os.environ.get("CXX", "").split()
        flags = words[1:] if words and shutil.which(words[0]) else []
        return (
            self._tool("cmake", "CMAKE_EXECUTABLE", os.environ.get("CMAKE_EXECUTABLE", "")),
            " ".join([self._tool("g++", "CXX", *words[:1]), *flags]),
        )

    def _tool(self, name: str, variable: str, given: str = "") -> str:
        found = shutil.which(given) or shutil.which(name)
        if found is None:
            raise BuildError(
                f"hccl: the {self.title} must be compiled for {self.framework()}, but {name} is "
                f"missing: install {name} or set {variable}{self._with_ready()}"
            )
        return found

    def _compile(self, target: pathlib.Path) -> None:
        cmake, compiler = self._tools()
        _say(f"building the {self.title} for {self.framework()} (once; {self.takes})")
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="hccl-build-") as work:
            self._run(
                [
                    *(cmake, "-S", str(self._sources), "-B", work, "-DCMAKE_BUILD_TYPE=Release"),
                    *self.options(),
                ],
                CXX=compiler,
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

    def _run(self, command: list[str], **variables: str) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **variables}
        )
        if done.returncode != 0:
            raise BuildError(
                f"hccl: building the {self.title} failed:\n"
                f"$ {' '.join(command)}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
            )


def remove_temporary(folder: str) -> None:
    """Removes the temporary copy of a module after loading, not at exit, because a process that a
    signal ends cannot remove it."""
    if folder in _temporaries:
        shutil.rmtree(_temporaries.pop(folder), ignore_errors=True)


def library(name: str) -> pathlib.Path:
    """Returns the path of a library of the package, by its file name or pattern."""
    found = next(PACKAGE.glob(name), None)
    if found is None:
        raise BuildError(f"hccl: {name} is not in {PACKAGE}: install the package again")
    return found


def digest(sources: pathlib.Path, headers: pathlib.Path) -> str:
    """Returns a hash of the file names and contents of a module's sources and hccl's headers."""
    total = hashlib.sha256()
    for path in [*sorted(sources.iterdir()), *sorted(headers.rglob("*.h"))]:
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()[:12]


def key(framework: str, abi: str, digest: str) -> str:
    """Returns the name of the folder of a module."""
    return f"{framework}-{abi}-{digest}"


def _say(text: str) -> None:
    print(f"hccl: {text}", file=sys.stderr, flush=True)
