"""Rank 1 of the first attempt is killed; torchrun starts all ranks again, and the work ends."""

import os
import signal
import sys

import torch
import torch.distributed as dist

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("hccl")
tensor = torch.ones(4)
for _ in range(3):
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
if attempt == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(tensor)
sys.stdout.write(f"attempt {attempt}: {tensor.tolist()}\n")
dist.destroy_process_group()
