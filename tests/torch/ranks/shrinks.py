"""A rank of a job that loses ranks: it dies in its turn, or goes on without the dead ranks. The arguments are the ranks
that die, each in another step. Rank 0's process has the store."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("hccl")
me = dist.get_rank()
living = list(range(dist.get_world_size()))
group = dist.new_group(living[1:])  # ends with the default group, its parent
weights = torch.arange(100_000, dtype=torch.int64)

seconds = 0.0
for victim in map(int, sys.argv[1:]):
    dist.barrier()
    if me == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.all_reduce(weights.clone())
    except dist.DistBackendError as error:
        text = str(error)
    assert "died" in text, text
    begin = time.monotonic()

    dist.shrink_group([living.index(victim)])
    seconds = max(seconds, time.monotonic() - begin)
    living.remove(victim)
    assert (dist.get_rank(), dist.get_world_size()) == (living.index(me), len(living))
    assert dist.get_process_group_ranks(None) == list(range(len(living)))
    numbers = [torch.zeros(1, dtype=torch.int64) for _ in living]
    dist.all_gather(numbers, torch.tensor([me]))
    assert [int(number) for number in numbers] == living
    total = weights * (me + 1)
    dist.all_reduce(total)
    assert torch.equal(total, weights * sum(rank + 1 for rank in living))
    for root, rank in enumerate(living):
        number = torch.tensor([me])
        dist.broadcast(number, root)
        assert number == rank
    objects = [None] * len(living)
    dist.all_gather_object(objects, {"rank": me})
    assert objects == [{"rank": rank} for rank in living]

    last = len(living) - 1
    for members in [[last], [0, last], list(range(len(living)))]:
        part = dist.new_group(members)
        if dist.get_rank() in members:
            number = torch.tensor([me])
            dist.all_reduce(number, group=part)
            assert number == sum({living[rank] for rank in members})

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1, bias=False))
model(torch.full((1, 10), float(me))).sum().backward()
assert torch.equal(model.module.weight.grad, torch.full((1, 10), sum(living) / len(living)))

dist.destroy_process_group()
print("gone on as", me, flush=True)
print(seconds, flush=True)
