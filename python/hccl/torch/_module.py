"""Loads the compiled module for the torch of this process, and builds it if it is missing. If it
cannot be built, the backend uses its form in Python."""

import ctypes
import functools
import importlib.util
import os
import sys
import warnings
from typing import Any, Optional

import _hccl_torch
from hccl import _variables

VARIABLE = "HCCL_TORCH_FORM"

_loaded: Any = None


def is_loaded() -> bool:
    """Returns whether this process has, or has had, a group of this backend."""
    return _loaded is not None or _python_form() is not None


@functools.cache
def why_python() -> Optional[str]:
    """Returns why the backend uses its form in Python, and how to get the compiled form. Returns
    None if the backend has the compiled form, which the first call builds."""
    from hccl._build import BuildError
    from hccl.torch.build import MODULE

    asked = _variables.value(VARIABLE)
    if asked not in ("", "python", "native"):
        raise ValueError(f'{VARIABLE} is "{asked}", not "python" or "native"')
    if asked == "native":
        return None
    if asked == "python":
        return f"{VARIABLE} is python; without it, the compiled form is taken where it fits"
    try:
        MODULE.build()
    except BuildError as error:
        return str(error)
    return None


@functools.cache
def warn_of_python(rank: int) -> None:
    """Warns once on each host that the backend runs in its slower form."""
    if not _variables.is_set(VARIABLE) and os.environ.get("LOCAL_RANK", str(rank)) == "0":
        why = str(why_python()).removeprefix("hccl: ")
        warnings.warn(f"hccl: the backend runs in its slower form, in Python. {why}", stacklevel=2)


def load(user: str = "this function") -> Any:
    """Returns the compiled module. RuntimeError: this process has the form in Python, which lacks
    `user`, the name of a function."""
    global _loaded
    if _loaded is None:
        if why_python() is not None:
            raise RuntimeError(
                f"hccl: {user} needs the compiled backend, but this process has the form in "
                f"Python. {str(why_python()).removeprefix('hccl: ')}"
            )
        import hccl._hccl  # noqa: F401  its libhccl.so is the one that the module uses
        import torch  # noqa: F401  and torch's libraries

        from hccl import _build
        from hccl.torch.build import MODULE

        ctypes.CDLL(str(_build.PACKAGE / "libhccl_optim.so"))
        spec: Any = importlib.util.spec_from_file_location("hccl.torch._backend", MODULE.build())
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _build.remove_temporary(MODULE.folder)
        _loaded = module
        _hccl_torch.end_groups_at_exit()
    return _loaded


def synchronize() -> None:
    """Waits for the operations of all groups of this process that have the compiled form. In a
    callback of an operation, returns at once. Raises no errors of operations; their wait() does."""
    if _loaded is not None:
        _loaded.synchronize()


def backend_of(group: Any) -> Any:
    """Returns the backend of a process group for CPU tensors if it is hccl's backend, else None."""
    if not is_loaded():
        return None
    import torch

    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:  # the group has no backend for CPU tensors
        return None
    backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    python = _python_form()
    if python is not None:
        return backend if isinstance(backend, python.ProcessGroup) else None
    return backend if isinstance(backend, _loaded.ProcessGroupHccl) else None


def _python_form() -> Any:
    """Returns the module of the form in Python, or None if this process had no such group."""
    return sys.modules.get("hccl.torch._python")


def end_groups() -> None:
    """Ends the groups that the program did not destroy, before Python ends. sys.last_value is the
    exception that ended the program; at a prompt it is any exception that was shown."""
    failed = getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
    for form in (_loaded, _python_form()):
        if form is not None:
            form.end_groups(failed=failed)
