"""Collectives between processes, and between threads of one process."""

import sys

import hccl
import numpy as np
import pytest
from conftest import ROOT, mpirun, on_threads, run_rank_script


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_processes(ranks):
    run_rank_script(ranks, "collectives.py")


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_threads(ranks):
    def work(comm):
        assert comm.size == ranks
        total = comm.allreduce(np.full(10_000, comm.rank, np.int32))
        assert (total == sum(range(ranks))).all()
        gathered = comm.allgather(np.full((2, 3), comm.rank, np.float16))
        assert gathered.shape == (2 * ranks, 3)
        np.testing.assert_array_equal(gathered[:, 0], np.repeat(np.arange(ranks), 2))
        return comm.rank

    assert on_threads(ranks, work) == list(range(ranks))


def test_ranks_that_disagree_all_learn_it():
    def work(comm):
        with pytest.raises(hccl.HcclError) as caught:
            comm.allreduce(np.zeros(10 + comm.rank, np.float32))
        return caught.value.code, str(caught.value)

    for code, text in on_threads(2, work):
        assert code == 1
        assert "count 10," in text and "count 11," in text, text


def test_error_can_be_copied():
    import pickle

    error = pickle.loads(pickle.dumps(hccl.HcclError(9, "too late")))
    assert (error.code, str(error)) == (9, "too late")
    assert isinstance(error, RuntimeError)


SCRIPTS = [("groups.py", 4), ("split.py", 1), ("split.py", 2)]
SCRIPTS += [("operations.py", ranks) for ranks in [1, 2, 4]]


@pytest.mark.parametrize("script, ranks", SCRIPTS)
def test_scripts(script, ranks):
    run_rank_script(ranks, script)


def test_the_example_of_heat():
    """The result is that of one numpy program."""
    rod = np.zeros(1202)
    rod[201:401] = 100
    for _ in range(2000):
        rod[1:-1] = rod[1:-1] + 0.4 * (rod[:-2] - 2 * rod[1:-1] + rod[2:])
    expected = f"after 2000 steps: at most {rod.max():.3f} degrees, in all {rod.sum():.3f}\n"
    for ranks in [1, 3]:
        done = mpirun(ranks, sys.executable, ROOT / "examples" / "heat.py")
        assert (done.returncode, done.stdout) == (0, expected), done.stdout + done.stderr
