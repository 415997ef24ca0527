"""RANK_SIZE and RANK_ID, which scripts read before the ranks join, and ranks that join by themselves."""

import os
import subprocess
import sys

import pytest
from conftest import HERE, QUIET, on_ranks, said
from hccl.tensorflow import _launcher

SCRIPT = HERE / "ranks" / "ops_only.py"
ADDRESS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", **ADDRESS}
STEP = {"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3"}
OPEN_MPI = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "a", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}


@pytest.mark.parametrize("package", ["npu_bridge", "npu_device"])
def test_a_script_with_hccl_ops_only_knows_its_rank_and_joins(package):
    outputs = on_ranks(2, SCRIPT, package)
    assert [said(output) for output in outputs] == [["0 of 2"], ["1 of 2"]]


@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec.hydra"])
def test_under_launchers_of_mpi(launcher):
    options = {"mpirun": ["--oversubscribe", "--allow-run-as-root"], "mpiexec.hydra": []}[launcher]
    done = subprocess.run(
        [launcher, *options, "-np", "2", sys.executable, SCRIPT, "npu_device"],
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(said(done.stdout)) == ["0 of 2", "1 of 2"], done.stdout


@pytest.mark.parametrize(
    "outer, inner, told", [(STEP, TORCHRUN, "1 of 4"), (TORCHRUN, STEP, "2 of 3"), (STEP, OPEN_MPI, "1 of 2")]
)
def test_the_innermost_launcher_counts(outer, inner, told):
    """A shell simulates the agent of the inner launcher, which has the outer launcher's variables."""
    show = "import os, npu_device; print('said:', os.environ['RANK_ID'], 'of', os.environ['RANK_SIZE'])"
    command = ["sh", "-c", 'env "$@"; exit $?', "sh", *(f"{n}={v}" for n, v in inner.items()), sys.executable, "-c", show]
    done = subprocess.run(command, env={**os.environ, **outer}, capture_output=True, text=True, timeout=120)
    assert said(done.stdout) == [told], done.stderr[-3000:]


@pytest.mark.parametrize(
    "variables, told",
    [
        (TORCHRUN, ("1", "4")),
        (STEP, ("2", "3")),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "6"}, ("2", "6")),
        (OPEN_MPI, ("1", "2")),
        ({"PMI_RANK": "0", "PMI_SIZE": "8"}, ("0", "8")),
        # srun with PMIx, whose own variables have no size
        ({"PMIX_RANK": "2", "PMIX_NAMESPACE": "a", **STEP}, ("2", "3")),
        # Rank and size are unknown: no launcher, a batch script of Slurm, several launchers at once, invalid values.
        ({}, (None, None)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (None, None)),
        ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "a"}, (None, None)),
        ({**TORCHRUN, **STEP}, (None, None)),
        ({**TORCHRUN, "RANK": "4"}, (None, None)),
        ({**TORCHRUN, "WORLD_SIZE": "EmptyString"}, (None, None)),
        # Variables that the user has set keep their values.
        ({**TORCHRUN, "RANK_SIZE": "4"}, ("1", "4")),
        ({**TORCHRUN, "RANK_SIZE": "8"}, (None, "8")),
        ({**TORCHRUN, "RANK_ID": "3"}, ("3", None)),
        ({**TORCHRUN, "CM_WORKER_SIZE": "4"}, (None, None)),
        ({**TORCHRUN, "RANK_TABLE_FILE": "table.json"}, (None, None)),
    ],
)
def test_rank_size_and_rank_id(variables, told, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(variables))
    _launcher.tell_scripts()
    assert (os.environ.get("RANK_ID"), os.environ.get("RANK_SIZE")) == told
    assert {**os.environ, **variables} == dict(os.environ)
