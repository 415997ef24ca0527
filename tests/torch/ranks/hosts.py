"""Two hosts with two ranks each: a step of DDP, then rank 3 is killed in backward."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("hccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
alone = torch.nn.Linear(300, 300)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(300, 300))
batch = torch.randn(4 * size, 300, generator=torch.Generator().manual_seed(1))
alone(batch).pow(2).mean().backward()
model(batch[4 * rank : 4 * rank + 4]).pow(2).mean().backward()
for found, expected in zip(model.parameters(), alone.parameters()):
    torch.testing.assert_close(found.grad, expected.grad)
sys.stdout.write(f"rank {rank} of {size} is right\n")
sys.stdout.flush()
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the agent may end rank 2 before it has heard
dist.barrier()
if rank == 3:
    model.module.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
try:
    model(batch[:4]).sum().backward()
except dist.DistBackendError as error:
    sys.stdout.write(f"rank {rank} hears: {error}".splitlines()[0] + "\n")
    sys.stdout.flush()
    raise
