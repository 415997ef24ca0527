#!/usr/bin/env python3
"""Embeds sentences with a transformer that two ranks share (DTensor), and times it.

    torchrun --nproc-per-node 2 examples/torch/tensor_parallel.py
    mpirun -np 2 python3 examples/torch/tensor_parallel.py

Each rank has half of the heads and half of the wide layer of all-MiniLM-L6-v2, and two allreduces in each layer join
the halves. The embeddings equal those of one rank. Prints the time of a sentence, beside the times with one rank and
over Gloo.
"""

import argparse
import statistics
import time

import digits
import minilm
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor, init_device_mesh
from torch.nn import functional

SENTENCES = [
    "A man is eating a piece of bread.",
    "Someone has a sandwich for lunch.",
    "The stock market fell sharply on Friday after weak earnings reports.",
    "Two ranks compute one sentence together, and each of them holds half of the weights.",
]


class Sum(nn.Module):
    """A linear layer whose columns are divided over the ranks. Each rank multiplies with its
    columns, and the products are summed."""

    def __init__(self, layer: nn.Linear, mesh: DeviceMesh) -> None:
        super().__init__()
        self.weight, self.bias = part(layer.weight, mesh, 1), layer.bias
        self.group = mesh.get_group()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = functional.linear(x, self.weight)
        dist.all_reduce(product, group=self.group)
        return product.add_(self.bias)


def part(weight: torch.Tensor, mesh: DeviceMesh, dimension: int) -> nn.Parameter:
    """Returns this rank's part of the weight."""
    local = distribute_tensor(weight.detach(), mesh, [Shard(dimension)]).to_local()
    return nn.Parameter(local.contiguous(), requires_grad=False)


def shared(model: minilm.MiniLM, mesh: DeviceMesh) -> minilm.MiniLM:
    """Shards the model's layers over the ranks of the mesh."""
    for layer in model.layers:
        for split in (layer.attention.inputs, layer.wide):
            split.weight, split.bias = part(split.weight, mesh, 0), part(split.bias, mesh, 0)
        layer.attention.output = Sum(layer.attention.output, mesh)
        layer.narrow = Sum(layer.narrow, mesh)
    return model


def timed(models: dict, tokens: list, rounds: int) -> dict:
    """Returns the median microseconds of a sentence for each model. In every round the models run
    one after the other."""
    times = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            for sentence in tokens:
                dist.barrier()
                begin = time.perf_counter()
                model(sentence)
                times[name].append(1e6 * (time.perf_counter() - begin))
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="of each sentence, for the times")
    arguments = parser.parse_args()
    rank, size = digits.join("hccl")
    alone, tokenizer = minilm.load()
    tokens = [torch.tensor([tokenizer.encode(sentence).ids]) for sentence in SENTENCES]
    models = {
        "one rank": alone,
        "hccl": shared(minilm.load()[0], init_device_mesh("cpu", (size,))),
        "gloo": shared(
            minilm.load()[0], DeviceMesh.from_group(dist.new_group(backend="gloo"), "cpu")
        ),
    }
    expected = torch.cat([alone(sentence) for sentence in tokens])
    off = {
        name: max((model(t) - e).abs().max().item() for t, e in zip(tokens, expected))
        for name, model in models.items()
    }
    timed(models, tokens, 3)
    times = timed(models, tokens, arguments.rounds)
    if rank == 0:
        print(
            f"similar sentences {expected[0] @ expected[1]:.3f}, others {expected[0] @ expected[2]:.3f}"
        )
        words = statistics.mean(sentence.numel() for sentence in tokens)
        for name, microseconds in times.items():
            print(
                f"{name:9}{microseconds / 1000:7.2f} ms a sentence{1e6 * words / microseconds:8.0f}"
                f" tokens/s, off by {off[name]:.1e}"
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
