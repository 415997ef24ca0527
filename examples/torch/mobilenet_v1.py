#!/usr/bin/env python3
"""Trains MobileNetV1 on handwritten digits at 32x32: python examples/torch/mobilenet_v1.py
--optimizer fused

The network has the real layers (83 tensors, 3.2 million numbers for 10 classes); only the input is
smaller. Prints the times of an iteration's parts, and the accuracy. --trace writes a time line for
chrome://tracing. --optimizer torch uses torch.optim.SGD instead. --level trains at a level of apex's
amp: python -m hccl.torch examples/torch/mobilenet_v1.py --level O2. --small trains the network of
digits.py instead.
"""

import argparse
import contextlib
import pathlib
import statistics
import time

import torch
from torch import nn

DIGITS = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv"
TEST_IMAGES = 297
# (channels, stride) of the depthwise separable layers
LAYERS = [
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
]
PHASES = ("forward", "backward", "step")


def mobilenet_v1(classes: int, multiplier: float = 1.0) -> nn.Sequential:
    """Howard et al., 2017, with the width multiplier."""

    def convolution(inner: int, outer: int, size: int, stride: int, groups: int = 1) -> list:
        return [
            nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
        ]

    width = int(32 * multiplier)
    layers = convolution(1, width, 3, 2)
    for channels, stride in LAYERS:
        channels = int(channels * multiplier)
        layers += convolution(width, width, 3, stride, groups=width)  # depthwise
        layers += convolution(width, channels, 1, 1)  # pointwise
        width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def digits() -> tuple:
    """Returns ((images, labels) for training, (images, labels) for the test); images [N, 1, 32,
    32]."""
    rows = [[int(word) for word in line.split(",")] for line in DIGITS.read_text().splitlines()]
    table = torch.tensor(rows)[
        torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    ]
    images = nn.functional.interpolate(
        table[:, :64].float().view(-1, 1, 8, 8) / 8 - 1,
        size=32,
        mode="bilinear",
        align_corners=False,
    )
    labels = table[:, 64]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (
        images[:TEST_IMAGES],
        labels[:TEST_IMAGES],
    )


def make_optimizer(options: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    numbers = {"lr": options.lr, "momentum": 0.9, "weight_decay": 1e-4}
    if options.optimizer == "torch":
        return torch.optim.SGD(model.parameters(), **numbers)
    from hccl.torch import optim

    return optim.FusedSGD(model.parameters(), **numbers)


def train_epoch(model, optimizer, images, labels, batch: int, scaled, schedule) -> list:
    """Returns the milliseconds of each phase of each iteration. scaled: the context in which a
    loss's backward runs."""
    times = []
    for chosen in torch.randperm(len(images)).split(batch):
        marks = [time.perf_counter()]
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        marks.append(time.perf_counter())
        optimizer.zero_grad()
        with scaled(loss, optimizer) as of_backward:
            of_backward.backward()
        marks.append(time.perf_counter())
        optimizer.step()
        marks.append(time.perf_counter())
        schedule.step()
        times.append([1e3 * (b - a) for a, b in zip(marks, marks[1:])])
    return times


@torch.no_grad()
def accuracy(model, images, labels) -> float:
    model.eval()
    right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def report(times: list, batch: int) -> None:
    """Prints the time line of a median iteration, to scale."""
    medians = [statistics.median(phase) for phase in zip(*times)]
    total = sum(medians)
    for phase, value in zip(PHASES, medians):
        bar = "#" * max(1, round(60 * value / total))
        print(f"  {phase:8} {value:8.2f} ms  {bar}")
    print(f"  {1e3 * batch / total:.0f} images a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", choices=["torch", "fused"], default="fused")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--decay", action="store_true", help="lr falls to a hundredth")
    parser.add_argument("--width", type=float, default=1.0, help="the multiplier of channels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="the network and digits of digits.py")
    parser.add_argument("--level", help="apex's O0 to O3, with python -m hccl.torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trace", help="a file for the time line of one epoch more, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    model, (train, test) = mobilenet_v1(10, options.width), digits()
    if options.small:
        from digits import Network, load

        model, data = Network(), load()  # the same weights for each seed
        train, test = data[:2], data[2:]
        torch.manual_seed(options.seed)
    optimizer = make_optimizer(options, model)
    scaled = lambda loss, optimizer: contextlib.nullcontext(loss)  # noqa: E731
    if options.level:
        from apex import amp

        model, optimizer = amp.initialize(model, optimizer, opt_level=options.level)
        scaled = amp.scale_loss
    steps = options.epochs * -(-len(train[0]) // options.batch)
    end = 0.01 if options.decay else 1.0
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, end, max(1, steps))
    times = []
    for epoch in range(1, options.epochs + 1):
        times += train_epoch(model, optimizer, *train, options.batch, scaled, schedule)
        print(f"epoch {epoch}: accuracy {accuracy(model, *test):.3f}", flush=True)
    print(f"{type(optimizer).__name__}, an iteration of {options.batch} images (median):")
    report(times, options.batch)
    if options.trace:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            train_epoch(model, optimizer, *(part[:256] for part in train), options.batch, scaled, schedule)
        profile.export_chrome_trace(options.trace)


if __name__ == "__main__":
    main()
