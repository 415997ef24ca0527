"""Programs in C against the library in the package, as README has them."""

import re
import shlex
import subprocess
import sys

from conftest import ROOT, environment

README = (ROOT / "README.md").read_text()
FIRST = re.search(r"```c\n(.*?)```", README, re.DOTALL).group(1)
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(first C)
find_package(hccl REQUIRED)
add_executable(first first.c)
target_link_libraries(first hccl::hccl)
"""


def config(*options):
    command = [sys.executable, "-m", "hccl.config", *options]
    return shlex.split(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def sum_of_one_rank(program):
    alone = {**environment(), "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = subprocess.run([program], env=alone, capture_output=True, text=True)
    assert done.stdout == "rank 0 of 1: the sum is 0\n", done.stderr


def test_the_compiler_finds_all(tmp_path):
    (tmp_path / "first.c").write_text(FIRST)
    flags = config("--cflags", "--libs")
    subprocess.run(["cc", "first.c", *flags, "-o", "first"], cwd=tmp_path, check=True)
    sum_of_one_rank(tmp_path / "first")


def test_cmake_finds_all(tmp_path):
    (tmp_path / "first.c").write_text(FIRST)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    (prefix,) = config("--cmake-prefix")
    subprocess.run(["cmake", f"-DCMAKE_PREFIX_PATH={prefix}", "-B", "build"], cwd=tmp_path, check=True)
    subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True)
    sum_of_one_rank(tmp_path / "build" / "first")


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
