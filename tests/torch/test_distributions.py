"""hccl and hccl-ascend as separate packages: the names that each installs."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("HCCL_BUILD_DIR", "build/dev")
SITE = pathlib.Path(numpy.__file__).parents[1]
PIP = (sys.executable, "-m", "pip")
TIMEOUT = 600  # seconds; for a hang, not for speed
SCRIPT = """
import torch_npu, torch
from apex import amp
import hccl.torch.npu
print("said:", torch.ones(2).npu().sum().item(), hccl.torch.npu.__file__)
"""


def run(*command, status=0):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT,
        env={**os.environ, "CMAKE_EXECUTABLE": "/usr/bin/cmake"},
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Returns a folder with both wheels, made as in scripts/wheels.sh, from the library that scripts/python.sh has
    built."""
    folder = tmp_path_factory.mktemp("dist", numbered=False)
    make = (*PIP, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder)
    run(
        *make,
        "--config-settings=install.components=python",
        f"--config-settings=cmake.define.hccl_ROOT={BUILD}-install",
        "--config-settings=build-dir=build/python/{wheel_tag}",
        ROOT,
    )
    run(*make, ROOT / "python/ascend")
    return folder


@pytest.fixture
def environment(tmp_path):
    """Returns the interpreter and the folder of packages of a new environment with NumPy."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    for package in SITE.glob("numpy*"):
        (site / package.name).symlink_to(package)
    return tmp_path / "bin/python", site


def install(python, wheels, what):
    run(*PIP, "--python", python, "install", "--no-index", "--find-links", wheels, what)


def top_level(site):
    """Returns the names of packages, without versions."""
    found = (each.name for each in site.iterdir())
    return {re.sub("-.*", "", name) for name in found if not name.startswith(("numpy", "__pycache__"))}


def test_a_plain_install_brings_no_name_of_ascend(environment, wheels, tmp_path):
    python, site = environment
    command = "pip install dist/hccl-*.whl"
    for page in ("README.md", "README.zh-CN.md"):
        assert f"\n{command}" in (ROOT / page).read_text(encoding="utf-8")
    pip = f"'{sys.executable}' -m pip --python '{python}' install --no-index"
    run("bash", "-c", f"cd '{wheels.parent}' && {command.replace('pip install', pip)}")
    assert top_level(site) == {"hccl", "_hccl_torch.py"}
    names = "npu_device", "npu_bridge", "torch_npu", "apex", "hccl.torch.npu"
    text = f"import importlib.util as i; print(*(n for n in {names} if i.find_spec(n)), 'said')"
    assert run(python, "-c", text) == "said\n"
    (tmp_path / "script.py").write_text(SCRIPT)
    printed = run(python, "-m", "hccl.torch", tmp_path / "script.py", status=1)
    assert "pip install --no-index --find-links dist 'hccl[ascend]'" in printed


def test_the_extra_brings_them(environment, wheels, tmp_path):
    python, site = environment
    install(python, wheels, "hccl[ascend]")
    assert top_level(site) == {"hccl", "_hccl_torch.py", "hccl_ascend", "hccl_ascend.pth"}
    text = """import importlib.util as i, importlib.metadata as m
found = (i.find_spec(n) is not None for n in ("npu_device", "npu_bridge"))
print(*found, m.requires("hccl-ascend"))"""
    (wheel,) = wheels.glob("hccl-*.whl")
    assert run(python, "-c", text) == f"True True ['hccl=={wheel.name.split('-')[1]}']\n"
    # PyTorch's folder is last in the path, so Python uses the new packages, with a module that was built earlier.
    (site / "torch.pth").write_text(f"{SITE}\n")
    (site / "hccl/torch/_built").symlink_to(SITE / "hccl/torch/_built")
    (tmp_path / "script.py").write_text(SCRIPT)
    printed = run(python, "-m", "hccl.torch", tmp_path / "script.py")
    assert f"said: 2.0 {site}/hccl/torch/npu/__init__.py" in printed


def test_the_tree_installs_both(wheels):
    """`pip install .` has also installed each file of the two wheels in this environment."""
    names = [name for wheel in wheels.iterdir() for name in zipfile.ZipFile(wheel).namelist()]
    names = [name for name in names if ".dist-info/" not in name]
    assert len(names) > 150
    assert [name for name in names if not (SITE / name).exists()] == []
