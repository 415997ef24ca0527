"""The common part of ddp_digits.py and fsdp_digits.py: joining, digits, network, loop."""

import argparse
import os
import pathlib
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv"


def join(backend: str) -> tuple[int, int]:
    """Joins the ranks that torchrun or mpirun has started, or a world of one. Returns the rank of
    this process and the number of ranks."""
    environment = os.environ
    if "RANK" not in environment:  # not torchrun
        job = environment.get("PMIX_NAMESPACE", str(os.getpid()))
        environment["RANK"] = environment.get("OMPI_COMM_WORLD_RANK", "0")
        environment["WORLD_SIZE"] = environment.get("OMPI_COMM_WORLD_SIZE", "1")
        environment.setdefault("MASTER_ADDR", "127.0.0.1")
        environment.setdefault("MASTER_PORT", str(20000 + zlib.crc32(job.encode()) % 10000))
        torch.set_num_threads(1)  # as torchrun does: ranks run in parallel instead of threads
    dist.init_process_group(backend)
    return dist.get_rank(), dist.get_world_size()


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--backend", default="hccl", help="hccl or gloo")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="images of all ranks together")
    parser.add_argument("--save", help="a file for the trained weights")
    return parser


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns images (n, 1, 8, 8) and labels for training, and images and labels for the test,
    which are the last fifth."""
    with open(DATA) as file:
        rows = torch.tensor([[int(word) for word in line.split(",")] for line in file])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1797))]
    images, labels = rows[:, :-1].float().reshape(-1, 1, 8, 8) / 16, rows[:, -1]
    train = len(rows) - len(rows) // 5
    return images[:train], labels[:train], images[train:], labels[train:]


class Network(nn.Sequential):
    """Two convolutions and two linear layers, the same on every rank."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        super().__init__(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.GELU()),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.GELU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(64 * 4 * 4, 128), nn.GELU(), nn.Linear(128, 10)),
        )


def train(model: nn.Module, arguments: argparse.Namespace, rank: int, size: int) -> None:
    """Trains the model. Each rank takes its part of every batch; the model averages gradients."""
    images, labels, _, _ = load()
    if arguments.batch % size != 0:
        raise SystemExit(f"--batch {arguments.batch} cannot be shared by {size} ranks")
    part = arguments.batch // size
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = arguments.epochs * (len(images) // arguments.batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=steps)
    begin = time.perf_counter()
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order[: len(order) // arguments.batch * arguments.batch].split(
            arguments.batch
        ):
            mine = batch[rank * part : (rank + 1) * part]
            optimizer.zero_grad(set_to_none=False)  # keeps the gradients in shared memory
            functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
            schedule.step()
    if rank == 0:
        print(f"{size} ranks: {time.perf_counter() - begin:.1f} s for {arguments.epochs} epochs")


def accuracy(model: nn.Module) -> float:
    """Returns the accuracy on the test images; every rank computes all of them."""
    _, _, images, labels = load()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()
