"""Makes the device "npu" mean the CPU, in strings and in calls."""

import functools
from typing import Any

import torch
import torch.distributed.device_mesh
import torch.utils._device

from hccl.torch.npu import _accelerator, _copies, _fsdp, _functions, _parallel, _profiler


_names = {"npu"}  # devices that are the CPU


def also_cuda() -> None:
    _names.add("cuda")


def _to_cpu(device: Any) -> Any:
    if isinstance(device, str) and device.split(":")[0] in _names:
        return "cpu"
    return device


def _is_npu(device: Any) -> bool:
    """Returns whether the name of a device is that of an NPU."""
    return device != "cpu" and _to_cpu(device) == "cpu"


def _mapped(location: Any) -> Any:
    """Converts a device, a device's number, or torch.load's map_location."""
    if isinstance(location, int):
        return "cpu"
    if isinstance(location, dict):
        return {key: _mapped(value) for key, value in location.items()}
    return _to_cpu(location)


def _translated(call: Any) -> Any:
    """Wraps a function whose arguments may name a device."""

    @functools.wraps(call)
    def with_cpu(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("pin_memory"):  # the CPU needs no pinned pages, and torch has none without CUDA
            kwargs["pin_memory"] = False
        named = kwargs.get("device")
        args = tuple(_to_cpu(argument) for argument in args)
        for name in ("device", "device_type", "map_location"):
            if name in kwargs:
                kwargs[name] = _mapped(kwargs[name])
        made = call(*args, **kwargs)
        is_named = named is not None and not (isinstance(named, str) and named == "cpu")
        may_share = call.__name__ in _copies.SHARING
        return _copies.note(made, True) if is_named and not may_share else made

    with_cpu.__hccl__ = True  # type: ignore[attr-defined]
    return _functions.scriptable(with_cpu, call)




def _type(call: Any) -> Any:
    """Makes Tensor.type("torch.npu.FloatTensor") and the like mean torch.FloatTensor."""

    def of_cpu(name: Any) -> Any:
        return name.reals[0] if isinstance(name, _OfScripts) else _cpu_type(name)

    @functools.wraps(call)
    def type_of_cpu(*args: Any, **kwargs: Any) -> Any:
        made = call(*map(of_cpu, args), **{key: of_cpu(each) for key, each in kwargs.items()})
        return _TypeName(made) if isinstance(made, str) else made

    return type_of_cpu


def _cpu_type(name: Any) -> Any:
    """Converts "torch.npu.FloatTensor" into "torch.FloatTensor"."""
    words = name.split(".") if isinstance(name, str) else []
    of_npu = len(words) == 3 and words[0] == "torch" and words[1] in _names
    return f"torch.{words[2]}" if of_npu else name


class _TypeName(str):
    """The result of Tensor.type(): "torch.FloatTensor". It also equals "torch.npu.FloatTensor",
    because a script may regard the tensor as one of the CPU or of an NPU."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(_cpu_type(str(self))) == str(_cpu_type(str(other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _loaded(storage: Any, location: str) -> Any:
    """Returns a storage of a checkpoint if an NPU wrote it, otherwise None."""
    return storage if _to_cpu(location) == "cpu" else None


def _takers() -> dict:
    """Returns the names of functions that take a device, by owner. Finds functions that make a
    tensor by their schemas."""
    made = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if any(argument.name == "device" for argument in schema.arguments)
        and [str(each.type) for each in schema.returns] == ["Tensor"]
    }
    public = {name for name in made if not name.startswith("_")} - {"to", "pin_memory"}
    autocast = {f"{verb}_autocast_dtype" for verb in ("get", "set")}
    autocast |= {f"{verb}_autocast_enabled" for verb in ("is", "set")}
    return {
        torch: public | autocast | {"asarray", "load", "set_default_device"},
        torch.Tensor: public | {"new", "new_tensor", "is_pinned"},
        torch.fft: {name.removeprefix("fft_") for name in public},
        torch.nested: {"nested_tensor", "as_nested_tensor"},
        torch.amp: {"is_autocast_available"},
        torch.autocast: {"__init__"},
        torch.amp.GradScaler: {"__init__"},
        torch.UntypedStorage: {"__new__"},
        torch.distributed.device_mesh.DeviceMesh: {"__init__"},
    }


class _OfScripts(type):
    """The metaclass of a class that replaces a class of torch in scripts. isinstance() still works
    with the replacement."""

    reals: tuple

    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, cls.reals)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.reals[0], name)

    # torch.compile and custom operators look for the real class.
    def __eq__(cls, other: object) -> bool:
        return any(other is each for each in (cls, *cls.reals))

    def __hash__(cls) -> int:
        return hash(cls.reals[0])


def _class_of_scripts(make: Any, *reals: Any) -> Any:
    """Returns a class that replaces `reals`. make(reals[0], ...) makes its instances."""
    real = reals[0]
    names = {"__new__": lambda cls, *args, **kwargs: make(real, *args, **kwargs), "reals": reals}
    # Pickled devices refer to this name.
    return _OfScripts(real.__name__, (), {**names, "__module__": "torch", "__hccl__": True})


def _device(real: Any, *args: Any, **kwargs: Any) -> Any:
    """Makes torch.device("npu:0") the CPU, and torch.Generator("npu") the CPU's generator."""
    kind = args[0] if args else kwargs.get("type", kwargs.get("device"))
    translated = _mapped(kind)
    return real(translated) if translated is not kind else real(*args, **kwargs)


def _typed(real: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Makes torch.npu.FloatTensor(2, device="npu:0") work, although torch's constructors do not
    accept the device."""
    return real(*args, **kwargs)


def _of_the_cpu(ours: Any) -> Any:
    """Makes torch.Stream("npu") and torch.Event(device="npu") the classes of torch.npu. Streams and
    events of the CPU, the default device, also get these classes, because torch's events of the CPU
    cannot be recorded."""

    def make(real: Any, device: Any = None, **how: Any) -> Any:
        if device is None or torch.device(_mapped(device)).type == "cpu":
            return ours(**how)
        return real(device, **how)

    return make


def _forked(call: Any) -> Any:
    """Makes fork_rng(device_type="npu") fork only the CPU's random numbers, as every call of
    fork_rng does. torch.cpu cannot do it, because it has no functions for random states. If it had,
    DTensor would use them as an accelerator's."""

    @functools.wraps(call)
    def fork_rng(devices: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _to_cpu(str(kwargs.get("device_type"))) == "cpu":
            devices = ()
            del kwargs["device_type"]
        return call(devices, *args, **kwargs)

    return fork_rng


def _module_of(call: Any) -> Any:
    """Makes torch.get_device_module("npu") torch.npu. For scripts the CPU and the default device are
    an NPU, too, as for torch.accelerator."""

    @functools.wraps(call)
    def get_device_module(device: Any = None) -> Any:
        is_cpu = device is None or (isinstance(device, torch.device) and device.type == "cpu")
        ours = _is_npu(device) or (is_cpu and not _accelerator.called_by_torch())
        return torch.npu if ours else call(device)

    return get_device_module


def install(npu: Any) -> None:
    """Patches torch: .npu(), device="npu", torch.npu and torch.device("npu")."""
    if getattr(torch, "npu", None) is npu or getattr(torch.device, "__hccl__", False):
        torch.npu = npu
        return
    torch.npu = npu

    def to_npu(self: Any, device: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        return self.cpu()

    for kind in (torch.nn.utils.rnn.PackedSequence, torch.UntypedStorage, torch.TypedStorage):
        kind.npu = to_npu
    torch.Tensor.record_stream = lambda self, stream: None
    torch.random.fork_rng = _forked(torch.random.fork_rng)
    torch.get_device_module = _module_of(torch.get_device_module)
    torch.Tensor.is_npu = property(lambda self: self.device.type == "cpu")
    for owner in (torch.Tensor, torch.nn.Module):
        owner.type = _type(owner.type)
    torch.utils._device._device_constructors()  # "with torch.device():" needs the real constructors
    for owner, names in _takers().items():
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, _translated(getattr(owner, name)))
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        if hasattr(torch, name):  # torch.compile calls it while tracing, like torch's own
            getattr(torch, name)._dynamo_marked_constant = True
    torch.Tensor.pin_memory = lambda self, device=None: self  # the CPU needs no pinned pages
    _copies.install(_mapped)
    _accelerator.install(npu)
    _fsdp.install()
    torch.serialization.register_package(5, lambda storage: None, _loaded)
    torch.set_default_tensor_type = _type(torch.set_default_tensor_type)
    for real in (torch.device, torch.Generator):
        setattr(torch, real.__name__, _class_of_scripts(_device, real))
    for real in (torch.Stream, torch.Event):
        ours = getattr(npu, real.__name__)
        setattr(torch, real.__name__, _class_of_scripts(_of_the_cpu(ours), real, ours))
    for name in [name for name in vars(npu) if name.endswith("Tensor")]:
        setattr(npu, name, _class_of_scripts(_typed, getattr(npu, name)))
    _functions.install()
    _parallel.install(_is_npu)
    _profiler.install()
