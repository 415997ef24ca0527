""" "gloo" means hccl: in programs, and in frameworks that know no other backend for CPUs. The oracle is Gloo itself:
with Gloo the same program gets the same weights."""

import importlib.util
import json
import sys

import pytest
from conftest import HERE, TIMEOUT, run, torchrun

PROGRAM = HERE / "ranks" / "gloo.py"
FRAMEWORKS = ["plain", "accelerate", "trainer"]
# DeepSpeed links an extension when it starts, which fails if Python's path has a space, as in .ci/run's clone. So only
# `scripts/test.sh long` installs it, and tests it by name.
if importlib.util.find_spec("deepspeed"):
    FRAMEWORKS.append("deepspeed")


def said(folder, ranks=2):
    return [json.loads((folder / str(rank)).read_text()) for rank in range(ranks)]


def weights(folder, start, **environment):
    """Runs the program and returns what both ranks reported; their reports must be equal."""
    folder.mkdir()
    done = start(OUT=str(folder), **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = said(folder)
    assert first == second
    assert first["size"] == 2
    return first


@pytest.mark.parametrize("program", FRAMEWORKS)
def test_gloo_is_hccl_by_torchrun(program, tmp_path):
    ours = weights(tmp_path / "ours", lambda **env: torchrun(2, "-m", "hccl.torch", "--as-gloo", PROGRAM, program, **env))
    gloo = weights(tmp_path / "gloo", lambda **env: torchrun(2, PROGRAM, program, **env))
    assert (ours.pop("ours"), gloo.pop("ours")) == (True, False)
    assert ours.pop("weights") == pytest.approx(gloo.pop("weights"), rel=1e-5)
    assert ours == gloo  # also the backend's name is equal


def test_gloo_is_hccl_in_processes_that_a_framework_starts(tmp_path):
    """Lightning starts the script once more, without `-m hccl.torch`; the new process inherits the variable. Lightning
    asks torch for the default backend of CPUs, which is then "hccl"."""
    command = [sys.executable, "-m", "hccl.torch", "--as-gloo", PROGRAM, "lightning"]
    ours = weights(tmp_path / "ours", lambda **env: run(command, limit=TIMEOUT, **env))
    gloo = weights(tmp_path / "gloo", lambda **env: run([sys.executable, PROGRAM, "lightning"], **env))
    assert (ours["ours"], gloo["ours"]) == (True, False)
    assert ours["weights"] == pytest.approx(gloo["weights"], rel=1e-5)


def test_the_variable_is_enough(python):
    program = (
        "import torch.distributed as dist\n"
        "from hccl.torch import _module, as_gloo\n"
        "as_gloo()\n"  # a second time
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "print(dist.get_backend(), _module.backend_of(dist.group.WORLD) is not None)\n"
    )
    done = python(program, HCCL_AS_GLOO="1")
    assert (done.stdout, done.returncode) == ("gloo True\n", 0), done.stderr


def test_the_variable_is_0_or_1():
    """With any other value no group is made: the user might mean another backend."""
    program = "import torch.distributed as dist\ndist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)"
    done = run([sys.executable, "-c", program], HCCL_AS_GLOO="off")
    assert 'HCCL_AS_GLOO is "off"; it may be 0 or 1' in done.stderr, done.stderr
