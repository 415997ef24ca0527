#!/usr/bin/env python3
"""Times fused optimizers against torch's forms: python benchmarks/torch/optim.py [--threads 1] [--case NAME ...]

All forms of a case run in turn, round after round; figures are medians of microseconds for a step, of the
thread's CPU time with one thread (other programs disturb it little), of wall time with more. "limit" is
the memory traffic of the step (streams.c, over one span).
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch

from hccl.torch import optim
from two_hosts import MODEL


def mobilenet():
    """Returns the shapes of MobileNetV1's parameters, for 10 classes: 83 tensors."""
    widths = [32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024]
    shapes = [(32, 3, 3, 3), (32,), (32,)]
    for a, b in zip(widths, widths[1:]):
        shapes += [(a, 1, 3, 3), (a,), (a,), (b, a, 1, 1), (b,), (b,)]
    return shapes + [(10, 1024), (10,)]


def resnet50():
    """Returns the sizes of ResNet-50's parameters: 161 tensors, 25.6 M elements."""
    gradients = json.loads(MODEL.read_text())["gradients"]  # from the last parameter to the first
    return [(each["elements"],) for each in reversed(gradients)]


def bert_base():
    """Returns the shapes of BERT-base's parameters: 199 tensors, 109.5 M elements."""
    h = 768
    shapes = [(30522, h), (512, h), (2, h), (h,), (h,)]
    for _ in range(12):
        shapes += [(h, h), (h,)] * 4 + [
            (h,),
            (h,),
            (4 * h, h),
            (4 * h,),
            (h, 4 * h),
            (h,),
            (h,),
            (h,),
        ]
    return shapes + [(h, h), (h,)]


CASES = {
    "2000x64": lambda: [(64,)] * 2000,
    "mobilenet": mobilenet,
    "resnet50": resnet50,
    "bert": bert_base,
}
RULES = {
    "SGD": (optim.FusedSGD, torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    "Adam": (optim.FusedAdam, torch.optim.Adam, {"lr": 1e-3}),
    "AdamW": (optim.FusedAdamW, torch.optim.AdamW, {"lr": 1e-3}),
}


def make(shapes):
    parameters = [torch.randn(shape).requires_grad_() for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * 1e-3
    return parameters


def build_streams():
    source = pathlib.Path(__file__).with_name("streams.c")
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/streams.so"
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, str(source), "-o", library], check=True)
        return ctypes.CDLL(library)


STREAMS = build_streams()


def limit(rule, parameters):
    """Returns a function with the memory traffic of a step by the rule."""
    threads, numel = torch.get_num_threads(), sum(each.numel() for each in parameters)
    spans = [torch.zeros(numel) for _ in range(3 if rule == "SGD" else 4)]  # g, p, m, v
    function = STREAMS.two_streams if rule == "SGD" else STREAMS.three_streams
    pointers = [ctypes.c_void_p(span.data_ptr()) for span in spans]

    def stream(spans=spans):  # the default argument keeps the tensors alive
        STREAMS.omp_set_num_threads(threads)
        function(ctypes.c_long(numel), *pointers)

    return stream


def forms(rule, parameters):
    """Returns the functions to time, by name. All of them step the same parameters."""
    own, other, options = RULES[rule]
    made = {
        "ours": own(parameters, **options),
        "fused": other(parameters, fused=True, **options),
        "foreach": other(parameters, foreach=True, **options),
        "loop": other(parameters, foreach=False, **options),
    }
    functions = {name: optimizer.step for name, optimizer in made.items()}
    return functions | {"limit": limit(rule, parameters)}


def whole_update(parameters):
    """Returns functions that unscale, clip, step and zero: with hccl in one call, with torch in
    four."""
    own, other = optim.FusedAdamW(parameters), torch.optim.AdamW(parameters, fused=True)
    scalers = [torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**9) for _ in "12"]
    for scaler in scalers:
        scaler.scale(torch.tensor(1.0))

    def ours():
        own.step(max_norm=1.0, scaler=scalers[0], zero_grad=True)
        scalers[0].update()

    def torchs():
        scalers[1].unscale_(other)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        scalers[1].step(other)
        scalers[1].update()
        other.zero_grad(set_to_none=False)

    return {"ours": ours, "fused": torchs}


class Gradients(torch.autograd.Function):
    """A backward pass that only makes new gradients."""

    @staticmethod
    def forward(context, *parameters):
        context.shapes = [each.shape for each in parameters]
        return torch.zeros(())

    @staticmethod
    def backward(context, _):
        return tuple(torch.full(shape, 1e-3) for shape in context.shapes)


def cycle(parameters):
    """Returns functions that clear gradients, run backward and step. Cleared gradients are None."""
    made = {
        "ours": optim.FusedAdamW(parameters),
        "fused": torch.optim.AdamW(parameters, fused=True),
        "foreach": torch.optim.AdamW(parameters, foreach=True),
        "loop": torch.optim.AdamW(parameters, foreach=False),
    }

    def run(optimizer):
        optimizer.zero_grad()
        Gradients.apply(*parameters).backward()
        optimizer.step()

    return {name: lambda each=optimizer: run(each) for name, optimizer in made.items()}


def clock(threads):
    return time.thread_time if threads == 1 else time.perf_counter


def rounds(functions, threads, seconds):
    """Returns medians in microseconds."""
    times = {name: [] for name in functions}
    now = clock(threads)
    for function in functions.values():
        function()
        function()
    end = time.monotonic() + seconds
    slow = {"foreach", "loop"}  # timed in every fourth round only
    while time.monotonic() < end or len(times["ours"]) < 9:
        for name, function in functions.items():
            if name in slow and len(times["ours"]) % 4 != 1:
                continue
            begin = now()
            function()
            times[name].append((now() - begin) * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


WHOLE = {"whole AdamW update": whole_update, "AdamW cycle": cycle}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each line")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} cores; microseconds a step")
    print(
        f"{'case':10} {'rule':18} {'threads':>7} {'ours':>9} {'fused':>9} {'foreach':>9} "
        f"{'loop':>9} {'limit':>9} {'fused/ours':>10} {'best/ours':>9} {'ours/limit':>10}"
    )
    for threads in options.threads:
        torch.set_num_threads(threads)
        for case in options.case:
            for rule in [*RULES, *WHOLE]:
                parameters = make(CASES[case]())
                one = WHOLE[rule](parameters) if rule in WHOLE else forms(rule, parameters)
                found = rounds(one, threads, options.seconds)
                bytes_limit = found.pop("limit", float("nan"))
                best = min(value for name, value in found.items() if name != "ours")
                cells = [
                    f"{found.get(name, float('nan')):9.0f}"
                    for name in ("ours", "fused", "foreach", "loop")
                ]
                print(
                    f"{case:10} {rule:18} {threads:7} {' '.join(cells)} {bytes_limit:9.0f} "
                    f"{found['fused'] / found['ours']:10.2f} {best / found['ours']:9.2f} "
                    f"{found['ours'] / bytes_limit:10.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
