#!/usr/bin/env python3
"""forward.py [--gbit 1]: times a training step of ResNet-50 between two hosts, in order and with overlap_forward.

Two ranks run in network namespaces; each line carries --gbit Gbit/s in each direction (needs root).
Two forms of CombinedGradients take turns in the same processes, some steps at a time: the automatic
plan with steps by segment, and overlap_forward. A step lasts from the return of one
optimizer.step() to the next. The planner (hccl-plan) makes the prediction from the traces of
training in order. Run it with a Python that has torch and the package."""

import argparse
import json
import os
import pathlib
import statistics
import time

import two_hosts

RATE = 1e-4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gbit", type=float, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8, help="of each in a round; two do not count")
    parser.add_argument("--learn", type=int, default=40, help="steps before, for the plans")
    parser.add_argument("--hccl-plan", default="build/dev/split/plan_tool/hccl-plan")
    two_hosts.add_options(parser)
    return parser.parse_args()


# ---- a rank ----


def network(model, compute):
    """Makes a module for each parameter, with the model's times in forward and backward."""
    import torch

    owed = 0.0  # compute time that is too short for a sleep

    def work(seconds):
        nonlocal owed
        owed += seconds
        if owed < 1e-3:
            return
        begin = time.perf_counter()
        if compute == "sleep":
            time.sleep(owed)
        while time.perf_counter() < begin + owed:
            pass
        owed -= time.perf_counter() - begin

    class Pass(torch.autograd.Function):
        @staticmethod
        def forward(context, x, parameter, layer):
            context.layer = layer
            work(layer.forward_seconds)
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            work(context.layer.backward_seconds)
            return gradient, context.layer.gradient, None

    class Layer(torch.nn.Module):
        def __init__(self, elements, forward_seconds, backward_seconds):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(elements))
            self.gradient = torch.ones(elements)
            self.forward_seconds, self.backward_seconds = forward_seconds, backward_seconds

        def forward(self, x):
            return Pass.apply(x, self.weight, self)

    forward, gradients = model["forward_ms"], model["gradients"]
    backward = gradients[-1]["ready_ms"] - forward
    before, layers = forward, []
    for each in gradients:
        took = max(0.0, each["ready_ms"] - before)
        layers.append(Layer(each["elements"], 1e-3 * took * forward / backward, 1e-3 * took))
        before = max(before, each["ready_ms"])
    return torch.nn.Sequential(*reversed(layers))


class Contender:
    def __init__(self, model, compute, overlap):
        import hccl.torch
        import torch

        self.model = network(model, compute)
        self.optimizer = hccl.torch.optim.FusedSGD(self.model.parameters(), RATE, momentum=0.9)
        self.gradients = hccl.torch.CombinedGradients(
            self.model, overlap_forward=self.optimizer if overlap else None
        )
        if not overlap:
            self.gradients.register_segment_hook(self.optimizer.step_segment)
        self.x = torch.ones(1, requires_grad=True)
        self.steps = 0

    def run(self, steps):
        """Returns the times at which each step() returned."""
        ends = []
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(self.x).sum().backward()
            self.optimizer.step()
            ends.append(time.perf_counter())
        self.gradients.synchronize()
        self.steps += steps
        return ends

    def check(self):
        import torch

        one = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([one], RATE, momentum=0.9)
        for _ in range(self.steps):
            one.grad = torch.ones(1)
            optimizer.step()
        for parameter in self.model.parameters():
            assert (parameter == one).all(), "the weights are not those of the plain order"


def rank(given):
    import hccl.torch.optim
    import torch
    import torch.distributed as dist

    dist.init_process_group("hccl")
    model = json.loads(two_hosts.MODEL.read_text())
    contenders = {
        name: Contender(model, given.compute, name == "newest first")
        for name in ("in order", "newest first")
    }
    contenders["newest first"].run(25)
    contenders["in order"].run(given.learn)
    times = {name: [] for name in contenders}
    for _ in range(given.rounds):
        for name, each in contenders.items():
            dist.barrier()
            ends = each.run(given.steps)
            slowest = torch.tensor([b - a for a, b in zip(ends[1:], ends[2:])])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times[name] += slowest.tolist()
    for each in contenders.values():
        each.check()
    contenders["in order"].gradients.write_trace(f"{os.environ['RESULT']}/{dist.get_rank()}.pb")
    if dist.get_rank() == 0:
        sizes = {name: len(each.gradients.segments) for name, each in contenders.items()}
        found = {"times": times, "messages": sizes}
        pathlib.Path(os.environ["RESULT"], "times.json").write_text(json.dumps(found))
    dist.barrier()
    del contenders, each
    dist.destroy_process_group()


# ---- all of them ----


def case(given, gbit):
    found, plan = two_hosts.run_case(given, gbit)
    return {**found, "gbit": gbit, "predicted": plan["what_if"]["newest_first"]}


def show(found):
    medians = {name: 1e3 * statistics.median(each) for name, each in found["times"].items()}
    in_order, newest = medians["in order"], medians["newest first"]
    predicted = 1e3 * (found["predicted"]["in_order"] - found["predicted"]["late"])
    print(f"\n{found['gbit']:g} Gbit/s")
    for name, median in medians.items():
        spread = [1e3 * each for each in (min(found["times"][name]), max(found["times"][name]))]
        print(
            f"  {name:14} {median:8.1f} ms  ({spread[0]:.1f} to {spread[1]:.1f}), "
            f"{found['messages'][name]} messages"
        )
    print(
        f"  gain {in_order - newest:.1f} ms, {100 * (1 - newest / in_order):.1f} %; "
        f"predicted {predicted:.1f} ms, {100 * predicted / in_order:.1f} %",
        flush=True,
    )


if __name__ == "__main__":
    two_hosts.run(arguments(), rank, case, show)
