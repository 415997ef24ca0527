"""Makes the device "npu" mean the CPU, in strings and in calls."""

import functools
from typing import Any

import torch

from hccl.torch.npu import _parallel, _profiler


def _to_cpu(device: Any) -> Any:
    if isinstance(device, str) and device.split(":")[0] == "npu":
        return "cpu"
    return device


def _translated(call: Any) -> Any:
    """Wraps a function whose arguments may name a device. Only strings are translated."""

    @functools.wraps(call)
    def with_cpu(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_to_cpu(argument) for argument in args)
        for name in ("device", "device_type", "map_location"):
            if name in kwargs:
                kwargs[name] = _to_cpu(kwargs[name])
        return call(*args, **kwargs)

    with_cpu.__hccl__ = True  # type: ignore[attr-defined]
    return with_cpu


_FACTORIES = (
    *("arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "full", "full_like"),
    *("linspace", "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like"),
    *(
        "randn",
        "randn_like",
        "randperm",
        "tensor",
        "zeros",
        "zeros_like",
        "load",
        "set_default_device",
    ),
)


class _DeviceOfScripts(type(torch.device)):  # type: ignore[misc]
    real: Any

    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, cls.real)


def _device_class() -> Any:
    """Makes torch.device("npu:0") the CPU; isinstance(x, torch.device) works as before."""
    real = torch.device

    class device(metaclass=_DeviceOfScripts):
        __hccl__ = True

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            kind = args[0] if args else kwargs.get("type", kwargs.get("device"))
            translated = _to_cpu(kind)
            return real(translated) if translated != kind else real(*args, **kwargs)

    device.real = real
    device.__module__, device.__qualname__ = "torch", "device"  # devices in pickles name it
    return device


def install(npu: Any) -> None:
    """Patches torch: .npu(), device="npu", torch.npu and torch.device("npu")."""
    if getattr(torch, "npu", None) is npu or getattr(torch.device, "__hccl__", False):
        torch.npu = npu
        return
    torch.npu = npu

    def to_npu(self: Any, device: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        return self.cpu()

    torch.Tensor.npu = to_npu
    torch.nn.Module.npu = to_npu
    torch.Tensor.is_npu = property(lambda self: self.device.type == "cpu")
    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = _translated(owner.to)
    for name in _FACTORIES:
        setattr(torch, name, _translated(getattr(torch, name)))
    torch.autocast.__init__ = _translated(torch.autocast.__init__)
    torch.amp.GradScaler.__init__ = _translated(torch.amp.GradScaler.__init__)
    torch.device = _device_class()
    _parallel.install()
    _profiler.install()
