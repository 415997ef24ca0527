"""torch_npu.npu_*: operators of ordinary mathematics. They call torch's functions, so they have
gradients. Memory formats of NPUs have no meaning here. _detection.py has the operators for
detection.
"""

import math
from typing import Any

import torch
from torch.nn import functional

from hccl.torch.npu import _detection
from hccl.torch.npu._detection import _wide


def npu_pad(input: Any, paddings: Any) -> Any:
    """Pads with zeros before and behind each dimension. `paddings` begins with the first
    dimension."""
    pairs = [tuple(paddings[i : i + 2]) for i in range(0, len(paddings), 2)]
    return functional.pad(input, [count for pair in reversed(pairs) for count in pair])


def npu_indexing(self: Any, begin: Any, end: Any, strides: Any, *masks: int, **more: int) -> Any:
    """Works like TensorFlow's strided_slice: bit i of a mask applies to entry i. ValueError: a
    stride is below 1."""
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    given = {**dict.fromkeys(names, 0), **dict(zip(names, masks)), **more}
    index: list = []
    for i, (first, last, stride) in enumerate(zip(begin, end, strides)):
        no_begin, no_end, is_ellipsis, is_new, is_one = (given[name] >> i & 1 for name in names)
        span = slice(None if no_begin else first, None if no_end else last, stride)
        index.append(Ellipsis if is_ellipsis else None if is_new else first if is_one else span)
    return self[tuple(index)]


def npu_one_hot(
    input: Any, num_classes: int = -1, depth: int = 1, on_value: float = 1, off_value: float = 0
) -> Any:
    """Returns float32 values. num_classes is the position of the new dimension."""
    here = input.unsqueeze(-1) == torch.arange(depth)
    return torch.where(here, float(on_value), float(off_value)).movedim(-1, num_classes)


def npu_bmm(self: Any, mat2: Any, output_sizes: Any = ()) -> Any:
    product = torch.matmul(self, mat2)
    return product.sum_to_size(tuple(output_sizes)) if output_sizes else product


def npu_swiglu(self: Any, dim: int = -1) -> Any:
    gate, value = self.chunk(2, dim)
    return functional.silu(gate) * value


def npu_rms_norm(self: Any, gamma: Any, epsilon: float = 1e-6) -> tuple:
    """Returns y and the reciprocal of the root mean square, in float32."""
    x = _wide(self)
    square = x.square().mean(list(range(-gamma.dim(), 0)), keepdim=True)
    reciprocal = torch.rsqrt(square + epsilon)
    return (x * reciprocal * gamma).to(self.dtype), reciprocal


def npu_add_rms_norm(x1: Any, x2: Any, gamma: Any, epsilon: float = 1e-6) -> tuple:
    """Returns y, the reciprocal of the root mean square, and the sum."""
    x = x1 + x2
    return *npu_rms_norm(x, gamma, epsilon), x


def npu_gelu(input: Any, approximate: str = "none") -> Any:
    return functional.gelu(input, approximate=approximate)


def npu_group_norm_silu(input: Any, weight: Any, bias: Any, group: int, eps: float = 1e-5) -> tuple:
    size = (*input.shape[:2], math.prod(input.shape[2:]))
    y, mean, reciprocal = torch.native_group_norm(input, weight, bias, *size, group, eps)
    return functional.silu(y), mean, reciprocal


def npu_rotary_mul(input: Any, r1: Any, r2: Any, rotary_mode: str = "half") -> Any:
    """Rotates pairs of elements. A pair has one element in each half of the last dimension or, with
    "interleave", two neighbors."""
    if rotary_mode == "half":
        first, second = input.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    else:
        turned = torch.stack((-input[..., 1::2], input[..., ::2]), -1).flatten(-2)
    return r1 * input + r2 * turned


def npu_softmax_cross_entropy_with_logits(features: Any, labels: Any) -> Any:
    return -(labels * functional.log_softmax(features, -1)).sum(-1)


def npu_scaled_masked_softmax(
    x: Any, mask: Any, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Any:
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax((_wide(x) * scale).masked_fill(mask, -1e4), -1).to(x.dtype)


# ---- mixtures of experts ----


def npu_moe_token_permute(
    tokens: Any, indices: Any, num_out_tokens: Any = None, padded_mode: bool = False
) -> tuple:
    """Sorts the tokens by their experts. `indices` has the experts of each token. Returns the
    sorted rows and, for each expert of each token, the index of its row."""
    _refuse_padded("npu_moe_token_permute", padded_mode)
    order = indices.flatten().argsort(stable=True)
    places = order.argsort().int()
    if num_out_tokens:
        order = order[:num_out_tokens]
    of_token = indices.size(1) if indices.dim() > 1 else 1
    return tokens.index_select(0, order // of_token), places


def npu_moe_token_unpermute(
    permuted_tokens: Any,
    sorted_indices: Any,
    probs: Any = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> Any:
    """Multiplies the rows by `probs` and adds those of each token. Rows that npu_moe_token_permute
    left out count as zero."""
    _refuse_padded("npu_moe_token_unpermute", padded_mode)
    left_out = len(sorted_indices) - len(permuted_tokens)
    rows = functional.pad(permuted_tokens, (0, 0, 0, max(left_out, 0)))[sorted_indices.long()]
    if probs is None:
        return rows
    parts = _wide(rows).unflatten(0, probs.shape) * probs.unsqueeze(-1)
    return parts.sum(1).to(permuted_tokens.dtype)


def _refuse_padded(name: str, padded: bool) -> None:
    if padded:
        raise NotImplementedError(f"hccl: {name} takes padded_mode=False; use torch.gather")


# ---- attention ----


def npu_fusion_attention(
    query: Any,
    key: Any,
    value: Any,
    head_num: int,
    input_layout: str,
    pse: Any = None,
    padding_mask: Any = None,
    atten_mask: Any = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2**31 - 1,
    next_tockens: int = 2**31 - 1,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> tuple:
    """Returns dropout(softmax(mask(scale * (query key^T + pse)))) value, the maxima and the sums
    (eight equal columns each), and four unused values. Rows without any unmasked element are
    zero."""
    if padding_mask is not None or prefix is not None or sparse_mode > 4:
        raise NotImplementedError(
            "hccl: npu_fusion_attention has neither padding_mask, prefix, nor sparse_mode above 4; "
            "use torch.nn.functional.scaled_dot_product_attention"
        )

    def attend(q: Any, k: Any, v: Any) -> tuple:
        mask = _mask(atten_mask, sparse_mode, pre_tockens, next_tockens, q.size(-2), k.size(-2))
        return _attention(q, k, v, pse, mask, scale, keep_prob)

    if input_layout == "TND":  # sequences lie one after another; these are their ends
        parts, begin = [], (0, 0)
        for end in zip(actual_seq_qlen, actual_seq_kvlen):
            rows = [slice(*each) for each in zip(begin, end)]
            heads = (
                x[row].transpose(0, 1) for x, row in zip((query, key, value), (*rows, rows[1]))
            )
            parts.append([x.transpose(0, 1) for x in attend(*heads)])
            begin = end
        y, top, total = (torch.cat(each) for each in zip(*parts))
    else:
        q = _heads(query, input_layout, head_num)
        k = _heads(key, input_layout, key.size(-1) // q.size(-1))
        y, top, total = attend(q, k, _heads(value, input_layout, k.size(1)))
        y = y.permute(*_ORDERS[input_layout][1])
        y = y.flatten(2) if query.dim() == 3 else y
    top, total = (each.expand(*each.shape[:-1], 8) for each in (top, total))
    return y, top, total, query.new_empty(0), 0, 0, 0


# From a layout to (batch, head, position, feature), and back.
_ORDERS = {
    "BNSD": ((0, 1, 2, 3), (0, 1, 2, 3)),
    "BSND": ((0, 2, 1, 3), (0, 2, 1, 3)),
    "BSH": ((0, 2, 1, 3), (0, 2, 1, 3)),
    "SBH": ((1, 2, 0, 3), (2, 0, 1, 3)),
}


def _heads(x: Any, layout: str, heads: int) -> Any:
    return (x.unflatten(-1, (heads, -1)) if x.dim() == 3 else x).permute(*_ORDERS[layout][0])


def _mask(given: Any, mode: int, before: int, behind: int, rows: int, columns: int) -> Any:
    """Returns which elements are masked, or None for no mask. In modes 2 to 4, the numbers define
    the mask, and only whether `given` is None matters."""
    if given is None or mode < 2:
        return None if given is None else given.bool()[..., :rows, :columns]
    ahead = torch.arange(columns) - torch.arange(rows)[:, None]
    if mode != 2:  # the mask is aligned at the last row and the last column
        ahead = ahead - (columns - rows)
    return (ahead > behind) | (ahead < -before) if mode == 4 else ahead > 0


def _attention(
    q: Any, k: Any, v: Any, pse: Any, mask: Any, scale: float, keep_prob: float
) -> tuple:
    k, v = (_wide(x).repeat_interleave(q.size(-3) // x.size(-3), -3) for x in (k, v))
    scores = _wide(q) @ k.transpose(-2, -1)
    scores = (scores if pse is None else scores + pse) * scale
    mask = torch.zeros((), dtype=torch.bool) if mask is None else mask
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    top = scores.detach().amax(-1, keepdim=True)
    weights = (scores - top).exp().masked_fill(mask, 0.0)
    total = weights.sum(-1, keepdim=True)
    weights = functional.dropout(weights / total.clamp(min=1e-30), 1 - keep_prob)
    return (weights @ v).to(q.dtype), top, total.detach()


# ---- random numbers ----


def npu_dropout_gen_mask(size: Any, p: float, **_: Any) -> Any:
    """Returns bits, eight in a byte, the lowest first. A bit is 0 with probability p; such a bit
    drops an element."""
    kept = (torch.rand(-(-math.prod(size) // 128) * 128) >= p).view(-1, 8)
    return (kept * 2 ** torch.arange(8)).sum(1).to(torch.uint8)


def npu_dropout_do_mask(self: Any, mask: Any, p: float) -> tuple:
    kept = (mask.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8) & 1).flatten()
    kept = kept[: self.numel()].view(self.shape).to(self.dtype)
    return self * kept * (1 / (1 - p) if p < 1 else 0.0), mask


def npu_random_choice_with_mask(x: Any, count: int = 256, seed: int = 0, seed2: int = 0) -> tuple:
    """Returns the indices of true elements in random order, padded with zeros, and a mask that is
    false for the padding."""
    generator = None
    if seed or seed2:
        generator = torch.Generator().manual_seed((seed << 32 ^ seed2) % 2**63)
    places = x.nonzero()
    count = count or len(places)
    chosen = places[torch.randperm(len(places), generator=generator)][:count].int()
    mask = torch.arange(count) < len(chosen)
    return functional.pad(chosen, (0, 0, 0, count - len(chosen))), mask


class NpuPreGenDropout(torch.nn.Dropout):
    """torch_npu.contrib.module's NpuPreGenDropout. It makes masks when they are needed."""

    def __init__(self, p: float, module_name: Any = None) -> None:
        super().__init__(p)
        self.module_name = module_name

    @classmethod
    def enable_dropout_ensemble(cls, model: Any) -> None:
        pass


# ---- all of them ----


def _indices32(found: Any) -> tuple:
    return found[0], found[1].int()


OPERATORS: dict = {
    **{name: each for name, each in list(globals().items()) if name.startswith("npu_")},
    **{name: each for name, each in vars(_detection).items() if name.startswith("npu_")},
    "get_npu_format": lambda self: 2,  # ND
    "npu_format_cast": lambda self, acl_format=2: self,
    "npu_format_cast_": lambda self, src=2: self,
    "npu_dtype_cast": lambda self, dtype: self.to(dtype),
    "npu_reshape": lambda self, shape, can_refresh=False: self.reshape(shape),
    "npu_broadcast": lambda self, size: self.expand(size).contiguous(),
    "npu_transpose": lambda self, perm, require_contiguous=True: self.permute(perm).contiguous(),
    "npu_confusion_transpose": lambda self, perm, shape, transpose_first: (
        self.permute(perm).reshape(shape) if transpose_first else self.reshape(shape).permute(perm)
    ),
    "npu_slice": lambda self, offsets, size: self[
        tuple(slice(begin, begin + count) for begin, count in zip(offsets, size))
    ],
    "npu_max": lambda self, dim, keepdim=False: _indices32(torch.max(self, dim, keepdim)),
    "npu_min": lambda self, dim, keepdim=False: _indices32(torch.min(self, dim, keepdim)),
    "empty_with_format": lambda size, *, acl_format=2, **how: torch.empty(size, **how),
    "npu_linear": functional.linear,
    "npu_conv2d": functional.conv2d,
    "npu_layer_norm_eval": functional.layer_norm,
    "npu_mish": functional.mish,
    "npu_silu": functional.silu,
    "npu_fast_gelu": lambda self: self * torch.sigmoid(1.702 * self),
    "npu_alloc_float_status": lambda self: torch.zeros(8),
    "npu_clear_float_status": lambda self: torch.zeros(8),
}
OPERATORS["npu_bmmV2"] = OPERATORS.pop("npu_bmm")
OPERATORS["fast_gelu"] = OPERATORS["npu_fast_gelu"]

_ATTENTIONS = (
    *("fused_attention", "fused_attention_score", "fused_infer_attention_score"),
    *("prompt_flash_attention", "incre_flash_attention", "fusion_attention_v2"),
)
_ATTENTION = "npu_fusion_attention or torch.nn.functional.scaled_dot_product_attention"
# Names of torch_npu, of its contrib and of apex that do not exist here, with their replacements.
_REFUSED = {
    **{f"npu_{name}": _ATTENTION for name in _ATTENTIONS},
    **{name: f"torch.nn.{name}" for name in ("ChannelShuffle", "MultiheadAttention")},
    **{name: "torchvision.ops.DeformConv2d" for name in ("DCNv2", "ModulatedDeformConv")},
    "npu_get_float_status": "npu.utils.npu_check_overflow(gradients): a CPU keeps no such flag",
    "npu_multi_head_attention": "torch.nn.MultiheadAttention",
    "npu_dropout_with_add_softmax": "torch.softmax and torch.nn.functional.dropout",
    "npu_masked_fill_range": "torch.where",
    "npu_lstm": "torch.nn.LSTM",
    "npu_gru": "torch.nn.GRU",
    "npu_scatter": "torch.scatter",
    "npu_sort_v2": "torch.sort",
    "npu_geglu": "torch.nn.functional.gelu",
    "npu_grouped_matmul": "torch.matmul of each group",
    "npu_quant_matmul": "torch.matmul",
    "npu_apply_adam": "torch_npu.optim.NpuFusedAdam",
    "npu_apply_adam_w": "torch_npu.optim.NpuFusedAdamW",
    "npu_moe_gating_top_k_softmax": "torch.softmax and torch.topk",
    "npu_cross_entropy_loss": "torch.nn.functional.cross_entropy",
    "npu_mm_all_reduce_base": "torch.matmul and torch.distributed.all_reduce",
    "npu_nms_v4": "npu_nms_with_mask",
    "npu_nms_rotated": "mmcv.ops.nms_rotated",
    "npu_rotated_iou": "mmcv.ops.box_iou_rotated",
    "npu_ps_roi_pooling": "torchvision.ops.ps_roi_pool",
    "npu_multiclass_nms": "npu_batch_nms",
    "npu_batched_multiclass_nms": "npu_batch_nms",
    "npu_fast_condition_index_put": "torch.where",
    "fuse_add_softmax_dropout": "torch.softmax and torch.nn.functional.dropout",
    "matmul_transpose": "torch.matmul",
    "BiLSTM": "torch.nn.LSTM with bidirectional=True",
    "Focus": "torch.nn.PixelUnshuffle",
    "FusedColorJitter": "torchvision.transforms.ColorJitter",
    "LabelSmoothingCrossEntropy": "torch.nn.CrossEntropyLoss with label_smoothing",
    "NpuDropPath": "torchvision.ops.StochasticDepth",
    "NpuFairseqDropout": "torch.nn.Dropout",
    "Prefetcher": "the loader itself: memory of the CPU needs no prefetch",
    "PSROIPool": "torchvision.ops.PSRoIPool",
    "FP16_Optimizer": 'apex.amp.initialize with opt_level="O2"',
    "NpuFusedBertAdamV2": "apex.optimizers.NpuFusedBertAdam",
}


def missing(name: str) -> type:
    """The __getattr__ of these modules, for names that do not exist here. Returns a class whose
    constructor raises an error that names a replacement. AttributeError: the name is unknown."""
    if name not in _REFUSED:
        raise AttributeError(f"hccl has no {name!r} among Ascend's names")

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"hccl: {name} is not here; use {_REFUSED[name]}")

    return type(name, (), {"__init__": refuse, "__module__": __name__})


def install() -> None:
    """Adds torch.npu_format_cast(x, 2) and x.npu_format_cast(2), which older scripts call, and
    torch.ops.npu.npu_format_cast."""
    for name, operator in OPERATORS.items():
        setattr(torch, name, operator)
        setattr(torch.ops.npu, name, operator)
    for name in ("format_cast", "format_cast_", "dtype_cast", "confusion_transpose"):
        setattr(torch.Tensor, f"npu_{name}", OPERATORS[f"npu_{name}"])
