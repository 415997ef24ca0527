"""Rank 1 of the first attempt is killed; torchrun starts all ranks again, and the work ends well, though a rank of the
first attempt still runs and tries to join. That rank writes its error into the file STALE."""

import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from hccl.torch import _module, _register

attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
joined, refused = pathlib.Path(os.environ["STALE"] + ".joined"), pathlib.Path(os.environ["STALE"])
LIMIT = 60


def wait_for(file):
    end = time.monotonic() + LIMIT
    while not file.exists():
        assert time.monotonic() < end, f"{file} does not come"
        time.sleep(0.02)


class Remembered(dist.Store):
    """The store as it was for a rank of the first attempt."""

    def __init__(self, root_info):
        super().__init__()
        self.root_info = root_info

    def set(self, key, value):
        pass

    def wait(self, keys, timeout=None):
        pass

    def get(self, key):
        return self.root_info


def stale_rank(options):
    """Forks a child of rank 1 that survives. It tries to join after all ranks of the next attempt have joined."""
    options.store.set("hccl/0/1", b"here")  # rank 0 waits for all ranks before it stores the root info
    options.store.wait(["hccl/0"])
    root_info = options.store.get("hccl/0")
    if os.fork() > 0:
        return
    os.setsid()  # so that torchrun does not end it
    wait_for(joined)
    try:
        _module.load().create(
            store=Remembered(root_info),
            rank=1,
            size=2,
            timeout=options.timeout,
            group_name="stale",
            global_ranks=[0, 1],
            whole=None,
        )
        text = "joined"
    except dist.DistBackendError as error:
        text = f"refused: {error}"
    refused.with_suffix(".new").write_text(text)
    refused.with_suffix(".new").rename(refused)
    os._exit(0)


def create(options, pg_options=None):
    if attempt == 0 and rank == 1:
        stale_rank(options)
    return _register.create(options, pg_options)


_module.load()
dist.Backend.register_backend("watched", create, extended_api=True, devices=["cpu"])
dist.init_process_group("watched")
tensor = torch.ones(4)
for _ in range(3):
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
if attempt == 0 and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if attempt == 1:
    joined.touch()
    wait_for(refused)
dist.all_reduce(tensor)
sys.stdout.write(f"attempt {attempt}: {tensor.tolist()}\n")
dist.destroy_process_group()
