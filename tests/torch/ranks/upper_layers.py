"""The layers of PyTorch above the backend, under torchrun: each compared with the result of one rank."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("hccl")
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "hccl"


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


batch = torch.randn(4 * size, 8, generator=torch.Generator().manual_seed(1))
mine = batch[4 * rank : 4 * rank + 4]
alone = network()
alone(batch).pow(2).mean().backward()
expected = [parameter.grad for parameter in alone.parameters()]


def close(found):
    for gradient, other in zip(found, expected):
        torch.testing.assert_close(gradient, other)


ddp = DistributedDataParallel(network(), gradient_as_bucket_view=True)
with ddp.no_sync():
    ddp(mine[:2]).pow(2).mean().div(2).backward()
ddp(mine[2:]).pow(2).mean().div(2).backward()
close([parameter.grad for parameter in ddp.parameters()])

with Join([ddp]):
    for _ in range(1 + rank):  # uneven inputs
        ddp(mine).sum().backward()

sharded = network()
for layer in [sharded[0], sharded[2], sharded]:
    fully_shard(layer)
sharded.set_allocate_memory_from_process_group_for_comm(True)
sharded(mine).pow(2).mean().backward()
close([parameter.grad.full_tensor() for parameter in sharded.parameters()])

sharded.zero_grad()
sharded[2].set_gradient_divide_factor(2.0 * size)  # uses PREMUL_SUM
sharded(mine).pow(2).mean().backward()
halves = [parameter.grad.full_tensor() for parameter in sharded[2].parameters()]
close([*expected[:2], *(2 * half for half in halves)])

os.environ["FOLDER"] = os.environ.get("FOLDER", tempfile.gettempdir())
folder = [tempfile.mkdtemp(dir=os.environ["FOLDER"])] if rank == 0 else [None]
dist.broadcast_object_list(folder)
checkpoint.save({"model": sharded.state_dict()}, checkpoint_id=folder[0])
checkpoint.async_save({"n": torch.ones(2)}, checkpoint_id=folder[0] + "/later").result()
before = [parameter.full_tensor().clone() for parameter in sharded.parameters()]
for parameter in sharded.parameters():
    torch.nn.init.zeros_(parameter)
state = {"model": sharded.state_dict()}
checkpoint.load(state, checkpoint_id=folder[0])
for parameter, value in zip(sharded.parameters(), before):
    torch.testing.assert_close(parameter.full_tensor(), value)

mesh = init_device_mesh("cpu", (size,))
matrix = torch.arange(4.0 * size * size).reshape(4 * size, size)
by_rows = distribute_tensor(matrix, mesh, [Shard(0)])
by_columns = by_rows.redistribute(mesh, [Shard(1)])
assert torch.equal(by_columns.redistribute(mesh, [Replicate()]).to_local(), matrix)
product = by_rows.redistribute(mesh, [Shard(1)]) @ distribute_tensor(matrix.t(), mesh, [Shard(0)])
torch.testing.assert_close(product.full_tensor(), matrix @ matrix.t())


def step(tensor):
    total = functional.all_reduce(tensor * 2, "avg", dist.group.WORLD)
    return functional.all_gather_tensor(total, 0, dist.group.WORLD) + 1


compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
assert compiled(torch.ones(3) * (rank + 1)).tolist() == [size + 1.0 + 1] * (3 * size)

compressed = DistributedDataParallel(network())
compressed.register_comm_hook(None, fp16_compress_hook)
compressed(mine).pow(2).mean().backward()
for parameter, other in zip(compressed.parameters(), expected):
    torch.testing.assert_close(parameter.grad, other, rtol=2e-3, atol=1e-4)

embedding = torch.nn.Embedding(10, 4, sparse=True)
torch.nn.init.ones_(embedding.weight)
sparse = DistributedDataParallel(embedding)
sparse(torch.tensor([rank, 9])).sum().backward()
gradient = embedding.weight.grad.to_dense()
assert gradient[9].tolist() == [1.0] * 4 and gradient[0].tolist() == [1 / size] * 4

beside = dist.new_group(backend="gloo")
tensor = torch.ones(2)
dist.all_reduce(tensor, group=beside)
dist.all_reduce(tensor)
assert tensor.tolist() == [size * size] * 2

names = [None] * size
dist.all_gather_object(names, {"rank": rank})
assert names == [{"rank": each} for each in range(size)]
dist.destroy_process_group()
sys.stdout.write("all right\n")  # one write, so that ranks' lines do not mix
