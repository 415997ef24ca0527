"""Two hosts with one rank each. Rank 0 fails in the first attempt, so rank 1's agent starts rank 1 again without
counting that as a restart. A process of the first attempt survives, and tries to join the second attempt as rank 1: by
torchrun's variables, and by PyTorch's store. Files in FOLDER mark the steps."""

import datetime
import os
import pathlib
import subprocess
import sys
import time

import hccl
import numpy as np
import torch
import torch.distributed as dist

LIMIT = 60
folder, rank = pathlib.Path(os.environ["FOLDER"]), int(os.environ["RANK"])
old = "OLD" in os.environ


def done(step):
    (folder / step).touch()


def wait_for(step):
    end = time.monotonic() + LIMIT
    while not (folder / step).exists():
        assert time.monotonic() < end, f"{step} does not come"
        time.sleep(0.02)


def by_variables():
    with hccl.init() as comm:
        return comm.allreduce(np.array([1.0 + rank]))[0]


def by_store():
    dist.init_process_group("hccl", timeout=datetime.timedelta(seconds=LIMIT))
    number = torch.tensor(1.0 + rank)
    dist.all_reduce(number)
    dist.destroy_process_group()
    return number.item()


if not old and not (folder / "failed").exists():
    if rank == 1:
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "OLD": ""}, start_new_session=True)
        time.sleep(LIMIT)
    wait_for("old lives")
    time.sleep(1.5)  # attempts on one host must be more than a second apart
    done("failed")
    sys.exit(1)
if old:
    done("old lives")
    wait_for("new lives")
elif rank == 1:
    done("new lives")
for way in (by_variables, by_store):
    if rank == 1 and not old:
        wait_for(f"old has tried {way.__name__}")
        if (folder / "old is rank 1").exists():
            sys.exit()
    try:
        text = f"{way()}"
        if old:
            done("old is rank 1")
    except Exception as error:
        text = str(error)
    sys.stdout.write(f"{'old' if old else 'new'} rank {rank} {way.__name__}: {text}\n".replace("\n", " ") + "\n")
    sys.stdout.flush()
    if old:
        done(f"old has tried {way.__name__}")
