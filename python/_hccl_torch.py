"""The entry point that `import torch` calls (group torch.backends).

Since PyTorch 2.14 torch registers a backend when a program first uses its name (group
torch.distributed.backends). So this module is outside the package hccl, and a program that makes no
group of hccl does not load the package. Here is only what must be there before the first group.
"""

import atexit
import functools
import importlib
import os
import sys
from typing import Any

# With these variables, the backend changes how torch makes the first group.
_CHANGE_GROUPS = ("HCCL_AS_GLOO", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")

_forwards: dict[str, Any] = {}
_ends_at_exit = False


def register() -> None:
    """Registers the backend, or leaves that to torch."""
    torchs = sys.modules.get("torch.distributed.distributed_c10d")
    backends: Any = getattr(torchs, "Backend", None)
    if (
        not hasattr(backends, "_ensure_backend_registered")
        or "HCCL" in backends._plugins  # of another package; a warning names the free name
        or any(os.environ.get(name) for name in _CHANGE_GROUPS)
    ):
        importlib.import_module("hccl.torch._register").register()
        return
    end_groups_at_exit()
    for name in ("shrink_group", "_set_pg_timeout"):
        if hasattr(torchs, name):
            forward(name)


def forward(name: str) -> Any:
    """Replaces a function of torch.distributed by one that calls its own __wrapped__, and returns
    that one. A program may import the function before the backend changes __wrapped__."""
    if name not in _forwards:
        modules = [sys.modules[f"torch.distributed{each}"] for each in ("", ".distributed_c10d")]
        torchs = getattr(modules[1], name)

        @functools.wraps(torchs)
        def call(*args: Any, **kwargs: Any) -> Any:
            return call.__wrapped__(*args, **kwargs)

        _forwards[name] = call
        for each in modules:
            if getattr(each, name, None) is torchs:
                setattr(each, name, call)
    return _forwards[name]


def end_groups_at_exit() -> None:
    """Registers the exit handler, which ends all groups. Exit handlers that were registered earlier
    run after it, so it is registered when a program imports torch: later ones find the groups."""
    global _ends_at_exit
    if not _ends_at_exit:
        atexit.register(_end_groups)
        _ends_at_exit = True


def _end_groups() -> None:
    module = sys.modules.get("hccl.torch._module")
    if module is not None:
        module.end_groups()
