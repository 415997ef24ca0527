"""PyTorch's flight recorder and the operations of groups."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from conftest import TIMEOUT, kill_self, on_ranks
from torch._C import _distributed_c10d

HAS_HOOK = hasattr(_distributed_c10d, "FlightRecorderHook")  # since PyTorch 2.14
TORCH_ATTACHES = hasattr(dist.distributed_c10d, "_maybe_attach_flight_recorder")  # since 2.15


def recorded():
    """Returns the names of the recorded operations, their groups and the sizes of their inputs."""
    options = {"backend": "hccl"} if TORCH_ATTACHES else {}
    trace = json.loads(_distributed_c10d._dump_fr_trace_json(**options))
    return [
        (e["profiling_name"].split(":")[1].replace("_", ""), e["process_group"][0], e["input_sizes"])
        for e in trace.get("entries", [])
    ]


def work(rank):
    pair = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(2, 3), group=pair, async_op=True).wait()
    dist.barrier()
    names = dist.group.WORLD.group_name, pair.group_name
    dist.destroy_process_group(pair)
    dist.all_reduce(torch.ones(5))
    return names, recorded()


@pytest.mark.parametrize("variable", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_recorder_has_the_operations(monkeypatch, variable):
    monkeypatch.setenv(variable, "100")
    for (world, pair), entries in on_ranks(2, work):
        whole = [
            ("allreduce", world, [[4]]),
            ("allreduce", pair, [[2, 3]]),
            ("barrier", world, []),
            ("allreduce", world, [[5]]),
        ]
        assert entries == (whole if HAS_HOOK else [])


def test_a_group_of_the_living_is_recorded(monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")

    def shrinks(rank):
        if rank == 1:
            kill_self()
        dist.shrink_group([])
        dist.all_reduce(torch.ones(7))
        return [sizes for _, _, sizes in recorded()]

    sizes = on_ranks(2, shrinks, killed=(1,))[0]
    assert sizes == ([[[7]]] if HAS_HOOK else [])


def test_nothing_is_recorded_unasked(monkeypatch):
    if not TORCH_ATTACHES:  # torch's recorder is on unless it is switched off
        assert [entries for _, entries in on_ranks(2, work)] == [[], []]
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert [entries for _, entries in on_ranks(2, work)] == [[], []]


def test_a_program_ends_without_destroying_its_group():
    program = """
import torch.distributed as dist, torch
dist.init_process_group("hccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
print("said: done", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env={**os.environ, "TORCH_FR_BUFFER_SIZE": "10"},
    )
    assert done.returncode == 0 and "said: done" in done.stdout, done.stderr
