"""One of several jobs on a host: DDP gets its data from workers of DataLoader, with more threads than cores."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), index / 64), torch.tensor([float(index**2)])


def main():
    torch.set_num_threads(2)
    dist.init_process_group("hccl")
    rank, size, factor = dist.get_rank(), dist.get_world_size(), float(os.environ["JOB"])
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    seen = torch.zeros(1)
    for context in ("fork", "spawn"):
        loader = DataLoader(
            data := Squares(),
            batch_size=4,
            sampler=DistributedSampler(data, shuffle=False),
            num_workers=1,
            multiprocessing_context=context,
        )
        for inputs, targets in loader:
            model(inputs).sum().backward()
            step = targets.sum()
            dist.all_reduce(step)
            seen += step
    assert seen.item() == 2 * sum(index**2 for index in range(64)), seen
    own = torch.tensor([factor])
    dist.all_reduce(own)
    sys.stdout.write(f"rank {rank} of {size}: {own.item()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
