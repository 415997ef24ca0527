"""Starts the programs of examples/torch as users do."""

import re
import sys

import pytest
import torch
from conftest import HERE, run, torchrun

EXAMPLES = HERE.parent.parent / "examples" / "torch"
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def started(launcher, ranks, program, *options):
    """Starts a program and returns its output."""
    if launcher == "torchrun":
        done = torchrun(ranks, EXAMPLES / program, *options)
    else:
        done = run(["mpirun", "-np", ranks, sys.executable, EXAMPLES / program, *options], **MPI)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy(output):
    return float(re.search(r"accuracy ([0-9.]+)", output)[1])


def assert_same(weights, others):
    assert weights.keys() == others.keys()
    for name in weights:
        torch.testing.assert_close(others[name], weights[name], rtol=0, atol=1e-5, msg=name)


def test_digits_give_the_same_weights_on_any_number_of_ranks(tmp_path):
    runs = [
        ("torchrun", 1, "ddp_digits.py"),
        ("torchrun", 2, "ddp_digits.py", "--plan", "--trace", tmp_path / "trace.pb"),
        ("mpirun", 4, "ddp_digits.py"),
        ("torchrun", 2, "fsdp_digits.py"),
    ]
    weights = []
    for number, (launcher, ranks, *command) in enumerate(runs):
        file = tmp_path / f"{number}.pt"
        output = started(launcher, ranks, *command, "--save", file)
        assert accuracy(output) >= 0.97, output
        weights.append(torch.load(file))
    for others in weights[1:]:
        assert_same(weights[0], others)
    assert (tmp_path / "trace.pb").stat().st_size > 10000


def test_fsdp_under_mpirun():
    output = started("mpirun", 2, "fsdp_digits.py", "--epochs", 1)
    parts = [int(part) for part in re.findall(r"rank \d has (\d+) of", output)]
    everything = int(re.search(r"of (\d+) weights", output)[1])
    assert len(parts) == 2 and sum(parts) == everything


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_two_ranks_embed_as_one(launcher):
    output = started(launcher, 2, "tensor_parallel.py", "--rounds", 2)
    near, far = map(float, re.search(r"sentences ([0-9.]+), others ([0-9.]+)", output).groups())
    assert near > far + 0.3  # with the published weights, related sentences are close
    for name in ("hccl", "gloo"):
        assert float(re.search(rf"{name}.*off by (\S+)", output)[1]) < 1e-5, output
