"""The actor that the tests use: one rank of a group of ray.util.collective."""

import copy
import os
import signal

import numpy as np
import ray
from ray.util import collective


@ray.remote(num_cpus=0)
class Member:
    def join(self, size, rank, name):
        collective.init_collective_group(size, rank, "HCCL", name)

    def place(self, name):
        return collective.get_rank(name), collective.get_collective_group_size(name)

    def run(self, operation, *arguments, name, **options):
        """Calls an operation of ray.util.collective on copies, because Ray's arrays are read-only. Returns the first
        argument after the operation."""
        arguments = copy.deepcopy(arguments)
        getattr(collective, operation)(*arguments, group_name=name, **options)
        return arguments[0]

    def tensors(self, values, dtype, size, name):
        """Returns the results of all kinds of operations on PyTorch tensors, as lists."""
        import torch

        def tensor():
            return torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=True)

        summed, root = tensor(), tensor()
        gathered = [torch.zeros_like(summed) for _ in range(size)]
        collective.allreduce(summed, name)
        collective.broadcast(root, 1, name)
        collective.allgather(gathered, tensor(), name)
        part = torch.zeros(len(values), dtype=summed.dtype)
        collective.reducescatter(part, [tensor() * (i + 1) for i in range(size)], name)
        mixed = [np.zeros(len(values), np.float32) for _ in range(size)]  # numpy beside PyTorch
        collective.allgather(mixed, torch.tensor(values), name)
        results = [summed, root, *gathered, part, *mixed]
        return [each.tolist() for each in results]

    def wait(self, name):
        collective.barrier(name)

    def every_second(self, name):
        collective.allreduce(np.ones(6)[::2], name)

    def read_only(self, array, name):
        collective.allreduce(array, name)

    def leave(self, name):
        collective.destroy_collective_group(name)
        return collective.get_rank(name)

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)
