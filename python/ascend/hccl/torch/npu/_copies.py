"""Copies between the CPU and an NPU. The NPU is the CPU here, but a script relies on two memories:
it may change the tensor on one side, and read the old numbers on the other side.

A tensor does not say on which side it is. So a call that names a device copies, with three
exceptions: a call that names an NPU returns a parameter as it is, because its gradient must arrive
there; modules that go to an NPU keep their parameters and buffers, because they are usually there
already, and DistributedDataParallel and optimizers may hold them; storages are not copied.
"""

import functools
import threading
from typing import Any

import torch

_moving = threading.local()  # .module: a module goes to an NPU on this thread


def install(mapped: Any) -> None:
    """Patches torch's functions. mapped(device) converts the name or number of an NPU to "cpu"."""
    tensor, module = torch.Tensor, torch.nn.Module
    tensor.cpu = _leaving(tensor.cpu)
    tensor.npu = _to_npu
    tensor.to = _to(tensor.to, mapped)
    module.npu = _module_to_npu
    module.to = _module_to(module.to, mapped)
    for name in ("as_tensor", "asarray"):
        setattr(torch, name, _made(getattr(torch, name)))


def _copied(made: Any, source: Any) -> Any:
    """Returns a copy of `made` if it is `source`."""
    return made.clone() if made is source and made.device.type == "cpu" else made


def _entered(source: torch.Tensor, made: Any) -> Any:
    """Returns the tensor on the NPU."""
    # FullyShardedDataParallel frees the memory that a flat parameter had.
    is_flat = getattr(source, "_is_flat_param", False)
    is_parameter = source.is_leaf and source.requires_grad and not is_flat
    if is_parameter or getattr(_moving, "module", False):
        return made
    return _copied(made, source)


def _leaving(call: Any) -> Any:
    @functools.wraps(call)
    def cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        made = call(self, *args, **kwargs)
        return made if getattr(_moving, "module", False) else _copied(made, self)

    return cpu


def _to_npu(
    self: torch.Tensor, device: Any = None, non_blocking: bool = False, **_: Any
) -> torch.Tensor:
    return _entered(self, self)


def _to(call: Any, mapped: Any) -> Any:
    """Wraps Tensor.to, whose first argument may be a device, its number, a type or a tensor."""

    @functools.wraps(call)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        named = args[0] if args else kwargs.get("device")
        args = (*map(mapped, args[:1]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = mapped(kwargs["device"])
        made = call(self, *args, **kwargs)
        if made is not self or not isinstance(named, (str, int, torch.device)):
            return made
        return _copied(made, self) if named == "cpu" and isinstance(named, str) else _entered(self, made)

    return to


def _module_to_npu(
    self: torch.nn.Module, device: Any = None, non_blocking: bool = False, **_: Any
) -> Any:
    return self.to("npu")


def _module_to(call: Any, mapped: Any) -> Any:
    @functools.wraps(call)
    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        named = args[0] if args else kwargs.get("device")
        args = (*map(mapped, args[:1]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = mapped(kwargs["device"])
        outer = getattr(_moving, "module", False)
        _moving.module = not (isinstance(named, str) and named == "cpu")
        try:
            return call(self, *args, **kwargs)
        finally:
            _moving.module = outer

    return to


def _made(call: Any) -> Any:
    """Wraps torch.as_tensor or torch.asarray: with a device, the tensor has memory of its own."""

    @functools.wraps(call)
    def make(source: Any, *args: Any, **kwargs: Any) -> Any:
        made = call(source, *args, **kwargs)
        if kwargs.get("device") is None or kwargs.get("copy") is not None:
            return made
        if isinstance(source, torch.Tensor):
            return _entered(source, made)
        return made.clone()

    return make
