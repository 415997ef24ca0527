"""Two hosts with two ranks each, started three times: rank 3 is killed while the other ranks wait for it to join, then
in backward of DDP's second step; the third time all goes well. Files in FOLDER count how often rank 3 was killed."""

import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from hccl.torch import _module, _register
from torch.nn.parallel import DistributedDataParallel

LIMIT = 60
folder, rank = pathlib.Path(os.environ["FOLDER"]), int(os.environ["RANK"])
attempt = len(list(folder.glob("killed-*")))  # the agents of several hosts may count attempts differently


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def die():
    (folder / f"killed-{attempt}").touch()
    os.kill(os.getpid(), signal.SIGKILL)


class Watched(dist.Store):
    """The group's store. A file reports that this rank has read any root info."""

    def __init__(self, store):
        super().__init__()
        self.store = store

    def set(self, key, value):
        self.store.set(key, value)

    def wait(self, keys, timeout=None):
        self.store.wait(keys, timeout)

    def get(self, key):
        value = self.store.get(key)
        (folder / f"{attempt}-has-read-{rank}").touch()
        return value

    def compare_set(self, key, expected, desired):
        return self.store.compare_set(key, expected, desired)


def create(options, pg_options=None):
    if attempt == 0 and rank == 3:
        options.store.set("hccl/0/3", b"here")  # rank 0 waits for all ranks before it stores the root info
        options.store.wait(["hccl/0"])
        die()
    store = options.store
    if rank > 0:
        watched = Watched(store)  # c10d does not keep the Python object
        options.store = watched
    elif attempt == 1:  # the other ranks first find the earlier attempt's root info
        end = time.monotonic() + LIMIT
        while len(list(folder.glob("1-has-read-*"))) < 3:
            assert time.monotonic() < end
            time.sleep(0.02)
    backend = _register.create(options, pg_options)
    options.store = store
    return backend


_module.load()
dist.Backend.register_backend("watched", create, extended_api=True, devices=["cpu"])
dist.init_process_group("watched")
size = dist.get_world_size()
torch.manual_seed(0)
alone = torch.nn.Linear(300, 300)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(300, 300))
batch = torch.randn(4 * size, 300, generator=torch.Generator().manual_seed(1))
alone(batch).pow(2).mean().backward()
model(batch[4 * rank : 4 * rank + 4]).pow(2).mean().backward()
for found, expected in zip(model.parameters(), alone.parameters()):
    torch.testing.assert_close(found.grad, expected.grad)
say(f"attempt {attempt}: rank {rank} of {size} is right")
if attempt == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the agent may try to end rank 2 before rank 2 has its error
dist.barrier()
if attempt == 1 and rank == 3:
    model.module.weight.register_hook(lambda _: die())
try:
    model(batch[:4]).sum().backward()
except dist.DistBackendError as error:
    say(f"rank {rank} hears: {error}".splitlines()[0])
    raise
dist.destroy_process_group()
