"""Gives functions of torch the arguments and results that they have on NPUs. Indices and targets
may be int32. Comparisons of transposed matrices store their results by rows, because scripts call
view() on them. "half" is the type that HCCL_HALF names."""

import functools
from typing import Any, Callable

import torch
import torch.nn.functional as layers
from hccl import _variables

_HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def half_type() -> torch.dtype:
    """Returns the value of HCCL_HALF: "fp16" (the default), or "bf16", which is faster on most
    CPUs."""
    name = _variables.value("HCCL_HALF", "fp16")
    if name not in _HALVES:
        raise ValueError(f'HCCL_HALF is "{name}"; it may be fp16 or bf16')
    return _HALVES[name]


HALF = half_type()

# For each function: the position and the name of the argument for its index or target.
_MOVES = ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill")
_INDICES = {
    **{name + end: (2, "index") for name in _MOVES for end in ("", "_")},
    **{"gather": (2, "index"), "take_along_dim": (1, "indices")},
    **{name: (1, "index") for name in ("take", "put", "put_")},
}
_TARGETS = {
    **{name: (1, "target") for name in ("cross_entropy", "nll_loss", "multi_margin_loss")},
    "multilabel_margin_loss": (1, "target"),
    "one_hot": (0, "input"),
}


def install() -> None:
    for owner in (torch, torch.Tensor):
        for name, (place, word) in _INDICES.items():
            if hasattr(owner, name):
                setattr(owner, name, _with_long(getattr(owner, name), place, word))
    for name, (place, word) in _TARGETS.items():
        setattr(layers, name, _with_long(getattr(layers, name), place, word))
    if HALF != torch.float16:
        for kind in (torch.Tensor, torch.nn.Module):
            kind.half = lambda self: self.to(HALF)
    torch.eq = _in_rows(torch.eq)
    torch.Tensor.eq = _in_rows(torch.Tensor.eq)
    torch.Tensor.__eq__ = _in_rows(torch.Tensor.__eq__)


def scriptable(wrapper: Any, call: Any) -> Any:
    """Makes TorchScript compile the wrapped function."""
    if operator := torch.jit._builtins._find_builtin(call):
        torch.jit._builtins._register_builtin(wrapper, operator)
    else:
        wrapper.__prepare_scriptable__ = lambda: call
    return wrapper


def _long(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype == torch.int32:
        return value.long()
    return value


def _with_long(call: Callable, place: int, word: str) -> Callable:
    @functools.wraps(call)
    def with_long(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], _long(args[place]), *args[place + 1 :])
        elif word in kwargs:
            kwargs[word] = _long(kwargs[word])
        return call(*args, **kwargs)

    return scriptable(with_long, call)


def _in_rows(call: Callable) -> Callable:
    @functools.wraps(call)
    def in_rows(*args: Any, **kwargs: Any) -> Any:
        made = call(*args, **kwargs)
        transposed = isinstance(made, torch.Tensor) and made.dim() == 2
        return made.contiguous() if transposed and "out" not in kwargs else made

    return scriptable(in_rows, call)
