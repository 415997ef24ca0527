"""Helpers of the tests of the PyTorch backend: ranks forked from this process, and torchrun."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import traceback

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from hccl.torch import _module

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 120  # seconds; for a hang, not for speed
os.environ.pop("PYTHONUNBUFFERED", None)  # it would split the lines of ranks that share a pipe
torch.set_num_threads(1)  # ranks are forked, so this process must have one thread


def _rank(work, rank, size, folder, options, pipe):
    try:
        store = dist.FileStore(f"{folder}/store", size)
        dist.init_process_group(
            options.pop("backend", "hccl"), store=store, rank=rank, world_size=size, **options
        )
        result = work(rank)
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.close()
    os._exit(0)  # exit handlers of the parent must not run in ranks


def on_ranks(size, work, *, killed=(), **options):
    """Calls work(rank) on new processes that have joined. Returns their results, by rank; None for the ranks in
    `killed`, which kill themselves."""
    fork = processes.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            parent, child = fork.Pipe()
            arguments = (work, rank, size, folder, dict(options), child)
            ranks.append((fork.Process(target=_rank, args=arguments), parent))
            ranks[-1][0].start()
            child.close()
        try:
            answers = [_answer(pipe) for _, pipe in ranks]
        finally:
            for process, _ in ranks:
                process.kill()
                process.join()
    failures = [
        f"rank {rank}: {result}"
        for rank, (well, result) in enumerate(answers)
        if not well and rank not in killed
    ]
    assert not failures, "\n".join(failures)
    return [result if well else None for well, result in answers]


def _answer(pipe):
    """Returns whether a rank succeeded, and its result."""
    if not pipe.poll(TIMEOUT):
        return False, "hangs"
    try:
        return pipe.recv()
    except EOFError:
        return False, "died"


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def run(command, limit=TIMEOUT, **environment):
    """Runs a command and returns the finished process, with its output as text."""
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=limit,
    )


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--redirects", "3")  # like users, but with files by rank


def torchrun(ranks, *command, launcher=TORCHRUN, **environment):
    """Runs the launcher and returns it with the output and the errors of its ranks. Each rank writes into its own
    files: it runs with `python -u`, which writes a line in parts, and in a common pipe the parts of two ranks would
    mix."""
    with tempfile.TemporaryDirectory() as folder:
        start = [*launcher, "--log-dir", folder, "--nproc-per-node", ranks, *command]
        done = run(start, limit=2 * TIMEOUT, **environment)
        done.stdout += ranks_wrote(folder, "stdout")
        done.stderr += ranks_wrote(folder, "stderr")
    return done


def ranks_wrote(folder, stream):
    """Returns the "stdout" or "stderr" of torchrun's ranks below its --log-dir, one rank after the other."""
    return "".join(file.read_text() for file in sorted(pathlib.Path(folder).rglob(f"{stream}.log")))


@pytest.fixture
def python():
    """Returns a function that runs a program given as text."""
    return lambda text, **environment: run([sys.executable, "-c", text], **environment)


@pytest.fixture
def form(request, monkeypatch):
    """Gives ranks the form of the backend that the test names by an indirect parameter."""
    monkeypatch.setenv("HCCL_TORCH_FORM", request.param)
    _module.why_python.cache_clear()
    yield
    _module.why_python.cache_clear()


def in_both_forms(test):
    """Runs a test with the compiled form of the backend, and with its form in Python."""
    forms = pytest.mark.parametrize("form", ["native", "python"], indirect=True)
    return forms(pytest.mark.usefixtures("form")(test))


HEAD = "import hccl.torch; hccl.torch.as_npu(); import torch, torch_npu\n"


def check(text, **environment):
    """Runs a program that imports torch_npu and returns its output; the program must succeed."""
    done = run([sys.executable, "-c", HEAD + text], **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
