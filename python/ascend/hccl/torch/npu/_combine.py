"""torch_npu.utils: tensors combined contiguously in one tensor.

Each tensor has its own storage over its part of the combined memory, so torch.save of a tensor
writes only that tensor. The combined memory exists as long as any of its tensors.
"""

from typing import Optional

import numpy
import torch


def _own_storage(combined: torch.Tensor, start: int, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with the shape of `tensor`. Its storage is only its part of `combined`."""
    part = combined[start : start + tensor.numel()]
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[part.element_size()]
    memory = numpy.asarray(part.view(words))  # keeps the combined memory alive
    return torch.from_numpy(memory).view(part.dtype).view(tensor.shape)


def npu_combine_tensors(
    list_of_tensor: list, require_copy_value: bool = True
) -> Optional[torch.Tensor]:
    """Moves the tensors into one new tensor, which has exactly their elements, and returns it. The
    tensors keep their values if require_copy_value is set; otherwise they become zero. Returns None
    for an empty list.

    RuntimeError: a tensor is None, has another type, is on another device, or is not contiguous."""
    if not list_of_tensor:
        return None
    for tensor in list_of_tensor:
        if tensor is None:
            raise RuntimeError("Tensors to combine must not be None")
        if tensor.dtype != list_of_tensor[0].dtype:
            raise RuntimeError("Tensors need to have the same dtype to be combined")
        if tensor.device.type != "cpu":
            raise RuntimeError("Tensors to combine must be on the NPU, which is the CPU here")
        if not tensor.is_contiguous():
            raise RuntimeError("Tensors to combine must be contiguous")
    total = sum(tensor.numel() for tensor in list_of_tensor)
    combined = torch.zeros(total, dtype=list_of_tensor[0].dtype)
    start = 0
    with torch.no_grad():
        for tensor in list_of_tensor:
            part = _own_storage(combined, start, tensor)
            if require_copy_value:
                part.copy_(tensor)
            tensor.data = part
            start += tensor.numel()
    return combined


def get_part_combined_tensor(
    combined_tensor: Optional[torch.Tensor], index: int, size: int
) -> Optional[torch.Tensor]:
    """Returns a view of `size` elements from `index` on, or None if the tensor is None or size is
    0."""
    if combined_tensor is None or size == 0:
        return None
    if index < 0 or index + size > combined_tensor.numel():
        raise RuntimeError(
            f"elements {index} to {index + size} are not in a tensor of {combined_tensor.numel()}"
        )
    return combined_tensor[index : index + size]


def is_combined_tensor_valid(combined_tensor: Optional[torch.Tensor], list_of_tensor: list) -> bool:
    """Returns whether all tensors of the list are contiguous parts of the combined tensor."""
    if not list_of_tensor:
        return True
    if combined_tensor is None:
        return False
    begin = combined_tensor.data_ptr()
    end = begin + combined_tensor.numel() * combined_tensor.element_size()
    return all(
        tensor is not None and begin <= tensor.data_ptr() < end and tensor.is_contiguous()
        for tensor in list_of_tensor
    )


def npu_change_data_ptr(dst: torch.Tensor, src: torch.Tensor, index: int) -> None:
    """Makes dst share the elements of src from `index` on."""
    if dst.dtype != src.dtype:
        raise RuntimeError("npu_change_data_ptr: the tensors have different types")
    if index < 0 or index + dst.numel() > src.numel():
        raise RuntimeError("npu_change_data_ptr: the tensor does not fit behind the index")
    dst.data = _own_storage(src.view(-1), index, dst)
