"""FullyShardedDataParallel of a model on NPUs. Its state dict after training equals that of DistributedDataParallel."""

import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, ShardingStrategy, StateDictType

rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
SAVED = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)


def trained(wrap):
    torch.manual_seed(0)
    model = wrap(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model(torch.full((4, 8), float(rank + step + 1)).npu()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


plain = trained(lambda model: torch.nn.parallel.DistributedDataParallel(model.npu(), device_ids=[rank]))
wanted = plain.module.state_dict()
for place, options in [
    ("npu", {}),
    ("npu", {"use_orig_params": True, "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}),
    ("npu", {"device_id": 0, "use_orig_params": True}),
    ("npu", {"device_id": torch.device("npu", rank), "sync_module_states": True}),
    ("cpu", {"device_id": torch.npu.current_device(), "sync_module_states": True}),
]:
    model = trained(lambda model: FullyShardedDataParallel(model.to(place), **options))
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, SAVED):
        state = model.state_dict()
    assert len(state) == (len(wanted) if rank == 0 else 0), (options, state.keys())
    for name, value in state.items():
        torch.testing.assert_close(value, wanted[name])
dist.destroy_process_group()
print(f"rank {rank} is done", flush=True)
