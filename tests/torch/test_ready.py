"""Ready modules, which a wheel contains in compiled form. Without a compiler, only a module that fits is used."""

import pathlib
import re
import sys
import sysconfig

import pytest
import ready
import torch
from conftest import run, torchrun

from hccl.torch.build import MODULE

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"

MINOR = ".".join(torch.__version__.split(".")[:2])
SOABI = sysconfig.get_config_var("SOABI")
DIGEST = MODULE.find().parent.name.rpartition("-")[2]  # of the sources of this environment's module


@pytest.mark.parametrize("writable", [True, False])
def test_the_ready_module_is_taken(writable, tmp_path):
    """If neither the package nor the cache can be written, each process unpacks the module and removes it."""
    target, variables = ready.package(tmp_path)
    variables["TMPDIR"] = str(tmp_path / "temporary")
    (tmp_path / "temporary").mkdir()
    if not writable:  # files instead of folders, because root may write to any folder
        (target / "torch" / "_built").touch()
        (tmp_path / "cache").touch()
    ready.pack(target, MODULE, [f"torch-{minor}-cxx11abi1-{SOABI}-{DIGEST}" for minor in ("1.99", MINOR)])
    information = run([sys.executable, "-m", "hccl.info"], **variables).stdout
    assert "ready in the package" in information, information
    program = tmp_path / "reduce.py"
    program.write_text(re.search(r'title="reduce.py"\n(.*?)```', README.read_text(encoding="utf-8"), re.S)[1])
    done = torchrun(2, program, **variables)
    for rank in range(2):
        assert f"rank {rank}: [1.0, 1.0, 1.0, 1.0]" in done.stdout, done.stdout + done.stderr
    assert "building" not in done.stderr, done.stderr
    assert len(list((target / "torch" / "_built").rglob(MODULE.file))) == writable
    assert not list((tmp_path / "temporary").iterdir())


def test_no_other_module_is_taken(tmp_path):
    """Modules of another version of torch, of another C++ ABI, for another Python, or of other sources."""
    target, variables = ready.package(tmp_path)
    others = [
        f"torch-1.99-cxx11abi1-{SOABI}-{DIGEST}",
        f"torch-{MINOR}-cxx11abi0-{SOABI}-{DIGEST}",
        f"torch-{MINOR}-cxx11abi1-cpython-399-x86_64-linux-gnu-{DIGEST}",
        f"torch-{MINOR}-cxx11abi1-{SOABI}-{'0' * 12}",
    ]
    ready.pack(target, MODULE, [*others, f"tensorflow-1.98-cxx11abi1-eigen64-x86_64-{DIGEST}"])
    done = run([sys.executable, "-m", "hccl.torch.build"], **variables)
    assert done.returncode != 0 and not list(target.rglob(f"_built/*/{MODULE.file}")), done.stdout
    assert "cmake is missing" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "No compiler is needed for torch 1.99, " in done.stderr, done.stderr
    assert "with cpython-" in done.stderr and "cpython-399" in done.stderr, done.stderr
    assert "1.98" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "version, fits",
    [("2.13.1", True), ("2.13.0+cu130", True), ("2.13.0a0+git1", False), ("2.13.0+mine", False)],
)
def test_only_releases_of_torch_have_ready_modules(version, fits, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    assert (MODULE.release() == "torch-2.13-cxx11abi1") == fits
    assert (MODULE.release() is None) != fits
