"""16-bit sums over hosts, as the library chooses, stay within the bound of hccl/README.md for ROUNDINGS roundings."""

import os

import hccl.torch  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("hccl")
rank, size, roundings = dist.get_rank(), dist.get_world_size(), int(os.environ["ROUNDINGS"])
for dtype, mantissa in ((torch.bfloat16, 7), (torch.float16, 10)):
    for count in (1, 840, 40_000, 1_500_000):
        torch.manual_seed(count)
        inputs = torch.randn(size, count).to(dtype)
        inputs[-1, ::3] = -inputs[:-1, ::3].double().sum(0).to(dtype)  # cancels most of the sum
        exact, total = inputs.double().sum(0), inputs.double().abs().sum(0)
        got = inputs[rank].clone()
        dist.all_reduce(got)
        exponent = torch.frexp(torch.maximum(exact.abs(), got.double().abs()))[1].double()
        half_ulp = 2 ** (exponent.clamp(min=-14 if dtype == torch.float16 else -125) - mantissa - 2)
        before = (1 + 2 ** -(mantissa + 1)) ** (roundings - 1) - 1
        bound = half_ulp + (before + (size - 1).bit_length() * 2**-24) * total
        beyond = ((got.double() - exact).abs() > bound).sum().item()
        assert beyond == 0, f"{dtype}, {count} elements: {beyond} beyond the bound"
dist.destroy_process_group()
print(f"rank {rank} of {size} is within the bound", flush=True)
