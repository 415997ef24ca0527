"""The programs and commands of the pages: each does what its page says.

A block of code with a title is a file. A block "console" has commands after "$ ", each with its output. A line of
"..." stands for any lines, "..." inside a line for any characters. The order of the lines does not matter, as ranks
print in any order. Blocks whose files use PyTorch run where PyTorch is installed, and all others where it is not.
"""

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("HCCL_BUILD_DIR", "build/release")
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.M | re.S)
FIRST = re.compile(r"`(first\.\w+)`.*?\n```\w+\n(.*?)^```$", re.M | re.S)  # as README names its programs
NEEDS = "torch" if importlib.util.find_spec("torch") else None
PAGES = [ROOT / "README.zh-CN.md", *sorted(ROOT.glob("docs/**/*.md"))]
TIMEOUT = 120  # seconds; for a hang, not for speed


def files_of(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    files = {title: body for _, title, body in BLOCK.findall(text) if title}
    return {**dict(FIRST.findall((ROOT / "README.md").read_text(encoding="utf-8"))), **files}


def needs(files, commands):
    used = [body for name, body in files.items() if name in commands]
    for framework in ("torch", "tensorflow"):
        if any(re.search(rf"^(import|from) .*\b{framework}\b", body, re.M) for body in used):
            return framework
    return None


def consoles():
    for page in PAGES:
        files = files_of(page)
        for i, (kind, _, body) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            if kind == "console" and needs(files, body) == NEEDS:
                yield pytest.param(page, body, id=f"{page.relative_to(ROOT)}-{i}")


def environment():
    folders = [sysconfig.get_path("scripts"), BUILD / "benchmarks", BUILD / "split/plan_tool", os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(map(str, folders)),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMP_NUM_THREADS": "1",
    }


def output_of(command, folder):
    """What a shell command prints. A job that hangs is ended with all its processes."""
    job = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment(), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        return job.communicate(timeout=TIMEOUT)[0]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def missing(expected, printed):
    """The expected lines that were not printed and, if the page shows all lines, the printed lines that it lacks."""
    rest, lacking = printed.splitlines(), []
    for line in expected:
        form = re.compile(".*".join(map(re.escape, line.strip().split("..."))))
        found = next((other for other in rest if form.fullmatch(other.strip())), None)
        if found is None:
            lacking.append(line)
        else:
            rest.remove(found)
    return lacking, rest


@pytest.mark.parametrize("page, body", list(consoles()))
def test_console(page, body, tmp_path):
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/release").symlink_to(BUILD)
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, *expected = re.sub(r"\\\n", "", part).strip().split("\n")
        printed = output_of(command.partition("    #")[0], tmp_path)
        shown = [line for line in expected if line.strip() != "..."]
        lacking, rest = missing(shown, printed)
        assert not lacking, f"{command}\nprinted\n{printed}"
        assert not rest or "..." in map(str.strip, expected), f"{command}\nprinted\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_compile(page):
    for kind, title, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            compile(body, f"{page.name}: {title}", "exec")
