"""Records the operations of this backend's groups in PyTorch's flight recorder.

A plugin cannot write into torch's recorder itself, because the recorder is a template with a static
object that libtorch_cpu does not export. PyTorch 2.14 has a hook that writes a group's operations
into the recorder, but does not attach it to groups; this module does. PyTorch 2.15 and later attach
the hook to groups, but not to those that shrink_group() makes. PyTorch 2.13 has no such hook.
"""

from __future__ import annotations

import functools
import os
import weakref
from typing import Any, Callable

from hccl.torch import _module

SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")  # the first one that is set counts

# The hook of each group. A hook ends when its entry is removed.
_hooks: Any = weakref.WeakKeyDictionary()


def extend() -> None:
    """Makes torch.distributed call record() for each new group. Does nothing if torch has no hook,
    or attaches the hook itself."""
    from torch.distributed import distributed_c10d

    if _hook() is None or _torch_attaches():
        return
    torchs: Callable[..., Any] = distributed_c10d._new_process_group_helper

    @functools.wraps(torchs)
    def new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        made = torchs(*args, **kwargs)
        record(made[0])
        return made

    distributed_c10d._new_process_group_helper = new_process_group_helper


def record(group: Any) -> None:
    """Attaches the hook to a group of this backend. With 2.14, does so only if a variable of SIZES
    sets the recorder's size, because the hook takes a traceback of each operation."""
    hook, default = _hook(), "2000" if _torch_attaches() else "0"
    size = next((os.environ[name] for name in SIZES if os.environ.get(name)), default)
    if hook is None or not size.isdecimal() or int(size) == 0:
        return
    if not _module.is_loaded() or not hasattr(group, "rank"):  # this process is no member
        return
    if _module.backend_of(group) is not None:
        _hooks[group] = hook.attach(group)


def _hook() -> Any:
    """Returns the class of the hook, or None."""
    from torch._C import _distributed_c10d

    return getattr(_distributed_c10d, "FlightRecorderHook", None)


def _torch_attaches() -> bool:
    from torch.distributed import distributed_c10d

    return hasattr(distributed_c10d, "_maybe_attach_flight_recorder")
