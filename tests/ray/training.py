"""The training of Ray Train's workers, a linear regression, and its oracle in numpy."""

import pathlib

import numpy as np

STEPS, RATE, ROWS, COLUMNS = 20, 0.1, 16, 4


def data(rank):
    """Returns the inputs and targets of one worker."""
    random = np.random.default_rng(rank)
    inputs = random.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    return inputs, (inputs @ np.arange(1, COLUMNS + 1, dtype=np.float32))[:, None]


def train(config):
    import torch
    import torch.distributed as dist
    from ray import train
    from ray.train.torch import prepare_model

    assert dist.get_backend() == "hccl"
    rank = train.get_context().get_world_rank()
    inputs, targets = map(torch.from_numpy, data(rank))
    model = torch.nn.Linear(COLUMNS, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    model = prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    weights = next(model.parameters()).detach().numpy()
    np.savetxt(pathlib.Path(config["out"]) / f"weights-{rank}", weights)


def expected():
    inputs, targets = (np.concatenate(both) for both in zip(data(0), data(1)))
    weights = np.zeros((COLUMNS, 1))
    for _ in range(STEPS):
        weights -= RATE * 2 * inputs.T @ (inputs @ weights - targets) / len(inputs)
    return weights[:, 0]
