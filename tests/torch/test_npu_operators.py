"""torch_npu's operators compared with their definitions in numpy, and gradients with finite differences."""

import math

import numpy
import pytest
import torch

from hccl.torch.npu import _detection
from hccl.torch.npu._operators import OPERATORS, missing


def op(name, *args, **kwargs):
    return OPERATORS[name](*args, **kwargs)


def close(got, wanted, tolerance=1e-5):
    numpy.testing.assert_allclose(got.detach().numpy(), wanted, rtol=tolerance, atol=tolerance)


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def boxes_of(count, seed=0):
    corner = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 10
    size = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed + 1)) * 6 + 0.5
    return torch.cat((corner, corner + size), 1)


def test_form():
    x = random(2, 3, 4, 6)
    n = x.numpy()
    close(op("npu_confusion_transpose", x, (0, 2, 1, 3), (2, 4, 18), True),
          n.transpose(0, 2, 1, 3).reshape(2, 4, 18))
    close(op("npu_confusion_transpose", x, (0, 2, 1), (2, 12, 6), False),
          n.reshape(2, 12, 6).transpose(0, 2, 1))
    close(op("npu_pad", x, (1, 2, 0, 0, 3, 0, 0, 1)), numpy.pad(n, ((1, 2), (0, 0), (3, 0), (0, 1))))
    close(op("npu_slice", x, [0, 1, 0, 2], [2, 2, 4, 1]), n[:, 1:3, :, 2:3])
    close(op("npu_broadcast", x[:, :1], [2, 5, 4, 6]), numpy.broadcast_to(n[:, :1], (2, 5, 4, 6)))
    close(op("npu_transpose", x, (3, 0, 1, 2)), n.transpose(3, 0, 1, 2))
    close(op("npu_reshape", x, (6, 24)), n.reshape(6, 24))
    assert op("npu_format_cast", x, 29) is x and op("npu_dtype_cast", x, torch.int).dtype == torch.int32
    for name, wanted in (("npu_max", n.max), ("npu_min", n.min)):
        values, indices = op(name, x, 2)
        close(values, wanted(2))
        assert indices.dtype == torch.int32
        close(x.gather(2, indices.long().unsqueeze(2)).squeeze(2), wanted(2))
    values, _ = op("npu_max", x, 1, keepdim=True)
    assert values.shape == (2, 1, 4, 6)


def test_indexing_is_a_strided_slice():
    x = random(2, 3, 4, 6)
    n = x.numpy()
    close(op("npu_indexing", x, [0, 1, 0, 1], [2, 3, 4, 6], [1, 1, 2, 3]), n[0:2, 1:3, 0:4:2, 1:6:3])
    close(op("npu_indexing", x, [1, 1], [2, 2], [1, 2], begin_mask=1, end_mask=2), n[:2, 1::2])
    close(op("npu_indexing", x, [1, 0, 2], [2, 0, 3], [1, 1, 1], 0, 0, 2, 0, 5), n[1, ..., 2])
    close(op("npu_indexing", x, [0, 1], [0, 2], [1, 1], new_axis_mask=1), n[None, 1:2])


def test_one_hot():
    classes = torch.tensor([[5, 3, 2], [0, -1, 4]], dtype=torch.int32)
    wanted = numpy.full((2, 3, 4), 0.5, dtype=numpy.float32)
    for i, j in numpy.ndindex(2, 3):
        if 0 <= classes[i, j] < 4:
            wanted[i, j, classes[i, j]] = 2
    close(op("npu_one_hot", classes, -1, 4, 2, 0.5), wanted)
    close(op("npu_one_hot", classes, 1, 4, 2, 0.5), wanted.transpose(0, 2, 1))
    assert op("npu_one_hot", classes, depth=5).dtype == torch.float32


def test_layers():
    x, y = random(3, 4, 6), random(3, 6, 5, seed=1)
    n = x.double().numpy()
    close(op("npu_bmmV2", x, y, []), n @ y.double().numpy())
    close(op("npu_bmmV2", x, y, [4, 5]), (n @ y.double().numpy()).sum(0))
    close(op("npu_linear", x, y[0].T, torch.ones(5)), n @ y[0].double().numpy() + 1)
    sigmoid = 1 / (1 + numpy.exp(-n))
    close(op("npu_silu", x), n * sigmoid)
    close(op("npu_mish", x), n * numpy.tanh(numpy.log1p(numpy.exp(n))))
    close(op("npu_swiglu", x), (n * sigmoid)[..., :3] * n[..., 3:])
    close(op("npu_swiglu", x, dim=1), (n * sigmoid)[:, :2] * n[:, 2:])
    close(op("fast_gelu", torch.tensor([0.5991, 0.4094])), [0.4403, 0.2733], 1e-4)  # torch_npu's documentation
    gamma = random(6, seed=2)
    root = numpy.sqrt((n**2).mean(-1, keepdims=True) + 1e-5)
    got, reciprocal = op("npu_rms_norm", x, gamma, epsilon=1e-5)
    close(got, n / root * gamma.numpy())
    close(reciprocal, 1 / root)
    halves = op("npu_rms_norm", x.half(), gamma.half())
    assert [each.dtype for each in halves] == [torch.float16, torch.float32]
    mean, deviation = n.mean(-1, keepdims=True), n.std(-1, keepdims=True)
    close(op("npu_layer_norm_eval", x, (6,), gamma), (n - mean) / deviation * gamma.numpy(), 1e-4)
    got, mean, reciprocal = op("npu_group_norm_silu", x, torch.ones(4), torch.zeros(4), 2)
    grouped = n.reshape(3, 2, 12)
    close(mean, grouped.mean(-1))
    normed = ((grouped - grouped.mean(-1, keepdims=True)) / grouped.std(-1, keepdims=True)).reshape(n.shape)
    close(got, normed / (1 + numpy.exp(-normed)), 1e-4)


def test_rotary_mul_turns_pairs():
    x = random(2, 3, 4, 6)
    angle = random(1, 3, 1, 3, seed=1)
    for mode, pairs in (("half", [(0, 3), (1, 4), (2, 5)]), ("interleave", [(0, 1), (2, 3), (4, 5)])):
        wanted = numpy.empty(x.shape)
        r1, r2 = torch.empty(1, 3, 1, 6), torch.empty(1, 3, 1, 6)
        for i, pair in enumerate(pairs):
            r1[..., pair] = angle[..., i : i + 1].cos()
            r2[..., pair] = angle[..., i : i + 1].sin()
            turned = (x[..., pair[0]] + 1j * x[..., pair[1]]) * torch.exp(1j * angle[..., i])
            wanted[..., pair[0]], wanted[..., pair[1]] = turned.real.numpy(), turned.imag.numpy()
        close(op("npu_rotary_mul", x, r1, r2, rotary_mode=mode), wanted)


def test_softmax():
    logits, labels = random(5, 7), random(5, 7, seed=1).abs()
    n = numpy.exp(logits.double().numpy())
    wanted = -(labels.numpy() * numpy.log(n / n.sum(1, keepdims=True))).sum(1)
    close(op("npu_softmax_cross_entropy_with_logits", logits, labels), wanted)
    x, mask = random(2, 2, 4, 4), random(2, 1, 4, 4, seed=1) > 0
    mask[0, 0, 1] = True  # masks a whole row
    for fixed in (False, True):
        hidden = numpy.triu(numpy.ones((4, 4), bool), 1) if fixed else mask.numpy()
        scores = numpy.where(hidden, -1e4, x.double().numpy() * 0.3)
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        close(op("npu_scaled_masked_softmax", x, mask, 0.3, fixed), scores / scores.sum(-1, keepdims=True))


def attention(q, k, v, hidden, scale, pse):
    """Computes attention on (head, position, feature), element by element."""
    result = numpy.zeros((*q.shape[:2], v.shape[2]))
    for head, i in numpy.ndindex(*q.shape[:2]):
        of = head * len(k) // len(q)
        seen = [j for j in range(k.shape[1]) if not hidden(head, i, j)]
        weights = [math.exp(scale * (q[head, i] @ k[of, j] + pse[head, i, j])) for j in seen]
        for weight, j in zip(weights, seen):
            result[head, i] += weight / sum(weights) * v[of, j]
    return result


RULES = {
    0: lambda given, i, j: given[i, j],
    1: lambda given, i, j: given[i, j],
    2: lambda given, i, j: j > i,
    3: lambda given, i, j: j - 7 > i - 5,
    4: lambda given, i, j: not -2 <= (j - 7) - (i - 5) <= 1,
}


@pytest.mark.parametrize("mode", [*RULES, None])
def test_attention(mode):
    """Four heads share two heads of keys; five positions attend to seven."""
    q, k, v = random(2, 4, 5, 6), random(2, 2, 7, 6, seed=1), random(2, 2, 7, 3, seed=2)
    pse, given = random(2, 4, 5, 7, seed=3), random(5, 7, seed=4) > 0.5
    given[2] = True  # no key is left: the result is zero
    how = {} if mode is None else dict(
        atten_mask=given, sparse_mode=mode, pre_tockens=2, next_tockens=1)
    hidden = (lambda *_: False) if mode is None else (
        lambda _, i, j: bool(RULES[mode](given, i, j)))
    parts = [x.double().numpy() for x in (q, k, v, pse)]
    wanted = numpy.stack([attention(*(x[b] for x in parts[:3]), hidden, 0.4, parts[3][b]) for b in range(2)])
    layouts = {
        "BNSD": lambda x: x,
        "BSND": lambda x: x.transpose(1, 2),
        "BSH": lambda x: x.transpose(1, 2).flatten(2),
        "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2),
    }
    for layout, form in layouts.items():
        got = op("npu_fusion_attention", form(q), form(k), form(v), 4, layout, pse=pse, scale=0.4, **how)
        close(got[0], form(torch.tensor(wanted)).numpy())
        assert got[1].shape == got[2].shape == (2, 4, 5, 8) and len(got) == 7


def test_attention_of_sequences():
    q, k, v = random(8, 4, 6), random(9, 2, 6, seed=1), random(9, 2, 3, seed=2)
    mask = torch.ones(2048, 2048).triu(1).bool()
    got = op("npu_fusion_attention", q, k, v, 4, "TND", atten_mask=mask, sparse_mode=3,
             actual_seq_qlen=[3, 8], actual_seq_kvlen=[4, 9])[0]
    n = [x.double().numpy().transpose(1, 0, 2) for x in (q, k, v)]
    zero = numpy.zeros((4, 5, 5))
    first = attention(n[0][:, :3], n[1][:, :4], n[2][:, :4], lambda _, i, j: j - 4 > i - 3, 1, zero)
    second = attention(n[0][:, 3:], n[1][:, 4:], n[2][:, 4:], lambda _, i, j: j > i, 1, zero)
    close(got, numpy.concatenate((first, second), 1).transpose(1, 0, 2))
    with pytest.raises(NotImplementedError, match="scaled_dot_product_attention"):
        op("npu_fusion_attention", q, k, v, 4, "TND", sparse_mode=6)


def test_dropout_masks_and_choices():
    torch.manual_seed(0)
    mask = op("npu_dropout_gen_mask", (100, 300), p=0.3, dtype=torch.float32, device="cpu")
    assert mask.dtype == torch.uint8 and mask.numel() == (30000 + 127) // 128 * 16
    bits = numpy.unpackbits(mask.numpy(), bitorder="little")
    assert abs(bits.mean() - 0.7) < 0.02
    x = random(100, 300).requires_grad_()
    y, same = op("npu_dropout_do_mask", x, mask, 0.3)
    factors = bits[:30000].reshape(100, 300) / 0.7
    close(y, x.detach().numpy() * factors)
    y.sum().backward()
    close(x.grad, factors)
    assert same is mask
    x = torch.rand(6, 5) > 0.5
    count = int(x.sum())
    places, real = op("npu_random_choice_with_mask", x, count + 3)
    assert places.dtype == torch.int32 and real.tolist() == [True] * count + [False] * 3
    assert sorted(map(tuple, places[:count].tolist())) == list(map(tuple, x.nonzero().tolist()))
    some, real = op("npu_random_choice_with_mask", x, 4, 2**40 + 1, -2)
    assert all(x[tuple(place)] for place in some.tolist()) and real.tolist() == [True] * 4
    assert torch.equal(some, op("npu_random_choice_with_mask", x, 4, 2**40 + 1, -2)[0])


def overlap(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    return width * height


def area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


def test_overlaps():
    one, two = boxes_of(6), boxes_of(4, seed=5)
    a, b = one.tolist(), two.tolist()
    wanted = [[overlap(x, y) / (area(x) + area(y) - overlap(x, y)) for x in a] for y in b]
    close(op("npu_iou", one, two), wanted)
    close(op("npu_ptiou", one, two, 1), [[overlap(x, y) / area(y) for x in a] for y in b])
    giou, diou, ciou = [], [], []
    for x, y in zip(a, boxes_of(6, seed=7).tolist()):
        union = area(x) + area(y) - overlap(x, y)
        around = min(x[0], y[0]), min(x[1], y[1]), max(x[2], y[2]), max(x[3], y[3])
        apart = (x[0] + x[2] - y[0] - y[2]) ** 2 / 4 + (x[1] + x[3] - y[1] - y[3]) ** 2 / 4
        diagonal = (around[2] - around[0]) ** 2 + (around[3] - around[1]) ** 2
        angles = [math.atan((box[2] - box[0]) / (box[3] - box[1])) for box in (x, y)]
        v = 4 / math.pi**2 * (angles[1] - angles[0]) ** 2
        iou = overlap(x, y) / union
        giou.append([iou - 1 + union / area(around)])
        diou.append(iou - apart / diagonal)
        ciou.append(diou[-1] - v * v / (1 - iou + v))
    corners = one.T, boxes_of(6, seed=7).T
    centers = [torch.cat(((x[:2] + x[2:]) / 2, x[2:] - x[:2])) for x in corners]
    for pair, trans in ((corners, False), (centers, True)):
        close(op("npu_giou", *pair, trans=trans, is_cross=False, mode=0), giou, 1e-4)
        close(op("npu_diou", *pair, trans), [diou], 1e-4)
        close(op("npu_ciou", *pair, trans, False, 0), [ciou], 1e-4)
    with pytest.raises(NotImplementedError, match="is_cross=False"):
        op("npu_ciou", *corners, is_cross=True)


def test_boxes_are_encoded_and_decoded():
    """The examples of torch_npu's documentation; decoding undoes encoding."""
    anchors = torch.tensor([[1.0, 2, 3, 4], [3, 4, 5, 6]])
    found = op("npu_bounding_box_encode", anchors, torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 6]]),
               0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2)
    close(found, [[13.3333, 13.3333, 0, 0], [13.3333, 6.6667, 0, -5.4931]], 1e-4)
    found = op("npu_bounding_box_decode", anchors, torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 6]]),
               0, 0, 0, 0, 1, 1, 1, 1, (10, 10), 0.1)
    close(found, [[2.5, 6.5, 9, 9], [9, 9, 9, 9]])
    rois, wanted = boxes_of(5), boxes_of(5, seed=3)
    numbers = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    deltas = op("npu_bounding_box_encode", rois, wanted, *numbers)
    both = torch.cat((deltas, deltas), 1)
    found = op("npu_bounding_box_decode", rois, both, *numbers, (100, 100), 16 / 1000)
    close(found, torch.cat((wanted, wanted), 1).numpy(), 1e-4)


def best(boxes, scores, threshold):
    kept = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        x = boxes[i]
        if all(overlap(x, boxes[j]) <= threshold * (area(x) + area(boxes[j]) - overlap(x, boxes[j]))
               for j in kept):
            kept.append(i)
    return kept


def test_suppression():
    boxes, scores = boxes_of(40), random(40).sigmoid()
    rows, places, mask = op("npu_nms_with_mask", torch.cat((boxes, scores[:, None]), 1), 0.3)
    kept = best(boxes.tolist(), scores.tolist(), 0.3)
    assert mask.nonzero().flatten().tolist() == sorted(kept) and 1 < len(kept) < 40
    assert places.tolist() == list(range(40)) and torch.equal(rows[:, :4], boxes)


@pytest.mark.parametrize("shared", [True, False])
def test_suppression_of_batches(shared):
    classes = 3
    boxes = torch.stack([boxes_of(20, seed) for seed in range(2 * (1 if shared else classes))])
    boxes = boxes.view(2, -1, 20, 4).transpose(1, 2)
    scores = random(2, 20, classes).sigmoid()
    scores[1] *= 0.55
    got = op("npu_batch_nms", boxes, scores, 0.4, 0.3, 4, 8)
    for b in range(2):
        rows = []
        for kind in range(classes):
            of = boxes[b, :, 0 if shared else kind].tolist()
            points = scores[b, :, kind].tolist()
            able = [i for i in range(20) if points[i] > 0.4]
            kept = best([of[i] for i in able], [points[i] for i in able], 0.3)[:4]
            rows += [(points[able[i]], kind, of[able[i]]) for i in kept]
        rows = sorted(rows, reverse=True)[:8]
        count = int(got[3][b])
        assert count == len(rows) and got[3].dtype == torch.int32
        close(got[0][b, :count], [row[2] for row in rows])
        close(got[1][b, :count], [row[0] for row in rows])
        assert got[2][b, :count].tolist() == [row[1] for row in rows]
        assert not any(each[b, count:].any() for each in got[:3])
    assert got[3][0] == 8


def interpolated(image, y, x):
    """The interpolation of RoI align: zero at more than one position outside; the edges repeat."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    low, left = int(y), int(x)
    high, right = min(low + 1, height - 1), min(left + 1, width - 1)
    a, b = y - low, x - left
    top = (1 - b) * image[low, left] + b * image[low, right]
    return (1 - a) * top + a * ((1 - b) * image[high, left] + b * image[high, right])


@pytest.mark.parametrize("mode, samples", [(0, 2), (1, 2), (2, 0), (3, 3), (0, 0), (1, 0)])
def test_regions(mode, samples):
    features = random(2, 3, 9, 11, dtype=torch.float64)
    rois = torch.tensor([[0, 1.0, 2, 30, 25], [1, -9, -3, 12, 8], [1, 20, 20, 20.5, 20.25], [0, 90, 90, 99, 99.0]])
    scale, height, width = 0.25, 2, 3
    wanted = numpy.zeros((4, 3, height, width))
    for n, (image, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (corner * scale for corner in corners)
        if mode == 1:
            x2, y2 = x2 + scale, y2 + scale
        if mode < 2:
            x2, y2 = max(x2, x1 + 1), max(y2, y1 + 1)
        else:
            x1, y1, x2, y2 = x1 - 0.5, y1 - 0.5, x2 - 0.5, y2 - 0.5
        down, across = (y2 - y1) / height, (x2 - x1) / width
        rows, columns = samples or math.ceil(down), samples or math.ceil(across)
        for c, p, q in numpy.ndindex(3, height, width):
            wanted[n, c, p, q] = numpy.mean([
                interpolated(features[int(image), c].numpy(), y1 + down * (p + (i + 0.5) / rows),
                             x1 + across * (q + (j + 0.5) / columns))
                for i in range(rows) for j in range(columns)])
    got = op("npu_roi_align", features, rois, scale, height, width, samples, mode)
    close(got, wanted)
    assert not got[3].any() and got[0].any()
    gradient = random(*got.shape, seed=1, dtype=torch.float64)
    how = () if mode == 1 else (mode,)
    back = op("npu_roi_alignbk", gradient, rois, features.shape, width, height, scale, samples, *how)
    assert math.isclose((gradient * got).sum(), (back * features).sum(), rel_tol=1e-9)  # the operator is linear
    none = op("npu_roi_align", features, rois[:0], scale, height, width, samples, mode)
    assert none.shape == (0, 3, height, width)
    assert not op("npu_roi_alignbk", none, rois[:0], features.shape, width, height, scale, samples).any()


def test_deformable_convolution():
    batch, groups, down, across = 2, 2, 3, 2
    x, weight, bias = random(batch, 4, 7, 8), random(5, 4, down, across, seed=1), random(5, seed=2)
    stride, padding, dilation = (1, 1, 2, 1), (1, 2, 2, 1), (1, 1, 1, 2)
    rows, columns = (7 + 3 - 3) // 2 + 1, 8 + 3 - 3 + 1
    offset = random(batch, groups * down * across * 3, rows, columns, seed=3)
    got, samples = op("npu_deformable_conv2d", x, weight, offset, bias, [across, down], stride, padding,
                      dilation, deformable_groups=groups)
    n, taps = x.numpy(), groups * down * across
    wanted = numpy.zeros((batch, 4, rows * down, columns * across))
    for b, c, r, s, i, j in numpy.ndindex(batch, 4, rows, columns, down, across):
        tap = (c // 2 * down + i) * across + j
        shift_x, shift_y, factor = (offset[b, k * taps + tap, r, s].item() for k in range(3))
        y, z = r * 2 - 1 + i + shift_y, s - 2 + 2 * j + shift_x
        low, left, total = math.floor(y), math.floor(z), 0.0
        for row, column in ((low, left), (low, left + 1), (low + 1, left), (low + 1, left + 1)):
            if 0 <= row < 7 and 0 <= column < 8:
                total += (1 - abs(y - row)) * (1 - abs(z - column)) * n[b, c, row, column]
        wanted[b, c, r * down + i, s * across + j] = factor * total
    close(samples, wanted, 1e-4)
    blocks = wanted.reshape(batch, 4, rows, down, columns, across)
    close(got, numpy.einsum("bcrisj,ocij->bors", blocks, weight.numpy()) + bias.numpy()[:, None, None], 1e-4)


def test_sums_are_normalized():
    x, y, gamma = random(2, 3, 4), random(2, 3, 4, seed=1), random(4, seed=2)
    n = (x + y).numpy()
    root = numpy.sqrt((n**2).mean(-1, keepdims=True) + 1e-3)
    got = op("npu_add_rms_norm", x, y, gamma, 1e-3)
    for each, wanted in zip(got, (n / root * gamma.numpy(), 1 / root, n)):
        close(each, wanted)
    wanted = [[0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in row] for row in n[0].tolist()]
    close(op("npu_gelu", (x + y)[0]), wanted)
    wanted = 0.5 * n * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (n + 0.044715 * n**3)))
    close(op("npu_gelu", x + y, approximate="tanh"), wanted)


def test_tokens_of_experts():
    """The example of torch_npu's documentation, and a whole mixture with its weights."""
    tokens = torch.arange(1.0, 5.0)[:, None].expand(4, 2).half()
    experts = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 0]], dtype=torch.int32)
    rows, places = op("npu_moe_token_permute", tokens, experts)
    assert rows[:, 1].tolist() == [1, 2, 3, 4, 1, 2, 3, 4] and rows.dtype == torch.half
    assert places.tolist() == [0, 4, 5, 1, 2, 6, 7, 3] and places.dtype == torch.int32
    assert torch.equal(op("npu_moe_token_permute", tokens, experts, num_out_tokens=4)[0], rows[:4])
    factors = torch.tensor([1.0] * 4 + [10.0] * 2 + [100.0] * 2)[:, None]  # by the expert of each row
    weights = torch.tensor([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    got = op("npu_moe_token_unpermute", rows * factors.half(), places, probs=weights)
    assert got[:, 0].tolist() == [1 + 20, 2 * (30 + 4), 3 * (5 + 600), 4 * (700 + 8)] and got.dtype == torch.half
    left_out = op("npu_moe_token_unpermute", rows[:4], places, weights)
    assert left_out[:, 0].tolist() == [1, 8, 15, 32]
    of_one, places = op("npu_moe_token_permute", tokens, torch.tensor([2, 0, 1, 0]))
    assert of_one[:, 0].tolist() == [2, 4, 3, 1]
    assert torch.equal(op("npu_moe_token_unpermute", of_one, places), tokens)
    with pytest.raises(NotImplementedError, match="padded_mode=False"):
        op("npu_moe_token_permute", tokens, experts, padded_mode=True)


ROIS = torch.tensor([[0, 0.0, 0, 14, 11], [0, 4, 5, 30, 9]])
EXPERTS = torch.tensor([[1, 0], [0, 2], [2, 1]])
GRADIENTS = {
    "npu_confusion_transpose": (lambda x: op("npu_confusion_transpose", x, (1, 0, 2), (4, 6), True), (2, 4, 3)),
    "npu_pad": (lambda x: op("npu_pad", x, (1, 0, 2, 1)), (2, 3)),
    "npu_indexing": (lambda x: op("npu_indexing", x, [0, 1], [3, 4], [2, 1]), (3, 4)),
    "npu_max": (lambda x: op("npu_max", x, 1)[0], (3, 4)),
    "npu_bmmV2": (lambda x, y: op("npu_bmmV2", x, y, [3, 2]), (2, 3, 4), (2, 4, 2)),
    "npu_swiglu": (lambda x: op("npu_swiglu", x), (3, 4)),
    "npu_rms_norm": (lambda x, g: op("npu_rms_norm", x, g)[0], (3, 4), (4,)),
    "npu_add_rms_norm": (lambda x, y, g: op("npu_add_rms_norm", x, y, g)[::2], (3, 4), (3, 4), (4,)),
    "moe_tokens": (
        lambda x, p: op("npu_moe_token_unpermute", *op("npu_moe_token_permute", x, EXPERTS), p), (3, 4), (3, 2)),
    "npu_group_norm_silu": (lambda x, w, b: op("npu_group_norm_silu", x, w, b, 2)[0], (2, 4, 3), (4,), (4,)),
    "npu_rotary_mul": (lambda *x: op("npu_rotary_mul", *x), (2, 1, 3, 4), (1, 1, 3, 4), (1, 1, 3, 4)),
    "cross_entropy": (lambda x, y: op("npu_softmax_cross_entropy_with_logits", x, y), (3, 4), (3, 4)),
    "npu_scaled_masked_softmax": (
        lambda x: op("npu_scaled_masked_softmax", x, None, 0.5, True), (1, 1, 3, 3)),
    "npu_fusion_attention": (
        lambda q, k, v, p: op("npu_fusion_attention", q, k, v, 2, "BSH", pse=p, sparse_mode=3, scale=0.5,
                              atten_mask=torch.ones(9, 9))[0], (1, 4, 4), (1, 3, 2), (1, 3, 2), (2, 4, 3)),
    "npu_giou": (lambda x, y: op("npu_giou", x.abs(), y.abs(), True), (4, 3), (4, 3)),
    "npu_ciou": (lambda x, y: op("npu_ciou", x.abs(), y.abs(), True), (4, 3), (4, 3)),
    "npu_roi_align": (lambda x: op("npu_roi_align", x, ROIS, 0.5, 2, 2, 2, 2), (1, 2, 6, 7)),
    "npu_deformable_conv2d": (
        lambda x, w, o: op("npu_deformable_conv2d", x, w, o, None, [2, 2], [1] * 4, [0] * 4)[0],
        (1, 2, 4, 4), (1, 2, 2, 2), (1, 12, 3, 3)),
}


def test_the_class_of_roi_align():
    """On a ramp, each bin is the value at its middle."""
    ramp = torch.arange(16.0).expand(1, 1, 16, 16)
    rois = torch.tensor([[0, 4.0, 4.0, 20.0, 12.0]])
    for aligned, first in ((True, 2.5), (False, 3.0)):
        y = _detection.ROIAlign((2, 4), 0.5, 2, aligned=aligned)(ramp.half(), rois)
        close(y, [[[[first + 2 * column for column in range(4)]] * 2]])


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    function, *shapes = GRADIENTS[name]
    inputs = [random(*shape, seed=i, dtype=torch.float64) for i, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(function, [x.requires_grad_() for x in inputs])


def test_what_is_not_here_says_so():
    for name, use in (
        ("npu_get_float_status", "npu_check_overflow"), ("npu_lstm", "torch.nn.LSTM"), ("PSROIPool", "torchvision"),
        ("npu_mm_all_reduce_base", "all_reduce"), ("npu_apply_adam_w", "NpuFusedAdamW"),
    ):
        with pytest.raises(NotImplementedError, match=f"{name} is not here; use .*{use}"):
            missing(name)(torch.zeros(8))
    with pytest.raises(AttributeError, match="hccl has no 'npu_xyz' among Ascend's names"):
        missing("npu_xyz")
