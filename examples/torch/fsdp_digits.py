#!/usr/bin/env python3
"""Trains a convolutional network on handwritten digits with FSDP2: each rank has a part of the
weights.

    torchrun --nproc-per-node 2 examples/torch/fsdp_digits.py
    mpirun -np 2 python3 examples/torch/fsdp_digits.py

Each layer's weights are gathered when they are needed, and its gradients are scattered. Both use
memory that the ranks share.
"""

import digits
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh


def main() -> None:
    arguments = digits.options(__doc__).parse_args()
    rank, size = digits.join(arguments.backend)
    mesh = init_device_mesh("cpu", (size,))
    model = digits.Network()
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if arguments.backend == "hccl":
        model.set_allocate_memory_from_process_group_for_comm(True)
    digits.train(model, arguments, rank, size)
    mine = sum(parameter.to_local().numel() for parameter in model.parameters())
    print(f"rank {rank} has {mine} of {sum(p.numel() for p in model.parameters())} weights")
    found = digits.accuracy(model)
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        print(f"accuracy {found:.4f}")
        if arguments.save:
            torch.save(weights, arguments.save)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
