"""Loads the compiled module for the torch of this process, and builds it if it is missing."""

import atexit
import ctypes
import importlib.util
import sys
from typing import Any

_loaded: Any = None
_ends_at_exit = False


def end_at_exit() -> None:
    """Registers the exit handler. Handlers registered earlier run later, when all groups have
    ended."""
    global _ends_at_exit
    if not _ends_at_exit:
        atexit.register(_end_groups)
        _ends_at_exit = True


def is_loaded() -> bool:
    """Whether this process has, or has had, a group of this backend."""
    return _loaded is not None


def load() -> Any:
    global _loaded
    if _loaded is None:
        import hccl._hccl  # noqa: F401  its libhccl.so is the one that the module uses
        import torch  # noqa: F401  and torch's libraries

        from hccl import _build
        from hccl.torch.build import MODULE

        ctypes.CDLL(str(_build.PACKAGE / "libhccl_optim.so"))
        spec: Any = importlib.util.spec_from_file_location("hccl.torch._backend", MODULE.build())
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _loaded = module
        end_at_exit()
    return _loaded


def backend_of(group: Any) -> Any:
    """Returns the backend of a process group for CPU tensors if it is ours, else None."""
    import torch

    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:  # it has none
        return None
    backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    return backend if isinstance(backend, load().ProcessGroupHccl) else None


def _end_groups() -> None:
    """Ends the groups that the program has left behind, while Python lives. sys.last_value has the
    exception that ended the program; at a prompt it has any exception that was shown."""
    if _loaded is None:
        return
    failed = getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
    _loaded.end_groups(failed=failed)
