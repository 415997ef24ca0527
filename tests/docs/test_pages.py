"""The programs and commands of the pages: each does what its page says.

A block of code with a title is a file. A block "console" has commands after "$ ", each with its
output. A line of "..." stands for any lines, "..." inside a line for any characters. The order of
the lines does not matter, as ranks print in any order. Blocks whose files use PyTorch, TensorFlow or
JAX run where it is installed, all others where none is.
"""

import importlib.util
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("HCCL_BUILD_DIR", "build/release")
BLOCK = re.compile(r"^```(\w*)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.M | re.S)
# Finds a program of the README: its name precedes the block.
FIRST = re.compile(r"`(first\.\w+)`.*?\n```\w+\n(.*?)^```$", re.M | re.S)
FRAMEWORKS = ("tensorflow", "ray", "torch", "jax")  # Ray's programs may also import torch
INSTALLED = {each for each in FRAMEWORKS if importlib.util.find_spec(each)}
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted(ROOT.glob("docs/**/*.md"))]
os.environ.pop("PYTHONUNBUFFERED", None)  # it would split the lines of ranks that share a pipe
TIMEOUT = 120  # seconds; for a hang, not for speed


def files_of(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    files = {title: body for _, title, body in BLOCK.findall(text) if title}
    return {**dict(FIRST.findall((ROOT / "README.md").read_text(encoding="utf-8"))), **files}


def needs(files, commands):
    used = [body for name, body in files.items() if name in commands]
    for framework in FRAMEWORKS:
        if any(re.search(rf"^(import|from) .*\b{framework}\b", body, re.M) for body in used):
            return framework
    return None


def runs_with(installed, framework):
    """Whether an environment with these frameworks runs a block that needs `framework` (or None)."""
    return framework in installed if installed else framework is None


def consoles():
    for page in PAGES:
        files = files_of(page)
        for i, (kind, _, body) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            if kind == "console" and runs_with(INSTALLED, needs(files, body)):
                yield pytest.param(page, body, id=f"{page.relative_to(ROOT)}-{i}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(folder):
    tools = [BUILD / "benchmarks", BUILD / "split/plan_tool", sysconfig.get_path("scripts")]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, tools), os.environ["PATH"]]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMP_NUM_THREADS": "1",
        "HCCL_JOB_ID": f"pages-{os.getpid()}",
        "HCCL_FLIGHT_RECORDER_DIR": str(folder),
    }


def output_of(command, folder):
    """Runs a shell command with free ports and returns its output. Kills a job that hangs."""
    command = re.sub(r"MASTER_PORT=\d+", lambda _: f"MASTER_PORT={free_port()}", command)
    command = re.sub(r"\btorchrun ", lambda _: f"torchrun --master-port {free_port()} ", command)
    if "hccl.config" in command:  # eval removes the quotes around paths with spaces
        command = f"eval {command}"
    job = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment(folder), text=True,
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        return job.communicate(timeout=TIMEOUT)[0]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def missing(expected, printed):
    """Returns the expected lines that were not printed. A library may print further lines. torchrun's ranks write a
    line and its end separately, so two lines may be joined."""
    lacking = []
    for line in expected:
        found = re.search(".*".join(map(re.escape, line.strip().split("..."))), printed)
        if found is None:
            lacking.append(line)
        else:
            printed = printed[: found.start()] + printed[found.end() :]
    return lacking


def link_tree(folder):
    """Links the files of the tree that commands of pages name."""
    for name in ("examples", "hccl"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(BUILD)


def test_blocks_run_where_their_framework_is():
    """Also beside a second framework: `scripts/test.sh long` leaves Ray in PyTorch's environment."""
    for framework in FRAMEWORKS:
        assert runs_with({framework}, framework) and runs_with({*FRAMEWORKS}, framework)
        assert not runs_with({framework}, None) and not runs_with(set(), framework)
    assert runs_with(set(), None)


@pytest.mark.parametrize("page, body", list(consoles()))
def test_console(page, body, tmp_path):
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    link_tree(tmp_path)
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, *expected = re.sub(r"\\\n", "", part).strip().split("\n")
        printed = output_of(command.partition("    #")[0], tmp_path)
        shown = [line for line in expected if line != "..."]
        assert not missing(shown, printed), f"{command}\nprinted\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_compile(page):
    for kind, title, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            compile(body, f"{page.name}: {title}", "exec")


@pytest.mark.parametrize("program", ["first.c", "first.py"])
def test_readme(program, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / program).write_text(dict(FIRST.findall(text))[program], encoding="utf-8")
    link_tree(tmp_path)
    command = next(body for kind, _, body in BLOCK.findall(text) if kind == "" and program in body)
    printed = output_of(command.replace(".venv/bin/python", "python3"), tmp_path)
    expected = [f"rank {rank} of 2: the sum is 1" for rank in (0, 1)]
    assert not missing(expected, printed), printed
