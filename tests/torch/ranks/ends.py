"""Pairs of ranks that end without destroy_process_group(), one pair for each way of ending. Arguments: an empty folder,
the ways. Prints their exit codes, by way, as JSON."""

import atexit
import json
import os
import sys
import threading

way = ""
atexit.register(lambda: handler() if way == "code" else None)  # registered before torch is imported, so it runs last

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def nobody_waits(rank):
    for _ in range(40):
        dist.all_reduce(torch.ones(1 << 18), async_op=True)


def callbacks(rank):
    for _ in range(40):
        future = dist.all_reduce(torch.ones(1 << 16), async_op=True).get_future()
        future.then(lambda f: f.value()[0].sum()).then(lambda f: f.value().item())


def compressed(rank):
    model = DistributedDataParallel(torch.nn.Linear(1000, 1000))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    model(torch.randn(8, 1000)).sum().backward()


def messages(rank):
    for tag in range(10):
        dist.isend(torch.ones(1 << 16), 1 - rank, tag=tag).get_future().then(lambda f: f.value())
        future = dist.irecv(torch.zeros(1 << 16), 1 - rank, tag=tag).get_future()
        future.then(lambda f: f.value()[0].sum())


def thread(rank):
    groups = [dist.new_group() for _ in range(2)]
    if rank == 0:  # rank 1 never calls these operations
        waits = lambda: dist.all_reduce(torch.ones(1), group=groups[0])
        threading.Thread(target=waits, daemon=True).start()
        waits = lambda: dist.irecv(torch.ones(1), 1, group=groups[1]).wait()
        threading.Thread(target=waits, daemon=True).start()
    dist.barrier()


def cleanup(rank):
    """An exit handler uses the groups."""
    nobody_waits(rank)
    dist.barrier()


def code(rank):
    """An exit handler runs after the backend's, because it was registered before torch was imported."""
    nobody_waits(rank)
    sys.exit(3)


def handler():
    for call in (dist.barrier, dist.new_group):
        try:
            call()
        except RuntimeError as error:
            print(error, file=sys.stderr)


def exception(rank):
    if rank == 1:
        dist.irecv(torch.ones(1), 0)  # only this rank calls it
        raise ValueError("expected")
    dist.barrier()


def clean():
    dist.barrier()
    dist.destroy_process_group()


def main(folder, *ways):
    global way
    children = []
    for number, way in enumerate(way for way in ways for _ in range(2)):
        children.append(os.fork())
        if children[-1] == 0:
            if way == "cleanup":
                atexit.register(clean)
            store = dist.FileStore(f"{folder}/{way}", 2)
            dist.init_process_group("hccl", store=store, rank=number % 2, world_size=2)
            return globals()[way](number % 2)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(dict(zip(ways, zip(codes[::2], codes[1::2])))))


torch.set_num_threads(1)  # ranks are forked
main(*sys.argv[1:])
