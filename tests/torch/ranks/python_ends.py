"""How programs over the form in Python end. Each way is a pair of ranks. They are forked here, so that torch is
imported once, and run to the end of this file, as programs do. Prints {way: [end of rank 0, end of rank 1]} as JSON.

    python_ends.py FOLDER
"""

import gc
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background tests ignore it
torch.set_num_threads(1)
gc.freeze()  # otherwise many processes take long to end
os.environ["HCCL_TORCH_FORM"] = "python"
tensor, model = torch.ones(1000), torch.nn.Linear(2, 2)
INTERRUPTED = {
    "sync": lambda: dist.all_reduce(tensor),
    "async": lambda: dist.all_reduce(tensor, async_op=True).wait(),
    "message": lambda: dist.recv(tensor, 1),
    "backward": lambda: wrapped(torch.ones(1, 2)).sum().backward(),
}


def nobody_waits():
    dist.all_reduce(tensor, async_op=True)


def callback():
    dist.all_reduce(tensor, async_op=True).get_future().then(lambda _: dist.all_reduce(tensor))


def exception():
    dist.all_reduce(tensor, async_op=True)
    raise KeyError


def code():
    dist.new_group()
    dist.isend(tensor, 1 - rank)
    dist.recv(tensor)
    sys.exit(3)


LEFT = [nobody_waits, callback, exception, code]


def interrupt(way):
    """Rank 0 gets Ctrl-C while it waits. Rank 1 gets an error then; for a message, when rank 0 ends."""
    try:
        if rank == 0:
            pid = os.getpid()
            if os.fork() == 0:
                time.sleep(1)
                os.kill(pid, signal.SIGINT)
                os._exit(0)
            INTERRUPTED[way]()
        else:
            time.sleep(2)
            dist.barrier()
    except KeyboardInterrupt:
        report("KeyboardInterrupt")
    except RuntimeError:
        report("told")
        if rank == 0:
            report("KeyboardInterrupt")
    raise SystemExit(0)


def report(text):
    with open(f"{sys.argv[1]}/{way}-{rank}", "w") as file:
        file.write(text)


def fork(way):
    global rank
    pids = []
    for rank in range(2):
        pids.append(os.fork())
        if pids[-1] == 0:
            return None
    return pids


children = {}
for way in [*INTERRUPTED, *(each.__name__ for each in LEFT)]:
    children[way] = fork(way)
    if children[way] is None:
        break
else:
    ends = {}
    for each, pids in children.items():
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        names = [f"{sys.argv[1]}/{each}-{number}" for number in range(2)]
        ends[each] = [open(name).read() for name in names] if each in INTERRUPTED else codes
    print(json.dumps(ends))
    sys.exit()

store = dist.FileStore(f"{sys.argv[1]}/{way}.store", 2)
dist.init_process_group("hccl", store=store, rank=rank, world_size=2)
dist.all_reduce(tensor)
if way == "backward":
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
if way in INTERRUPTED:
    interrupt(way)
globals()[way]()
