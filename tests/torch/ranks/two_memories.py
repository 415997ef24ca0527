"""Copies between the CPU and an NPU, and torch.npu.synchronize(), in a script for NPUs. Prints what went wrong."""

import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

rank = int(os.environ["RANK"])
torch.npu.set_device(torch.device("npu", rank))
dist.init_process_group("hccl")


def as_tensor(x: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(x)


def expect(name, got, wanted):
    if got != wanted:
        print(f"{name}: {got}, not {wanted}", flush=True)


# A tensor that was copied from an NPU does not change with the NPU's tensor.
model = torch.nn.Linear(2, 2).npu()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.fill_(1)
best = {name: value.cpu() for name, value in model.state_dict().items()}
kept = [parameter.cpu().detach() for parameter in model.parameters()]
words = [value.to("cpu") for value in model.state_dict().values()]
with torch.no_grad():
    for parameter in model.parameters():
        parameter.fill_(2)
for name, values in ("state_dict", best.values()), ("parameters", kept), ("to", words):
    expect(name, [value.sum().item() for value in values], [4, 2])

# A tensor that is moved to an NPU becomes another tensor.
device = torch.device("npu", rank)
for name, move in {
    "npu()": lambda x: x.npu(),
    "npu(non_blocking)": lambda x: x.npu(rank, non_blocking=True),
    "to(name)": lambda x: x.to("npu"),
    "to(device)": lambda x: x.to(device),
    "to(device=)": lambda x: x.to(device=f"npu:{rank}", non_blocking=True),
    "to(number)": lambda x: x.to(rank),
    "as_tensor": lambda x: torch.as_tensor(x, device=device),
    "as_tensor(numpy)": lambda x: torch.as_tensor(x.numpy(), device="npu"),
}.items():
    host = torch.ones(4)
    there = move(host)
    dist.all_reduce(there)
    expect(name, (host.tolist(), there.tolist()), ([1.0] * 4, [2.0] * 4))

# A parameter on an NPU stays the same tensor, and so do the parameters and buffers of a module.
parameter = torch.ones(2, device="npu", requires_grad=True)
parameter.to(device).sum().backward()
expect("gradient", parameter.grad.tolist(), [1.0, 1.0])
norm = torch.nn.BatchNorm1d(2).npu()
before = [id(each) for each in (*norm.parameters(), *norm.buffers())]
norm.to(device).npu().to("npu")
expect("module", [id(each) for each in (*norm.parameters(), *norm.buffers())], before)
expect("half", norm.half().running_mean.dtype, torch.float16)

# The tensors that a module had on the CPU do not change after the module has been moved back.
for name, leave in ("cpu()", lambda: model.cpu()), ("to(cpu)", lambda: model.to("cpu")):
    state = leave().state_dict()
    model.npu()
    with torch.no_grad():
        model.weight.fill_(3)
    expect(name, state["weight"].sum().item(), 8)
    with torch.no_grad():
        model.weight.fill_(2)

# A tensor that is already on an NPU stays the same tensor.
there = torch.ones(2, device="npu")
there.npu().mul_(2)
there.to(device).add_(1)
there.view(2).to("npu").add_(1)
expect("in place", there.tolist(), [4.0, 4.0])
for buffer in norm.float().npu().buffers():
    buffer.npu().fill_(7)
expect("buffers", norm.running_mean.tolist(), [7.0, 7.0])
parameter.data.npu().fill_(5)
expect("data", parameter.tolist(), [5.0, 5.0])
packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
for move in (packed.npu, lambda: packed.to("npu:0"), lambda: packed.to(0)):
    expect("packed", move().data.tolist(), [1.0, 1.0])
expect("as_tensor(data=)", torch.as_tensor(data=[1, 2]).tolist() + torch.asarray(obj=[3]).tolist(), [1, 2, 3])
expect("script", torch.jit.script(as_tensor)(torch.ones(1)).tolist(), [1.0])

# synchronize() waits for all operations, also those for which the program does not wait.
for synchronize in (torch.npu.synchronize, torch.accelerator.synchronize):
    for _ in range(20):
        large = torch.ones(1 << 20, device="npu")
        work = dist.all_reduce(large, async_op=True)
        synchronize()
        expect("all_reduce", (large[0].item(), large[-1].item()), (2.0, 2.0))
    got = torch.zeros(1 << 16, device="npu")
    peer = 1 - rank
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, large[: 1 << 16], peer), dist.P2POp(dist.irecv, got, peer)]
    )
    synchronize()
    expect("irecv", got[-1].item(), 2.0)
late = []
work.get_future().then(lambda _: late.append(torch.npu.synchronize()))  # in a callback it does not wait
future = dist.all_reduce(large, async_op=True).get_future().then(lambda _: late.append(torch.npu.synchronize()))
future.wait()
expect("callbacks", late, [None, None])

# Devices and their numbers.
expect("current_device", torch.npu.current_device(), rank)
with torch.npu.device(5):
    expect("device(5)", torch.npu.current_device(), 5)
expect("current_device again", torch.npu.current_device(), rank)
accelerator = torch.accelerator.current_accelerator()
expect("accelerator", (torch.accelerator.is_available(), accelerator), (True, torch.device("npu")))
expect("its backend", dist.get_default_backend_for_device(accelerator), "hccl")
expect("type", parameter.type() == "torch.npu.FloatTensor" == parameter.type(), True)
expect("type of the CPU", parameter.type() == "torch.FloatTensor", True)
expect("another type", parameter.type() != "torch.npu.HalfTensor", True)
expect("type(type)", torch.ones(1).type(parameter.type()).dtype, torch.float32)
expect("pinned", torch.empty(3, pin_memory=True).shape, (3,))
dist.destroy_process_group()
print(f"rank {rank} is done", flush=True)
