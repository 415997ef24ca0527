"""Converts tensors' memory and torch's reductions to the package's arrays and names, for the
backend's form in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hccl import empty as shared
from torch import Tensor

# By torch's type: the name of the array interface, the name of the package, and how many such
# elements make one element of the tensor. Bools are bytes, and complex numbers are pairs.
KINDS: dict[Any, tuple[str, str, int]] = {}
for _line in """bool |u1 uint8 1, uint8 |u1 uint8 1, uint16 <u2 uint16 1, uint32 <u4 uint32 1,
    uint64 <u8 uint64 1, int8 |i1 int8 1, int16 <i2 int16 1, int32 <i4 int32 1, int64 <i8 int64 1,
    float16 <f2 float16 1, float32 <f4 float32 1, float64 <f8 float64 1, bfloat16 <V2 bfloat16 1,
    float8_e4m3fn <V1 float8_e4m3fn 1, float8_e5m2 <V1 float8_e5m2 1,
    complex32 <f2 float16 2, complex64 <f4 float32 2, complex128 <f8 float64 2
    """.split(","):
    _type, _interface, _name, _items = _line.split()
    if hasattr(torch, _type):  # older PyTorch lacks some
        KINDS[getattr(torch, _type)] = (_interface, _name, int(_items))

_OPS = dict(SUM="sum", AVG="avg", PRODUCT="prod", MIN="min", MAX="max", PREMUL_SUM="sum")
_OPS.update(BAND="band", BOR="bor", BXOR="bxor")
# Truth values are the bytes 0 and 1. A sum means "or", which is their maximum; a product means "and", their minimum.
_OF_TRUTH = dict(SUM="max", PRODUCT="min", MIN="min", MAX="max", BAND="min", BOR="max", BXOR="bxor")
_reductions: dict[Any, tuple[str, float]] = {}  # by operation and type


def reduction(op: Any, dtype: Any) -> tuple[str, float]:
    """Returns the package's name of torch's reduction, and the factor of the inputs. TypeError: the
    type does not allow the reduction."""
    key = hash(op), dtype
    if key in _reductions:
        return _reductions[key]
    kind, factor = op.__getstate__()
    kind, fractions = kind.name, dtype.is_floating_point or dtype.is_complex
    if kind not in _OPS:
        raise TypeError("Unhandled ReduceOp")
    if dtype not in KINDS:
        raise TypeError(f"Invalid scalar type {dtype} for a reduction")
    if (
        (fractions and kind in ("BAND", "BOR", "BXOR"))
        or (dtype is torch.bool and kind not in _OF_TRUTH)
        or (not fractions and kind == "PREMUL_SUM")
        or (dtype.is_complex and kind in ("PRODUCT", "MIN", "MAX"))
    ):
        raise TypeError(f"Cannot use ReduceOp.{kind} with dtype {dtype}")
    if kind == "PREMUL_SUM":
        return "sum", float(factor)
    _reductions[key] = (_OF_TRUTH if dtype is torch.bool else _OPS)[kind], 1.0
    return _reductions[key]


def _kind(tensor: Tensor) -> tuple[str, str, int]:
    return KINDS.get(tensor.dtype) or ("|u1", "uint8", tensor.element_size())  # other types are only moved


class Memory:
    """The memory of a contiguous tensor, as an array that the package takes."""

    __slots__ = ("__array_interface__", "dtype", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        typestr, self.dtype, items = _kind(tensor)
        data, shape = (tensor.data_ptr(), False), (tensor.numel() * items,)
        self.__array_interface__ = dict(data=data, shape=shape, typestr=typestr, version=3)
        self.tensor = tensor  # keeps the memory


def counts(tensors: Sequence[Tensor]) -> list[int]:
    """Returns the number of Memory's elements in each tensor: two for each complex number."""
    return [each.numel() * _kind(each)[2] for each in tensors]


def _is_packed(tensor: Tensor) -> bool:
    """Returns whether the tensor's memory contains its elements in order, and as they are: not
    their conjugates or negatives."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def block(tensors: Sequence[Tensor], filled: bool = False) -> Tensor:
    """Returns contiguous memory for the tensors, one after another. If the tensors already lie in
    such memory, returns that memory; otherwise new memory, with the tensors' values if `filled`."""
    first = tensors[0]
    if len(tensors) == 1 and _is_packed(first):
        return first
    first, storage = first.detach(), first.untyped_storage().data_ptr()
    at, total = first.data_ptr(), sum(each.numel() for each in tensors)
    for each in tensors:
        in_place = _is_packed(each) and each.untyped_storage().data_ptr() == storage
        if not in_place or each.data_ptr() != at:
            break
        at += each.numel() * each.element_size()
    else:
        return first.as_strided((total,), (1,))
    if filled:
        return torch.cat([each.detach().reshape(-1) for each in tensors])
    return first.new_empty((total,))


def unpack(memory: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copies the parts of the memory into the tensors, unless the tensors lie in this memory."""
    if len(tensors) == 1 and memory is tensors[0]:
        return
    at = 0
    for each in tensors:
        part = memory.detach().reshape(-1)[at : at + each.numel()]
        if part.data_ptr() != each.data_ptr() or not _is_packed(each):
            source, target = part.view(each.shape), each.detach()
            for dim in range(target.dim()):
                # In an expanded dimension, all indices refer to one element in memory.
                if target.stride(dim) == 0 and target.shape[dim] > 1:
                    source, target = source.narrow(dim, 0, 1), target.narrow(dim, 0, 1)
            target.copy_(source)
        at += each.numel()


def exchange(
    native: Any, inputs: Sequence[Tensor], give: Any, outputs: Sequence[Tensor], take: Any
) -> None:
    """Sends parts of the inputs to the ranks, and fills the outputs with parts from the ranks.
    Inputs or outputs may be empty. `give` and `take` count elements; None: all parts are equal."""
    nothing = (inputs or outputs)[0].detach().new_empty((0,))
    send = block(inputs, filled=True) if inputs else nothing
    receive = block(outputs) if outputs else nothing
    if send.untyped_storage().data_ptr() == receive.untyped_storage().data_ptr():
        send = send.clone()
    if give is None:  # as in the compiled form, because ranks of both forms work together
        native.all_to_all(Memory(send), Memory(receive), True)
    else:
        native.all_to_all_v(Memory(send), give, take, Memory(receive), True)
    unpack(receive, outputs)


def empty(shape: Sequence[Any], dtype: Any) -> Tensor:
    """Returns a tensor in memory that the ranks of a host share."""
    nothing = torch.empty(0, dtype=dtype)
    items = torch.Size(shape).numel()
    if items == 0:
        return nothing.view(tuple(shape))
    memory = torch.from_numpy(shared(items * nothing.element_size(), "uint8"))
    return memory.view(dtype).view(tuple(shape))
