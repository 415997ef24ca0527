"""Loads the compiled module for the torch of this process, and builds it if it is missing."""

import ctypes
import importlib.util
from typing import Any

_loaded: Any = None


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
    return _loaded
