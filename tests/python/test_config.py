"""Programs in C against the package's library, as in README; the package's version; the starter of scripts."""

import importlib.metadata
import pathlib
import re
import shlex
import subprocess
import sys

import hccl
import pytest
from conftest import ROOT, environment

README = (ROOT / "README.md").read_text()
FIRST = re.search(r"```c\n(.*?)```", README, re.DOTALL).group(1)
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(first C)
find_package(hccl ${wanted} REQUIRED)
add_executable(first first.c)
target_link_libraries(first hccl::hccl)
"""


def config(*options):
    command = [sys.executable, "-m", "hccl.config", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def sum_of_one_rank(program):
    alone = {**environment(), "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = subprocess.run([program], env=alone, capture_output=True, text=True)
    assert done.stdout == "rank 0 of 1: the sum is 0\n", done.stderr


def test_the_compiler_finds_all(tmp_path):
    (tmp_path / "first.c").write_text(FIRST)
    flags = shlex.split(config("--cflags", "--libs"))
    subprocess.run(["cc", "first.c", *flags, "-o", "first"], cwd=tmp_path, check=True)
    sum_of_one_rank(tmp_path / "first")


def configure(folder, wanted):
    (folder / "first.c").write_text(FIRST)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    prefix = config("--cmake-prefix").removesuffix("\n")
    command = ["cmake", f"-DCMAKE_PREFIX_PATH={prefix}", f"-Dwanted={wanted}", "-B", "build"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_cmake_finds_all(tmp_path):
    done = configure(tmp_path, wanted=hccl.__version__.rpartition(".")[0])
    assert done.returncode == 0, done.stderr
    subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True)
    sum_of_one_rank(tmp_path / "build" / "first")


def test_cmake_refuses_another_version(tmp_path):
    done = configure(tmp_path, wanted="0.1")
    assert done.returncode == 1 and f"version: {hccl.__version__}" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "option, word", [("--cflags", "'-I/a b/include'"), ("--cmake-prefix", "/a b/development")]
)
def test_a_path_with_a_space(option, word, monkeypatch, capsys):
    """eval reads the flags, so they are quoted. The prefix is used as it is, in "$(...)"."""
    from hccl import config

    monkeypatch.setattr(config, "PACKAGE", pathlib.Path("/a b"))
    monkeypatch.setattr(sys, "argv", ["config", option])
    config.main()
    assert capsys.readouterr().out == f"{word}\n"


def test_the_package_has_its_version():
    assert hccl.__version__ == importlib.metadata.version("hccl")


def test_the_starter_of_scripts_needs_the_name_of_a_module():
    command = [sys.executable, "-m", "hccl.horovod", "-m"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == "hccl: -m needs the name of a module\n"


def test_info_names_the_libraries_that_plugins_lack(tmp_path):
    """Plugins of a wheel need libraries that hosts may lack."""
    text = (
        "import pathlib, hccl.info\n"
        f"hccl.info.PACKAGE = pathlib.Path({str(tmp_path)!r})\n"
        "print(*(value for _, value in hccl.info._transports()), sep='\\n')\n"
    )
    (tmp_path / "lacks.c").write_text("")
    command = ["cc", "-shared", "lacks.c", "-o", "libgone.so.7", "-Wl,-soname,libgone.so.7"]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = ["cc", "-shared", "lacks.c", "-Wl,--no-as-needed", "-L.", "-l:libgone.so.7", "-o", "libhccl_ofi.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "libgone.so.7").unlink()
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert "ofi (libfabric): cannot be used: libgone.so.7" in done.stdout
    assert "mpi (MPI): not in this build" in done.stdout


def test_the_numbers_of_results_are_those_of_the_header():
    header = (ROOT / "hccl/hccl_types.h").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"(HCCL_SUCCESS|HCCL_E_\w+) = (\d+),", header)}
    numbers.pop("HCCL_E_IN_STATUS")  # HCCL's own use
    assert hccl.HcclResult.__members__ == numbers
