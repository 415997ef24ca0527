"""Two ranks of horovod.torch; rank 0 trains longer than rank 1."""

import os

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError

hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
state = hvd.elastic.TorchState(model, optimizer, step=0)


@hvd.elastic.run
def train(state, steps):
    for state.step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        if state.step == 1:
            state.commit()
    hvd.join()


try:
    train(state, 5 if hvd.rank() == 0 else 3)
except HorovodInternalError as error:
    print(f"said: {error}", flush=True)
    os._exit(3)
