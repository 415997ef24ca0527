"""Helpers of the tests of the Python package: they start ranks as threads and as processes."""

import os
import pathlib
import subprocess
import sys
import threading

import hccl
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / os.environ.get("HCCL_BUILD_DIR", "build/release")
TIMEOUT = 120  # seconds; for a hang, not for speed
os.environ.pop("PYTHONUNBUFFERED", None)  # it tears the lines of ranks that share a pipe


def environment():
    return {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def run(command, **options):
    """Runs a command and returns the finished process, with its output as text."""
    return subprocess.run(
        [str(word) for word in command],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        **options,
    )


def mpirun(ranks, *command):
    return run(["mpirun", "-np", ranks, *command])


def run_rank_script(ranks, name):
    """Runs ranks/<name> on this many ranks, all of which must succeed."""
    script = HERE / "ranks" / name
    done = mpirun(ranks, sys.executable, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all right") == ranks, done.stdout + done.stderr


def on_threads(size, work):
    """Calls work(comm) on a thread for each rank of a new communicator. Returns their results, by rank."""
    info = hccl.root_info()
    results, errors = [None] * size, []
    all_done = threading.Barrier(size)  # no rank leaves while others still work

    def rank_thread(rank):
        try:
            with hccl.Communicator.from_root_info(info, size, rank) as comm:
                results[rank] = work(comm)
                all_done.wait(TIMEOUT)
        except threading.BrokenBarrierError:
            pass  # another rank's failure is reported
        except BaseException as error:  # shown by the test, not lost in the thread
            errors.append(error)
            all_done.abort()

    threads = [
        threading.Thread(target=rank_thread, args=(rank,), daemon=True) for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "a rank hangs"
    if errors:
        raise errors[0]
    return results


@pytest.fixture(scope="session")
def alone():
    """A communicator of one rank."""
    with hccl.Communicator.from_root_info(hccl.root_info(), 1, 0) as comm:
        yield comm
