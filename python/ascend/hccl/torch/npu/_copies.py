"""Copies between the CPU and an NPU. The NPU is the CPU here, but a script relies on two memories:
it may change the tensor on one side, and read the old numbers on the other side.

A tensor has no attribute for its side. So calls that name a device record the side in the tensor's
storage. A call that moves a tensor to its own side returns the tensor. If the side is not known (as
for an operation's result), the call copies, with two exceptions. A parameter that moves to an NPU
stays the same tensor, because its gradient must arrive there. The tensors of a module that moves to
an NPU also stay the same, because DistributedDataParallel and optimizers may refer to them.
Storages are not copied.
"""

import functools
import threading
from typing import Any, Optional

import torch

from hccl.torch.npu import _functions

SHARING = ("as_tensor", "asarray")  # functions of torch whose result may share the input's memory
_moving = threading.local()  # .module: while this thread moves a module: True to an NPU, else False


def install(mapped: Any) -> None:
    """Patches torch's functions. mapped(device) converts the name or number of an NPU to "cpu"."""
    tensor, module = torch.Tensor, torch.nn.Module
    tensor.cpu = _leaving(tensor.cpu)
    tensor.npu = _to_npu
    tensor.to = _to(tensor.to, mapped)
    module.npu = _module_to_npu
    module.to = _module_to(module.to, mapped)
    packed = torch.nn.utils.rnn.PackedSequence
    packed.to = _with_mapped(packed.to, mapped)
    for name in SHARING:
        setattr(torch, name, _made(getattr(torch, name)))


def note(tensor: Any, on_npu: bool) -> Any:
    """Records in the tensor's storage whether the tensor is on the CPU or on an NPU. Records
    nothing if _storage() finds no storage. Returns the tensor."""
    storage = _storage(tensor)
    if storage is not None:
        storage.on_npu = on_npu  # torch keeps the storage's Python object
    return tensor


def _side(tensor: Any) -> Optional[bool]:
    """Returns True if the tensor is on an NPU, False if it is on the CPU, and None if its side is
    not known."""
    return getattr(_storage(tensor), "on_npu", None)


def _storage(tensor: Any) -> Any:
    """Returns the storage of a plain tensor. Returns None for subclasses, for tensors of other
    layouts, and while torch traces."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not plain or torch.compiler.is_compiling() or tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except NotImplementedError:  # torch.func wraps the tensor
        return None


def _copied(made: Any, source: Any) -> Any:
    """Returns a copy of `made` if it is `source`."""
    return made.clone() if made is source and made.device.type == "cpu" else made


def _entered(source: Any, made: Any) -> Any:
    """Returns the tensor on the NPU. `made` is the result of torch's own call for `source`."""
    if made is not source:
        return note(made, True)
    if getattr(source, "_is_flat_param", False):  # FullyShardedDataParallel frees its memory
        return _copied(made, source)
    side = _side(source)
    is_parameter = source.is_leaf and source.requires_grad
    stays = side or (side is None and (is_parameter or _module() is True))
    return note(made if stays else _copied(made, source), True)


def _left(source: Any, made: Any) -> Any:
    """Returns the tensor on the CPU. `made` is the result of torch's own call for `source`."""
    return note(made if _side(source) is False else _copied(made, source), False)


def _module() -> Optional[bool]:
    return getattr(_moving, "module", None)


def _leaving(call: Any) -> Any:
    @functools.wraps(call)
    def cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return _left(self, call(self, *args, **kwargs))

    return cpu


def _to_npu(
    self: torch.Tensor, device: Any = None, non_blocking: bool = False, **_: Any
) -> torch.Tensor:
    return _entered(self, self)


def _with_mapped(call: Any, mapped: Any) -> Any:
    """Wraps a method whose first argument may be a device or its number."""

    @functools.wraps(call)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = mapped(kwargs["device"])
        return call(self, *map(mapped, args[:1]), *args[1:], **kwargs)

    return to


def _to(call: Any, mapped: Any) -> Any:
    """Wraps Tensor.to, whose first argument may be a device, its number, a type or a tensor."""
    moved = _with_mapped(call, mapped)

    @functools.wraps(call)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        named = args[0] if args else kwargs.get("device")
        made = moved(self, *args, **kwargs)
        if not isinstance(named, (str, int, torch.device)):
            return made
        leaves = _module() is False or (isinstance(named, str) and named == "cpu")
        return _left(self, made) if leaves else _entered(self, made)

    return to


def _module_to_npu(
    self: torch.nn.Module, device: Any = None, non_blocking: bool = False, **_: Any
) -> Any:
    return self.to("npu")


def _module_to(call: Any, mapped: Any) -> Any:
    moved = _with_mapped(call, mapped)

    @functools.wraps(call)
    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        named = args[0] if args else kwargs.get("device")
        outer = _module()
        _moving.module = not (isinstance(named, str) and named == "cpu")
        try:
            return moved(self, *args, **kwargs)
        finally:
            _moving.module = outer

    return to


def _made(call: Any) -> Any:
    """Wraps torch.as_tensor or torch.asarray. With a device, the result is copied like a tensor
    that moves."""

    @functools.wraps(call)
    def make(*args: Any, **kwargs: Any) -> Any:
        made = call(*args, **kwargs)
        named = kwargs.get("device")
        if named is None or kwargs.get("copy") is not None:
            return made
        source = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        leaves = isinstance(named, str) and named == "cpu"
        if not isinstance(source, torch.Tensor):
            return note(made if leaves else made.clone(), not leaves)
        shared = made.device == source.device and made.data_ptr() == source.data_ptr()
        made = source if shared else made
        return _left(source, made) if leaves else _entered(source, made)

    return _functions.scriptable(make, call)
