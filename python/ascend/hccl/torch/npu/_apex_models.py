"""Makes half models for apex.amp: casts their inputs and outputs, and keeps batch norms and
checkpoints in float32."""

import contextlib
import copy
import functools
import types
from typing import Any, Callable, Optional

import torch

from hccl.torch.npu._functions import HALF

NORMS = torch.nn.modules.batchnorm._BatchNorm


def converted(value: Any, dtype: torch.dtype) -> Any:
    """Casts a value, or the floating tensors in a container, to the type."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        made = copy.copy(value)
        for key, each in value.items():
            made[key] = converted(each, dtype)
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(converted(each, dtype) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(converted(each, dtype) for each in value)
    if hasattr(value, "to") and not isinstance(value, torch.nn.Module):  # such as a batch
        return value.to(dtype)
    return value


def widest(value: Any) -> torch.dtype:
    """Returns the widest type of the floating tensors in a container."""
    if isinstance(value, torch.Tensor):
        return value.dtype if value.is_floating_point() else HALF
    parts = value.values() if isinstance(value, dict) else value
    kinds = [widest(each) for each in parts] if isinstance(value, (dict, list, tuple)) else []
    return functools.reduce(torch.promote_types, kinds, HALF)


def _forward_of(module: torch.nn.Module) -> Callable:
    """Returns the function forward(module, ...), which also works for a deep copy of the module."""
    own = module.__dict__.get("forward")
    if own is None:
        return type(module).forward
    if isinstance(own, types.MethodType) and own.__self__ is module:
        return own.__func__
    return lambda self, *args, **kwargs: own(*args, **kwargs)


def cast(model: torch.nn.Module, properties: Any, outputs: Optional[torch.dtype]) -> None:
    """Casts a model by `properties`. Its forward returns tensors of type `outputs`, by default
    float32."""
    dtype = properties.cast_model_type
    auto = dtype is None and properties.patch_torch_functions and HALF == torch.bfloat16
    if dtype is None and not auto:
        return
    for module in model.modules() if dtype else ():
        if not (properties.keep_batchnorm_fp32 and isinstance(module, NORMS) and module.affine):
            # Not the program's own _apply, which may not accept `recurse`.
            torch.nn.Module._apply(module, lambda x: converted(x, dtype), recurse=False)
    forward = _forward_of(model)

    def with_casts(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = converted((args, kwargs), dtype) if dtype else (args, kwargs)
        with torch.autocast("cpu", dtype=HALF) if auto else contextlib.nullcontext():
            results = forward(self, *args, **kwargs)
        return converted(results, outputs or torch.float32)

    model.forward = types.MethodType(with_casts, model)
    if properties.keep_batchnorm_fp32 and dtype != torch.float32:
        _keep_batchnorms(model)
    if dtype not in (None, torch.float32) and properties.master_weights:
        model._register_state_dict_hook(_save_masters)
        model._register_load_state_dict_pre_hook(functools.partial(_load_masters, model))


def _keep_batchnorms(model: torch.nn.Module) -> None:
    """Makes batch norms compute in float32 and return the type of their input."""
    for module in model.modules():
        if not isinstance(module, NORMS) or not module.affine:
            continue

        def in_float(
            self: torch.nn.Module, x: torch.Tensor, forward: Callable = _forward_of(module)
        ) -> torch.Tensor:
            return forward(self, x.float()).to(x.dtype)

        module.forward = types.MethodType(in_float, module)


# Checkpoints contain the masters, so a run that loads a checkpoint continues with the same bits.
def _save_masters(module: torch.nn.Module, state: dict, prefix: str, _: Any) -> None:
    for name, parameter in module.named_parameters(remove_duplicate=False):
        master = getattr(parameter, "_amp_master", None)
        if prefix + name in state and master is not None:
            state[prefix + name] = master.detach()
    for name, value in state.items():
        if name.startswith(prefix) and isinstance(value, torch.Tensor):
            state[name] = value.float() if value.dtype == HALF else value


def _load_masters(module: torch.nn.Module, state: dict, prefix: str, *_: Any) -> None:
    for name, parameter in module.named_parameters(remove_duplicate=False):
        master, value = getattr(parameter, "_amp_master", None), state.get(prefix + name)
        if master is not None and value is not None and value.shape == master.shape:
            with torch.no_grad():
                master.copy_(value)
