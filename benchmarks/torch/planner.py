#!/usr/bin/env python3
"""planner.py [--gbit 1 10]: times a DDP step of ResNet-50 between two hosts, with and without the planner.

Two ranks run in network namespaces; each line carries --gbit Gbit/s in each direction (needs root). Contenders take
turns in the same processes: Gloo with DDP's own buckets, hccl with DDP's own buckets, and
hccl.torch.DistributedDataParallel. The planner (hccl-plan) computes the bound from the traces. Run it with a Python
that has torch and the package."""

import argparse
import json
import os
import pathlib
import statistics
import time

import two_hosts


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gbit", type=float, nargs="+", default=[1, 10])
    parser.add_argument("--rounds", type=int, default=15, help="that count")
    parser.add_argument(
        "--learn", type=int, default=80, help="iterations before, for the automatic plan"
    )
    parser.add_argument("--hccl-plan", default="build/release/split/plan_tool/hccl-plan")
    two_hosts.add_options(parser)
    return parser.parse_args()


# ---- a rank ----


def network(model, compute):
    """Makes a module whose backward completes the model's gradients at the times of the model."""
    import torch

    gradients = model["gradients"]
    before = [model["forward_ms"], *(each["ready_ms"] for each in gradients)]
    values = {}

    def work(milliseconds):
        end = time.perf_counter() + 1e-3 * milliseconds
        if compute == "sleep":
            time.sleep(max(0.0, 1e-3 * milliseconds))
        while time.perf_counter() < end:
            pass

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(context, x, parameter, index):
            context.index = index
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            index = context.index
            passed = 1e3 * (time.perf_counter() - values["begin"])
            ahead = (
                gradients[index]["ready_ms"] - passed
                if compute == "sleep"
                else (before[index + 1] - before[index])
            )
            if ahead > 0:
                work(ahead)
            return gradient, values[index], None

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [each["elements"] for each in gradients]
            names = [each["name"].replace(".", "_") for each in gradients]
            for name, size in reversed(list(zip(names, sizes))):  # in the order of forward
                self.register_parameter(name, torch.nn.Parameter(torch.zeros(size)))
            self.order = [getattr(self, name) for name in names]
            for index, size in enumerate(sizes):
                values[index] = torch.ones(size)

        def forward(self, x):
            values["begin"] = time.perf_counter()
            work(model["forward_ms"])
            for index in reversed(range(len(self.order))):
                x = Layer.apply(x, self.order[index], index)
            return x

    return Network()


def rank(given):
    import hccl.torch
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("hccl")
    gloo = dist.new_group(backend="gloo")
    model = json.loads(two_hosts.MODEL.read_text())
    contenders = {
        "compute only": DistributedDataParallel(network(model, given.compute)),
        "gloo, DDP": DistributedDataParallel(
            network(model, given.compute), process_group=gloo, gradient_as_bucket_view=True
        ),
        "hccl, DDP": DistributedDataParallel(
            network(model, given.compute), gradient_as_bucket_view=True
        ),
        "hccl, planned": hccl.torch.DistributedDataParallel(network(model, given.compute)),
    }
    x = torch.ones(1, requires_grad=True)

    def step(name):
        ddp = contenders[name]
        ddp.zero_grad(set_to_none=False)
        dist.barrier()
        begin = time.perf_counter()
        if name == "compute only":
            with ddp.no_sync():
                ddp(x).sum().backward()
        else:
            ddp(x).sum().backward()
        took = time.perf_counter() - begin
        wrong = [p for p in ddp.parameters() if not (p.grad == 1).all()]
        assert not wrong, f"{name}: {len(wrong)} gradients are not the average"
        return took

    for _ in range(given.learn):
        step("hccl, planned")
    for name in contenders:
        for _ in range(3):
            step(name)
    times = {name: [] for name in contenders}
    for _ in range(given.rounds):
        for name, each in times.items():
            slowest = torch.tensor([step(name)])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            each.append(slowest.item())
    planned = contenders["hccl, planned"]
    planned.write_trace(f"{os.environ['RESULT']}/{dist.get_rank()}.pb")
    if dist.get_rank() == 0:
        found = {"times": times, "segments": planned.segments}
        pathlib.Path(os.environ["RESULT"], "times.json").write_text(json.dumps(found))
    dist.barrier()
    del planned, contenders
    dist.destroy_process_group()


# ---- all of them ----


def case(given, gbit):
    found, plan = two_hosts.run_case(given, gbit)
    best = plan["best"]
    return {**found, "gbit": gbit, "bound": best["lower_bound"], "today": plan["today"], "best": best}


def show(found):
    medians = {name: 1e3 * statistics.median(each) for name, each in found["times"].items()}
    print(
        f"\n{found['gbit']:g} Gbit/s, {len(found['segments'])} segments; bound {1e3 * found['bound']:.0f} ms"
    )
    for name, median in medians.items():
        print(f"  {name:14} {median:8.1f} ms   exposed {median - medians['compute only']:7.1f} ms")
    planned = medians["hccl, planned"]
    print(
        f"  planned: {planned / (10 * found['bound']) - 100:+.1f} % of the bound, "
        f"{medians['gloo, DDP'] / planned:.2f} times as fast as Gloo",
        flush=True,
    )


if __name__ == "__main__":
    two_hosts.run(arguments(), rank, case, show)
