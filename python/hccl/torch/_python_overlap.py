"""Tensors that share memory, for the backend's form in Python. The rules are those of the compiled
form, src/tensors.cc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

import torch
from torch import Tensor


def _reach(tensor: Tensor) -> int:
    """Returns the number of elements from the tensor's first one to its last one in memory."""
    return sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) + 1


def _meetings(tensors: Sequence[Tensor]) -> Iterator[tuple[int, int]]:
    """Yields the pairs of tensors, by index, whose ranges of memory overlap."""
    ranges = []
    for i, each in enumerate(tensors):
        if each.numel():
            begin = each.data_ptr()
            ranges.append((begin, begin + _reach(each) * each.element_size(), i))
    ranges.sort()
    for at, (_, end, one) in enumerate(ranges):
        for begin, _, other in ranges[at + 1 :]:
            if begin >= end:
                break
            yield one, other


def why_refused(outputs: Sequence[Tensor]) -> Optional[str]:
    """Returns a text if two elements of the outputs share memory: those of an expanded tensor, or
    of two tensors. If strides do not tell whether two tensors share elements, as those of t[:, 0]
    and t[:, 1], they share some if they begin at the same address."""
    for each in outputs:
        if not each.is_contiguous() and torch._debug_has_internal_overlap(each) == 1:
            return "an output is expanded, so several of its elements are one in memory; clone() it"
    for pair in _meetings(outputs) if len(outputs) > 1 else ():
        one, other = (outputs[each] for each in pair)
        both_dense = one.numel() == _reach(one) and other.numel() == _reach(other)
        if both_dense or one.data_ptr() == other.data_ptr():
            names = f"outputs {min(pair)} and {max(pair)}"
            return f"{names} share elements in memory; pass tensors of their own"
    return None


def unchanged_by(
    outputs: Sequence[Tensor] | Sequence[list[Tensor]], inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Returns the inputs of operations that run one after another. Operation i writes outputs[i].
    Inputs that another operation may overwrite are copied, so that every operation reads the
    original values."""
    sources, count = list(inputs), len(inputs)
    if count == 1:
        return sources
    everything, operation = list(inputs), list(range(count))  # the operation of each tensor
    for i, each in enumerate(outputs):
        everything += [each] if isinstance(each, Tensor) else each
        operation += [i] * (len(everything) - len(operation))
    for pair in _meetings(everything):
        one, other = sorted(pair)
        if one < count <= other and operation[one] != operation[other]:
            sources[one] = inputs[one].detach().clone()
    return sources
