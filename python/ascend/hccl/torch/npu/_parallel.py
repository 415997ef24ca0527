"""DistributedDataParallel for NPU devices, apex.parallel, and batch norms over all ranks."""

import functools
import json
import os
from typing import Any, Optional

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch.distributed import distributed_c10d

from hccl.torch import _register


def install(is_npu: Any) -> None:
    """Makes DistributedDataParallel ignore device_ids and output_device, because the NPU is the CPU
    here, and torch does not accept these arguments for a module on the CPU. Also patches the
    functions that make groups. is_npu(name) returns whether a device is an NPU."""
    parallel = torch.nn.parallel.DistributedDataParallel
    join = parallel.__init__

    @functools.wraps(join)
    def on_cpu(
        self: Any,
        module: torch.nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            device_ids = output_device = None
        join(self, module, device_ids, output_device, *args, **kwargs)

    parallel.__init__ = on_cpu
    torch.nn.DataParallel.__init__ = _one_device
    dist.is_hccl_available = lambda: True
    dist.init_process_group = _joining(dist.init_process_group)
    _register.register()  # in case that `import torch` did not, because the user disabled that
    name = _register.name_of_backend()
    dist.Backend.default_device_backend_map["cpu"] = name
    helper = distributed_c10d._new_process_group_helper  # all functions that make groups call it
    distributed_c10d._new_process_group_helper = _with_one_backend(helper, name, is_npu)
    torch.nn.SyncBatchNorm = SyncBatchNorm


def _joining(join: Any) -> Any:
    """Wraps init_process_group: ignores device_id, because the NPU is the CPU. If MASTER_ADDR, RANK
    and WORLD_SIZE are not set, RANK_TABLE_FILE, RANK_ID and RANK_SIZE replace them."""

    @functools.wraps(join)
    def joining(*args: Any, device_id: Any = None, **kwargs: Any) -> None:
        for name, value in (("RANK", "RANK_ID"), ("WORLD_SIZE", "RANK_SIZE")):
            if value in os.environ:
                os.environ.setdefault(name, os.environ[value])
        if "MASTER_ADDR" not in os.environ and os.environ.get("RANK_TABLE_FILE"):
            with open(os.environ["RANK_TABLE_FILE"], encoding="utf-8") as file:
                if server := _server_of_root(json.load(file), None):
                    os.environ["MASTER_ADDR"] = server
                    os.environ.setdefault("MASTER_PORT", "29500")
        join(*args, **kwargs)

    return joining


def _with_one_backend(helper: Any, name: str, is_npu: Any) -> Any:
    """Wraps torch's function that makes a group. Tensors of NPUs and of the CPU get the same
    backend, because torch cannot distinguish them: of "npu:hccl,cpu:gloo" that of NPUs, and `name`
    if the program names no backend."""

    @functools.wraps(helper)
    def make(size: int, rank: int, ranks: list, backend: Any, *rest: Any, **named: Any) -> Any:
        pairs = [each.partition(":") for each in str(backend).split(",")]
        of_npus = [kind for device, _, kind in pairs if is_npu(device)]
        if of_npus or backend == dist.Backend.UNDEFINED:
            backend = dist.Backend(of_npus[0] if of_npus else name)
        return helper(size, rank, ranks, backend, *rest, **named)

    return make


def _server_of_root(item: Any, server: Optional[str]) -> Optional[str]:
    """Returns the server_id of the server that has rank_id 0 in a rank table."""
    if isinstance(item, dict):
        server = item.get("server_id", server)
        if str(item.get("rank_id")) == "0":
            return server
        item = list(item.values())
    found = (_server_of_root(each, server) for each in item) if isinstance(item, list) else ()
    return next((each for each in found if each), None)


def _one_device(
    self: Any, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
) -> None:
    """Replaces DataParallel.__init__: there is only one device, so forward() calls the module."""
    torch.nn.Module.__init__(self)
    self.module, self.device_ids, self.dim = module, [], dim


def average(grads: list) -> None:
    """Averages gradients over all ranks."""
    for dtype in dict.fromkeys(each.dtype for each in grads):
        some = [each for each in grads if each.dtype == dtype]
        flat = torch._utils._flatten_dense_tensors(some) / dist.get_world_size()
        dist.all_reduce(flat)
        torch._foreach_copy_(some, torch._utils._unflatten_dense_tensors(flat, some))


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """apex.parallel's DistributedDataParallel: torch's class, which chooses sizes and types of
    messages itself."""

    def __init__(
        self,
        module: torch.nn.Module,
        message_size: int = 10_000_000,
        delay_allreduce: bool = False,
        *how: Any,
        gradient_average: bool = True,
        **more: Any,
    ) -> None:
        if not gradient_average:
            raise RuntimeError("hccl: DistributedDataParallel always averages gradients")
        # With delay_allreduce, apex reduces all gradients at the end, so parameters may be unused.
        super().__init__(module, find_unused_parameters=delay_allreduce)


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """A SyncBatchNorm that works on the CPU, with any backend. torch's own class accepts no tensors
    on the CPU, and DDP does not accept that class on the CPU."""

    _check_input_dim = torch.nn.SyncBatchNorm._check_input_dim
    convert_sync_batchnorm: Any = classmethod(
        torch.nn.SyncBatchNorm.convert_sync_batchnorm.__func__
    )

    def __init__(
        self,
        *args: Any,
        process_group: Any = None,
        channel_last: bool = False,
        fuse_relu: bool = False,
        **kwargs: Any,
    ) -> None:
        if channel_last or fuse_relu:
            raise RuntimeError("hccl: SyncBatchNorm has neither channel_last nor fuse_relu")
        super().__init__(*args[:5], **kwargs)
        self.process_group = args[5] if len(args) > 5 else process_group

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        synchronizes = self.training and dist.is_initialized()
        if not synchronizes or dist.get_world_size(self.process_group) <= 1:
            return super().forward(input)
        x = input if input.dtype == torch.float64 else input.float()
        dims = [dim for dim in range(x.dim()) if dim != 1]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        count = x.new_full((1,), x.numel() / x.size(1))
        group = self.process_group or dist.group.WORLD
        sums = differentiable.all_reduce(torch.cat([x.sum(dims), count]), group=group)
        total = sums[-1].detach()
        if total <= 1:  # true on all ranks or on none
            raise ValueError(f"Expected more than 1 value per channel, got {tuple(input.shape)}")
        mean = sums[:-1] / total
        centered = x - mean.view(shape)
        variance = differentiable.all_reduce((centered * centered).sum(dims), group=group) / total
        if self.track_running_stats:
            self._update(mean.detach(), variance.detach() * total / (total - 1))
        y = centered * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(input.dtype)

    def _update(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def convert_syncbn_model(
    module: torch.nn.Module, process_group: Any = None, channel_last: bool = False
) -> torch.nn.Module:
    """Replaces the module's batch norms, with the same parameters and statistics. Returns the
    module."""
    if channel_last:
        raise RuntimeError("hccl: SyncBatchNorm has no channel_last")
    return torch.nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)
