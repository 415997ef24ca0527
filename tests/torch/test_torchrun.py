"""Programs that are started as users start them."""

import concurrent.futures
import importlib.metadata
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from conftest import HERE, TIMEOUT, on_ranks, run, torchrun
from torch.profiler import ProfilerActivity, profile


@pytest.mark.parametrize("ranks, debug", [(2, "OFF"), (4, "OFF"), (2, "DETAIL")])
def test_upper_layers(ranks, debug, tmp_path):
    done = torchrun(ranks, HERE / "ranks" / "upper_layers.py", TORCH_DISTRIBUTED_DEBUG=debug, FOLDER=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all right") == ranks, done.stdout + done.stderr


def test_started_by_mpirun(tmp_path):
    store = f"file://{tmp_path}/store"
    program = (
        "import os, torch, torch.distributed as dist\n"
        f"dist.init_process_group('hccl', init_method='{store}', "
        "rank=int(os.environ['OMPI_COMM_WORLD_RANK']), world_size=2)\n"
        "tensor = torch.ones(3); dist.all_reduce(tensor); print(tensor.tolist())\n"
        "dist.destroy_process_group()\n"
    )
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpirun = ["mpirun", "--oversubscribe", "-np", 2, sys.executable, "-c", program]
    done = run(mpirun, OMPI_MCA_rmaps_base_oversubscribe="1", **root)
    assert done.stdout.count("[2.0, 2.0, 2.0]") == 2, done.stdout + done.stderr


def test_a_restart_after_a_kill(tmp_path):
    """A rank of the previous attempt is refused, and has no effect."""
    stale = tmp_path / "stale"
    restart = ["--max-restarts", 1, HERE / "ranks" / "restart.py"]
    done = torchrun(2, *restart, STALE=str(stale), HCCL_CONNECT_TIMEOUT="20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert stale.read_text().startswith("refused: hccl init_process_group"), stale.read_text()
    assert done.stdout.count("attempt 1: [2.0, 2.0, 2.0, 2.0]") == 2, done.stdout + done.stderr


def test_several_jobs_on_a_host():
    """Both jobs have forked and spawned workers of DataLoader, and threads of OpenMP."""
    with concurrent.futures.ThreadPoolExecutor() as threads:
        program = ["--standalone", HERE / "ranks" / "job.py"]
        jobs = [threads.submit(torchrun, 2, *program, OMP_NUM_THREADS="2", JOB=str(job)) for job in range(2)]
    for number, job in enumerate(jobs):
        done = job.result()
        assert done.returncode == 0, done.stdout + done.stderr
        for rank in range(2):
            assert f"rank {rank} of 2: {2.0 * number}" in done.stdout, done.stdout + done.stderr


def test_importing_hccl_does_not_import_torch(python):
    done = python(
        "import hccl, hccl.torch, sys; print('torch' in sys.modules)\n"
        "print(hccl.torch.optim.FusedSGD.__name__, 'torch' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "FusedSGD", "True"], done.stderr


def test_a_registration_that_fails_does_not_fail_the_import(python):
    done = python(
        "import torch, torch.distributed as dist\n"
        "def refuse(*_, **__): raise RuntimeError('no more backends')\n"
        "dist.Backend.register_backend = refuse\n"
        "from hccl.torch._register import register\n"
        "register(); print('goes on')\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout.strip() == "goes on" and "no more backends" in done.stderr, done.stderr


def test_another_package_with_our_name(python):
    done = python(
        "import torch, torch.distributed as dist\n"
        "dist.Backend.register_backend('hccl', lambda *a: None, devices=['npu'])\n"
        "from hccl.torch._register import register\n"
        "register(); register()\n"
        "store = dist.HashStore()\n"
        "dist.init_process_group('hccl_cpu', store=store, rank=0, world_size=1)\n"
        "t = torch.ones(1); dist.all_reduce(t); print(t.item())\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout.strip() == "1.0", done.stderr
    assert done.stderr.count('init_process_group("hccl_cpu")') == 1, done.stderr


def test_records_of_the_profiler():
    def work(rank):
        one = torch.ones(4)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            dist.all_reduce(one)
            dist.all_reduce(one, async_op=True).get_future().wait()
            dist.broadcast(one, 0)
            dist.barrier()
            dist.send(one, 1) if rank == 0 else dist.recv(one, 0)
        return {event.key: event.count for event in seen.key_averages() if "hccl:" in event.key}

    for rank, events in enumerate(on_ranks(2, work)):
        message = "hccl:send" if rank == 0 else "hccl:recv"
        assert events == {"hccl:all_reduce": 2, "hccl:broadcast": 1, "hccl:barrier": 1, message: 1}


def test_pytorchs_own_tests():
    """All tests of distributed_test.py that Gloo runs, but four that torch refuses to plugins."""
    done = run([sys.executable, HERE / "pytorch_suite.py"], limit=10 * TIMEOUT)  # 281 tests
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-20000:]


def test_building(python, tmp_path):
    found = run([sys.executable, "-m", "hccl.torch.build"])
    assert found.stdout.strip().endswith(".so") and found.returncode == 0
    nothing = run([sys.executable, "-m", "hccl.torch.build", "--force"], PATH=str(tmp_path))
    assert nothing.returncode != 0
    assert "is missing" in nothing.stderr and "Traceback" not in nothing.stderr, nothing.stderr


BUILDS = """
import pathlib, resource, sys, time
from hccl import _build

first, second = map(pathlib.Path, sys.argv[1:3])

class Module(_build.Module):  # does what a compiler would, in no time
    def _folders(self):
        return [first, second]

    def _run(self, command, **variables):
        if "--build" in command:
            time.sleep(0.5)
            (pathlib.Path(command[2]) / self.file).write_bytes(bytes(100_000))

if "full" in sys.argv:  # as a full disk does, this lets no file grow
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    _build.shutil.copy = lambda source, target: open(target, "wb").write(bytes(200_000))
del sys.argv[1:]
Module("PyTorch backend", "torch", "module.so", lambda: "torch 1.0", lambda: [], "a moment").main()
"""


def test_where_the_module_is_kept(tmp_path):
    """The module is built once, by one of the ranks that need it, and stored in the first folder that can be written. A
    full disk is an error."""

    def builds(*arguments):
        command = [sys.executable, "-c", BUILDS, *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, **pipes)

    nowhere, cache, other = "/proc/nowhere", tmp_path / "cache", tmp_path / "other"
    ranks = [builds(nowhere, cache) for _ in range(2)]
    refused, full = builds(nowhere, "/proc/either"), builds(other, nowhere, "full")
    paths, notes = zip(*(rank.communicate(timeout=TIMEOUT) for rank in ranks))
    assert paths[0] == paths[1] and os.path.getsize(paths[0].strip()) == 100_000, notes
    assert sum("built" in note for note in notes) == 1, notes
    _, errors = refused.communicate(timeout=TIMEOUT)
    assert f"none of these folders can be written: {nowhere}, /proc/either" in errors
    _, errors = full.communicate(timeout=TIMEOUT)
    assert "has been built, but cannot be kept" in errors and "Traceback" not in errors, errors
    left = [file.name for file in other.rglob("*.*") if file.is_file() and file.name != ".lock"]
    assert len(left) == 1 and left[0].endswith(".failed"), left  # for processes that wait for the module


def test_information():
    text = run([sys.executable, "-m", "hccl.info"]).stdout
    for words in [
        f"hccl {importlib.metadata.version('hccl')}",
        "libhccl.so",
        "device heap",
        f"torch {torch.__version__}",
        "_backend",
    ]:
        assert words in text, text
