"""torch_npu.npu_*: operators for detection. Boxes are x1, y1, x2, y2 unless a docstring differs."""

import math
from typing import Any, Callable, Optional

import torch
from torch.nn import functional


def _wide(x: Any) -> Any:
    """Converts half types to float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


# ---- overlaps ----


def npu_iou(bboxes: Any, gtboxes: Any, mode: int = 0) -> Any:
    """Returns for [i, j] the intersection of gtboxes[i] and bboxes[j], divided by their union or,
    with mode 1, by the area of gtboxes[i]."""
    one, two = _wide(bboxes)[None], _wide(gtboxes)[:, None]
    sides = torch.minimum(one, two)[..., 2:] - torch.maximum(one, two)[..., :2]
    inter = sides.clamp(min=0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (one, two)]
    whole = areas[1] if mode else areas[0] + areas[1] - inter
    return (inter / (whole + 1e-7)).to(bboxes.dtype)


npu_ptiou = npu_iou
_EPS = 1e-10


def _of_pairs(name: str) -> Callable:
    """Returns an operator on pairs of boxes: box i of each argument. Boxes are columns of (4, n).
    With trans, a column has a box's center and size."""

    def operator(
        self: Any,
        gtboxes: Any,
        trans: bool = False,
        is_cross: bool = False,
        mode: int = 0,
        atan_sub_flag: bool = False,
    ) -> Any:
        if is_cross or mode:
            raise NotImplementedError(f"hccl: {name} takes is_cross=False and mode=0 only")
        one, two = self, gtboxes
        if trans:
            one, two = (torch.cat((b[:2] - b[2:] / 2, b[:2] + b[2:] / 2)) for b in (one, two))
        low, high = torch.minimum(one, two), torch.maximum(one, two)
        inter, around = (low[2:] - high[:2]).clamp(min=0).prod(0), high[2:] - low[:2]
        sides = one[2:] - one[:2], two[2:] - two[:2]
        whole = sides[0].prod(0) + sides[1].prod(0) - inter + _EPS
        iou = inter / whole
        if name == "npu_giou":
            area = around.prod(0) + _EPS
            return (iou - (area - whole) / area).unsqueeze(1)
        apart = ((one[:2] + one[2:] - two[:2] - two[2:]) / 2).square().sum(0)
        diou = iou - apart / (around.square().sum(0) + _EPS)
        one, two = (torch.atan(side[0] / side[1]) for side in sides)
        v = 4 / math.pi**2 * (two - one).square()
        return (diou if name == "npu_diou" else diou - v * v / (1 + _EPS - iou + v)).unsqueeze(0)

    return operator


npu_giou, npu_diou, npu_ciou = map(_of_pairs, ("npu_giou", "npu_diou", "npu_ciou"))


# ---- boxes of Faster R-CNN ----


def _center_and_size(boxes: Any) -> tuple:
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2] + 1


def npu_bounding_box_encode(anchor_box: Any, ground_truth_box: Any, *means_and_stds: float) -> Any:
    """Encodes boxes as shifts and logarithms of the ratios of sizes. Then subtracts the four means
    and divides by the four deviations."""
    center, size = _center_and_size(_wide(anchor_box))
    wanted, wanted_size = _center_and_size(_wide(ground_truth_box))
    deltas = torch.cat(((wanted - center) / size, (wanted_size / size).abs().log()), 1)
    means, stds = deltas.new_tensor(means_and_stds).view(2, 4)
    return ((deltas - means) / stds).to(anchor_box.dtype)


def npu_bounding_box_decode(rois: Any, deltas: Any, *means_stds_and_limits: Any) -> Any:
    """Decodes the result of npu_bounding_box_encode, with several boxes (4k columns) for each roi.
    The last two arguments are the height and width of the image, and the largest ratio of sizes."""
    *numbers, max_shape, wh_ratio_clip = means_stds_and_limits
    center, size = (each[:, None] for each in _center_and_size(_wide(rois)))
    means, stds = center.new_tensor(numbers).view(2, 4)
    moved = _wide(deltas).unflatten(1, (-1, 4)) * stds + means
    limit = abs(math.log(wh_ratio_clip))
    middle = center + size * moved[..., :2]
    half = size * moved[..., 2:].clamp(-limit, limit).exp() / 2 - 0.5
    last = center.new_tensor([max_shape[1], max_shape[0]] * 2) - 1
    boxes = torch.minimum(torch.cat((middle - half, middle + half), -1).clamp(min=0), last)
    return boxes.flatten(1).to(deltas.dtype)


# ---- suppression ----


def _best(boxes: Any, scores: Any, threshold: float) -> Any:
    """Returns the indices of the kept boxes, the best scores first. Drops a box that overlaps a
    kept box by more than the threshold."""
    order = scores.argsort(descending=True, stable=True)
    boxes, alive = boxes.detach()[order], torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if alive[i]:
            alive[i + 1 :] &= npu_iou(boxes[i + 1 :], boxes[i : i + 1])[0] <= threshold
    return order[alive]


def npu_nms_with_mask(input: Any, iou_threshold: float) -> tuple:
    """Returns the input's boxes and scores (n, 5), the numbers 0 to n - 1, and whether each box is
    kept."""
    mask = torch.zeros(len(input), dtype=torch.uint8)
    mask[_best(input[:, :4], input[:, 4], iou_threshold)] = 1
    return input[:, :5], torch.arange(len(input), dtype=torch.int32), mask


def npu_batch_nms(
    self: Any,
    scores: Any,
    score_threshold: float,
    iou_threshold: float,
    max_size_per_class: int,
    max_total_size: int,
    change_coordinate_frame: bool = False,
    transpose_box: bool = False,
) -> tuple:
    """Takes boxes (batch, n, 1 or classes, 4) and scores (batch, n, classes). Returns, for each
    element of the batch, the best boxes of all classes, their scores and their classes, each padded
    with zeros, and the number of boxes."""
    if change_coordinate_frame or transpose_box:
        raise NotImplementedError(
            "hccl: npu_batch_nms has neither change_coordinate_frame nor transpose_box"
        )
    filled, counts = self.new_zeros(len(self), max_total_size, 6), []
    for row, boxes, points in zip(filled, self, scores):
        found = []
        for kind in range(points.size(1)):
            of_kind = boxes[:, kind if boxes.size(1) > 1 else 0]
            (able,) = torch.where(points[:, kind] > score_threshold)
            best = able[_best(of_kind[able], points[able, kind], iou_threshold)][
                :max_size_per_class
            ]
            score = points[best, kind, None]
            found.append(torch.cat((of_kind[best], score, torch.full_like(score, kind)), 1))
        all_found = torch.cat(found)
        order = all_found[:, 4].argsort(descending=True, stable=True)[:max_total_size]
        row[: len(order)] = all_found[order]
        counts.append(len(order))
    return filled[..., :4], filled[..., 4], filled[..., 5], torch.tensor(counts, dtype=torch.int32)


# ---- regions ----


def _weights(start: float, length: float, bins: int, samples: int, size: int) -> tuple:
    """Returns a slice of positions, and their weights [bin, position] by linear interpolation at
    the bin's samples. Samples more than one position outside count as zero."""
    samples = samples or math.ceil(length / bins)
    at = torch.arange(bins)[:, None] + (torch.arange(samples) + 0.5) / max(samples, 1)
    at = start + at.double() * (length / bins)
    inside, at = (at >= -1) & (at <= size), at.clamp(0, size - 1)
    first, end = (int(at.min()), int(at.max()) + 2) if samples > 0 else (0, 1)
    near = 1 - (at[..., None] - torch.arange(first, min(end, size))).abs()
    weights = (near.clamp(min=0) * inside[..., None]).sum(1) / max(samples, 1)
    return slice(first, end), weights


def npu_roi_align(
    self: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sample_num: int = 2,
    roi_end_mode: int = 1,
) -> Any:
    """rois: image, x1, y1, x2, y2. Mode 0 uses the corners unchanged. Mode 1 adds one image pixel
    to x2 and y2. Modes 2 and 3 move both corners back by half a position of the feature map `self`,
    and allow regions smaller than one position."""
    shift = 0.5 if roi_end_mode > 1 else 0.0
    later = spatial_scale if roi_end_mode == 1 else 0.0
    found = []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (corner * spatial_scale - shift for corner in corners)
        across, down = x2 - x1 + later, y2 - y1 + later
        if not shift:
            across, down = max(across, 1.0), max(down, 1.0)
        rows, of_rows = _weights(y1, down, pooled_height, sample_num, self.size(2))
        columns, of_columns = _weights(x1, across, pooled_width, sample_num, self.size(3))
        part = _wide(self[int(image)][:, rows, columns])
        # linear() is fastest for the last dimension
        across_done = functional.linear(part, of_columns.to(part)).transpose(1, 2)
        found.append(functional.linear(across_done, of_rows.to(part)).transpose(1, 2))
    if not found:
        return self.new_zeros(0, self.size(1), pooled_height, pooled_width)
    return torch.stack(found).to(self.dtype)


class ROIAlign(torch.nn.Module):
    """torch_npu.contrib.module's ROIAlign. aligned: moves regions by half a position."""

    def __init__(
        self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = True
    ) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input_tensor: Any, rois: Any) -> Any:
        x, scale, (height, width) = input_tensor.float(), self.spatial_scale, self.output_size
        mode = 3 if self.aligned else 0
        return npu_roi_align(x, rois, scale, height, width, self.sampling_ratio, mode)


def npu_roi_alignbk(
    self: Any,
    rois: Any,
    xdiff_shape: Any,
    pooled_width: int,
    pooled_height: int,
    spatial_scale: float,
    sample_num: int,
    roi_end_mode: Optional[int] = None,
) -> Any:
    """Returns the gradient of npu_roi_align's features; `self` is the gradient of its result."""
    features = self.new_zeros(tuple(xdiff_shape)).requires_grad_()
    mode = 1 if roi_end_mode is None else roi_end_mode
    height, width = self.shape[2:]  # callers swap height and width
    if len(rois):
        with torch.enable_grad():
            y = npu_roi_align(features, rois, spatial_scale, height, width, sample_num, mode)
        return torch.autograd.grad(y, features, self)[0]
    return features.detach()


def npu_deformable_conv2d(
    input: Any,
    weight: Any,
    offset: Any,
    bias: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any = (1, 1, 1, 1),
    groups: int = 1,
    deformable_groups: int = 1,
    modulated: bool = True,
) -> tuple:
    """offset: shifts in x, shifts in y, and factors, for each group and tap. stride and dilation
    have a number for each of the input's four dimensions; padding has top, bottom, left, right.
    Returns the result, and the samples (batch, channel, rows * taps down, columns * taps
    across)."""
    batch, taps, sizes = len(input), tuple(weight.shape[2:]), input.shape[2:]
    # (batch and group, x, y and factor, row, tap down, column, tap across)
    moved = offset.view(batch, 3, deformable_groups, *taps, *offset.shape[2:])
    moved = moved.permute(0, 2, 1, 5, 3, 6, 4).flatten(0, 1)
    at = []
    for i in (1, 0):
        starts = torch.arange(offset.size(2 + i)) * stride[2 + i] - padding[2 * i]
        here = starts[:, None] + torch.arange(taps[i]) * dilation[2 + i] + 0.5
        here = moved[:, 1 - i] + (here if i else here[..., None, None])
        at.append(here * (2 / sizes[i]) - 1)  # in grid_sample's coordinates, edges are -1 and 1
    grid = torch.stack(at, -1).flatten(1, 2).flatten(2, 3)
    parts = input.reshape(len(moved), -1, *sizes)
    factors = moved[:, 2].flatten(1, 2).flatten(2, 3).unsqueeze(1)
    samples = functional.grid_sample(parts, grid.to(parts), align_corners=False) * factors
    samples = samples.reshape(batch, -1, *samples.shape[2:])
    return functional.conv2d(samples, weight, bias, taps, groups=groups), samples
