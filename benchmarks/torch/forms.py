"""Times the backend's form in Python and its compiled form, in turn, on two ranks.

    python benchmarks/torch/forms.py        the median microseconds of an operation
"""

import os
import statistics
import subprocess
import sys
import time

SIZES = [64, 4096, 65536, 1 << 20, 16 << 20]
RUNS = 3


def measure():
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("hccl")
    for size in SIZES:
        tensor, out = torch.ones(size // 4), torch.ones(size // 4 * 2)
        calls = {
            "all_reduce": lambda t=tensor: dist.all_reduce(t, dist.ReduceOp.MAX),
            "async": lambda t=tensor: dist.all_reduce(t, dist.ReduceOp.MAX, async_op=True).wait(),
            "all_gather": lambda t=tensor, o=out: dist.all_gather_into_tensor(o, t),
        }
        for name, call in calls.items():
            times = []
            for _ in range(max(20, min(2000, (32 << 20) // size))):
                begin = time.perf_counter()
                call()
                times.append((time.perf_counter() - begin) * 1e6)
            if dist.get_rank() == 0:
                print(name, size, statistics.median(times))
    dist.destroy_process_group()


def main():
    found = {}
    for _ in range(RUNS):
        for form in ("native", "python"):
            start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
            environment = {**os.environ, "HCCL_TORCH_FORM": form, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [*start, __file__, "rank"], env=environment, stdout=-1, text=True, check=True
            )
            for line in done.stdout.splitlines():
                name, size, value = line.split()
                found.setdefault((name, int(size)), {}).setdefault(form, []).append(float(value))
    for (name, size), times in found.items():
        native, python = (min(times[form]) for form in ("native", "python"))
        print(f"{name:10} {size:9} B  {native:9.1f} {python:9.1f}  +{python - native:.1f} us, {python / native:.2f}")


if __name__ == "__main__":
    measure() if "rank" in sys.argv else main()
