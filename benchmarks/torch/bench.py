"""Compares the PyTorch backend with Gloo in one run.

    torchrun --nproc-per-node 2 benchmarks/torch/bench.py [--rounds 7] [--only DDP] [--overhead]

Both have a process group on the same ranks and take turns, batch by batch. A batch is a loop in
which each rank rewrites its input and runs the operation, without barriers. The figure is the time
of this loop less the time of rewriting alone, on the slowest rank. The table has medians over the
rounds. Results are checked after every batch.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import hccl.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from two_hosts import MODEL

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB = 1024, 1024 * 1024
BACKENDS = ("hccl", "gloo")


class Case:
    """A row of the table. `rewrite` fills `input` with fresh data, and `run(group)` runs the
    operation on it."""

    def __init__(self, name, size, bar, input, result, run, expected):
        self.name, self.size, self.bar = name, size, bar
        self.input, self.result, self.run, self.expected = input, result, run, expected
        self.source = input.clone()

    def batch(self, group, count):
        """Returns the seconds of one operation."""
        begin = time.perf_counter()
        for _ in range(count):
            self.input.copy_(self.source)
            self.run(group)
        middle = time.perf_counter()
        assert torch.equal(self.result, self.expected), f"{self.name}: wrong result"
        rewriting = time.perf_counter()
        for _ in range(count):
            self.input.copy_(self.source)
        end = time.perf_counter()
        return max((middle - begin) - (end - rewriting), 1e-9) / count


def allreduce(heap, size, asynchronous=False):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensor = hccl.torch.empty(size // 4) if heap else torch.empty(size // 4)
    tensor.copy_(torch.arange(size // 4) % 1000 + rank)
    expected = (torch.arange(size // 4) % 1000 * ranks + ranks * (ranks - 1) // 2).float()

    def run(group):
        work = dist.all_reduce(tensor, group=group, async_op=asynchronous)
        if asynchronous:
            work.wait()

    if ranks > 2:
        bar = 10 if size <= 64 * KIB else 6
    elif heap:
        bar = 10 if size <= 64 * KIB else 15 if size <= MIB else 7
    else:
        bar = 8 if size <= 64 * KIB else 3
    name = f"all_reduce, {'heap' if heap else 'ordinary'}{', async' if asynchronous else ''}"
    bar = bar if (heap or ranks == 2) and not asynchronous else None
    return Case(name, size, bar, tensor, tensor, run, expected)


def move(name, size):
    """Returns a case of a collective with blocks for each rank; `size` is the size of the larger
    buffer."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = size // 4 // ranks
    part = torch.arange(count, dtype=torch.float32) % 1000
    own, all_parts = part + rank, torch.cat([part + each for each in range(ranks)])
    if name == "broadcast":
        tensor = torch.full((size // 4,), float(rank))
        run = lambda group: dist.broadcast(tensor, 0, group=group)
        return Case(name, size, 4, tensor, tensor, run, torch.zeros(size // 4))
    if name == "all_gather_single":
        input, output, expected = own, torch.empty(ranks * count), all_parts
    elif name == "reduce_scatter_single":
        input, output = all_parts + rank, torch.empty(count)
        expected = own * ranks + ranks * (ranks - 1) // 2
    else:
        input, output = all_parts + 10 * rank, torch.empty(ranks * count)
        expected = torch.cat([own + 10 * each for each in range(ranks)])
    call = getattr(dist, name)
    return Case(name, size, 4, input, output, lambda group: call(output, input, group=group), expected)


class Gradients(torch.nn.Module):
    """A network with ResNet-50's parameters and almost no computation. Backward makes the gradients from the last to
    the first."""

    def __init__(self):
        super().__init__()
        gradients = json.loads(MODEL.read_text())["gradients"]  # from the last parameter to the first
        self.all = torch.nn.ParameterList([torch.zeros(each["elements"]) for each in reversed(gradients)])

    def forward(self, scale):
        total = scale
        for parameter in self.all:
            total = total + (parameter * scale).sum()
        return total


class Ddp:
    """Times a step and a no_sync step of the network under each backend."""

    name, size = "DDP step less no_sync step, ResNet-50", 4 * 25_557_032

    def __init__(self, groups):
        self.bar = 3 if dist.get_world_size() == 2 else 5
        self.models = {
            name: DistributedDataParallel(Gradients(), process_group=group, gradient_as_bucket_view=True)
            for name, group in groups.items()
        }
        self.expected = sum(range(1, dist.get_world_size() + 1)) / dist.get_world_size()

    def step(self, model):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        dist.barrier()
        begin = time.perf_counter()
        model(torch.tensor(float(dist.get_rank() + 1))).backward()
        return time.perf_counter() - begin

    def measure(self, name):
        """Returns the seconds of a step, and of a step without communication."""
        model = self.models[name]
        whole = self.step(model)
        for parameter in model.parameters():
            assert (parameter.grad == self.expected).all(), "DDP: wrong gradients"
        with model.no_sync():
            return whole, self.step(model)


def slowest(seconds):
    """Replaces each entry by the largest of all ranks."""
    tensor = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def time_case(case, groups, rounds):
    found = {name: [] for name in BACKENDS}
    counts = {}
    for name in BACKENDS:  # warm up, and find the number of operations in 50 ms
        case.batch(groups[name], 3)
        (once,) = slowest([case.batch(groups[name], 5)])
        counts[name] = max(3, min(2000, int(0.05 / once)))
    for _ in range(rounds):
        for name in BACKENDS:
            dist.barrier()
            found[name] += slowest([case.batch(groups[name], counts[name])])
    return [statistics.median(found[name]) for name in BACKENDS]


def time_ddp(ddp, rounds):
    found = {name: [] for name in BACKENDS}
    for turn in range(rounds + 3):
        for name in BACKENDS:
            times = slowest(ddp.measure(name))
            if turn >= 3:  # DDP makes its buckets anew after the first step
                found[name].append(times)
    return [
        max(statistics.median(step) - statistics.median(alone), 1e-9)
        for step, alone in (zip(*found[name]) for name in BACKENDS)
    ]


def overhead(rounds):
    """Returns the microseconds of 64 bytes in C++: for the backend's allreduce, and for the
    library's call."""
    from torch.utils import cpp_extension

    package = pathlib.Path(hccl.__file__).parent
    build = lambda: cpp_extension.load(
        name="hccl_torch_overhead",
        sources=[HERE / "overhead.cc"],
        extra_include_paths=[str(package / "include")],
        extra_cflags=["-O2"],
        extra_ldflags=[str(next(package.glob("libhccl.so.*"))), f"-Wl,-rpath,{package}"],
    )
    if dist.get_rank() == 0:
        build()  # the other ranks find the built module
    dist.barrier()
    module = build()
    group = dist.new_group(backend="hccl")
    backend = group._get_backend(torch.device("cpu"))
    return module.measure(backend, hccl.torch.empty(16).zero_(), rounds)


def human(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--overhead", action="store_true", help="the backend over the C API, in C++")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    show = lambda line: first and print(line, flush=True)
    if options.overhead:
        backend, library = overhead(options.rounds)
        show(f"64 B, {dist.get_world_size()} ranks: Backend::allreduce {backend:.2f} us, HcclAllReduce {library:.2f} us")
        dist.destroy_process_group()
        return

    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    sizes = [64, KIB, 16 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
    rows = [lambda s=s, heap=heap: allreduce(heap, s) for heap in (True, False) for s in sizes]
    rows += [lambda s=s: allreduce(True, s, asynchronous=True) for s in (64, 64 * KIB, MIB)]
    moves = ["all_gather_single", "reduce_scatter_single", "all_to_all_single", "broadcast"]
    rows += [lambda s=s, name=name: move(name, s) for name in moves for s in (KIB, MIB)]
    rows.append(lambda: Ddp(groups))

    show(f"{dist.get_world_size()} ranks, torch {torch.__version__}; times in us\n")
    show("| operation | bytes | hccl | gloo | gloo / hccl | bar |\n|---|---|---|---|---|---|")
    for make in rows:
        case = make()
        if options.only not in case.name:
            continue
        is_ddp = isinstance(case, Ddp)
        ours, theirs = time_ddp(case, 2 * options.rounds) if is_ddp else time_case(case, groups, options.rounds)
        bar = "" if case.bar is None else f"{case.bar}{'' if theirs / ours >= case.bar else ' (missed)'}"
        show(
            f"| {case.name} | {human(case.size)} | {ours * 1e6:.1f} | {theirs * 1e6:.1f} "
            f"| {theirs / ours:.1f} | {bar} |"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
