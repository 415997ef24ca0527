"""A rank of horovod.torch whose gradient is its rank plus 1. Rank 1 of the first world dies in the fourth step
or, with the argument "sync", while the others synchronise their states."""

import os
import signal
import sys

import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
state = hvd.elastic.TorchState(model, optimizer, step=-1)
sizes = []
state.register_reset_callbacks([lambda: sizes.append(hvd.size())])


@hvd.elastic.run
def train(state, steps):
    for state.step in range(state.step + 1, steps):
        optimizer.zero_grad()
        model(torch.full((1, 1), hvd.rank() + 1.0)).sum().backward()
        if hvd.size() == 3 and hvd.rank() == 1 and state.step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        if state.step == 1:
            state.commit()
    return steps


if sys.argv[1:] == ["sync"] and hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
train(state, 5)
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)
place = f"{hvd.rank()} of {hvd.size()} here {hvd.local_rank()} of {hvd.local_size()}"
print(f"said: {place}: {sizes} {state.step} {model.weight.item():.3f} {total.item()}", flush=True)
hvd.shutdown()
