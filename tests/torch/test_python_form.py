"""The Python form of the backend, compared with results that each test computes."""

import datetime
import json
import pathlib
import shutil
import sys
import threading
import time
import types

import pytest
import torch
import torch.distributed as dist
from conftest import HERE, TIMEOUT, kill_self, on_ranks, run
from hccl.torch import _module
from torch.nn.parallel import DistributedDataParallel

SIZE = 2
OPS = dist.ReduceOp
TYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.complex64),
]


pytestmark = [
    pytest.mark.parametrize("form", ["python"], indirect=True),
    pytest.mark.usefixtures("form"),
]


def values(rank, dtype=torch.float32, count=6):
    """Small numbers, so that each type holds the exact result."""
    return ((torch.arange(count) + rank) % 3).to(dtype)


def of_all(dtype=torch.float32, count=6):
    return [values(rank, dtype, count) for rank in range(SIZE)]


def equal(one, other):
    assert one.dtype == other.dtype and torch.equal(one, other), (one, other)


def test_it_is_the_form_in_python():
    def work(rank):
        group = dist.distributed_c10d._get_default_group()
        assert _module.backend_of(group) is group
        return type(group).__module__

    assert on_ranks(SIZE, work) == ["hccl.torch._python"] * SIZE


@pytest.mark.parametrize("wait", [True, False])
def test_reductions_of_all_types(wait):
    def work(rank):
        for dtype in TYPES:
            first, *others = of_all(dtype)
            for op, combine in {
                OPS.SUM: torch.logical_or if dtype is torch.bool else torch.add,
                OPS.PRODUCT: torch.logical_and if dtype is torch.bool else torch.mul,
                OPS.MAX: None if dtype.is_complex else torch.maximum,
                OPS.MIN: None if dtype.is_complex else torch.minimum,
                OPS.BOR: None if dtype.is_floating_point or dtype.is_complex else torch.bitwise_or,
            }.items():
                if combine is None or (op == OPS.PRODUCT and dtype.is_complex):
                    continue
                expected = first
                for other in others:
                    expected = combine(expected, other)
                tensor = values(rank, dtype)
                done = dist.all_reduce(tensor, op, async_op=not wait)
                assert wait or done.wait()
                equal(tensor, expected)
                tensor = values(rank, dtype)
                dist.reduce(tensor, 1, op)
                equal(tensor, expected if rank == 1 else values(rank, dtype))
                part = torch.empty(3, dtype=dtype)
                dist.reduce_scatter_tensor(part, values(rank, dtype), op)
                equal(part, expected[3 * rank : 3 * rank + 3])
        tensor = values(rank, torch.float32)
        dist.all_reduce(tensor, OPS.AVG)
        equal(tensor, sum(of_all()) / SIZE)
        tensor = values(rank, torch.float32)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
        equal(tensor, sum(of_all()) / 2)
        with pytest.raises(RuntimeError, match="ReduceOp.BAND"):
            dist.all_reduce(torch.ones(2), OPS.BAND)

    on_ranks(SIZE, work)


def test_all_operations_that_move():
    def work(rank):
        other = 1 - rank
        tensor = values(rank)
        dist.broadcast(tensor, 1)
        equal(tensor, values(1))
        lists = [torch.empty(6) for _ in range(SIZE)]
        dist.all_gather(lists, values(rank))
        equal(torch.stack(lists), torch.stack(of_all()))
        uneven = [torch.empty(2 + each) for each in range(SIZE)]
        dist.all_gather(uneven, values(rank, count=2 + rank))
        for each in range(SIZE):
            equal(uneven[each], values(each, count=2 + each))
        whole = torch.empty(12)
        dist.all_gather_into_tensor(whole, values(rank))
        equal(whole, torch.cat(of_all()))
        lists = [torch.empty(6) for _ in range(SIZE)]
        dist.gather(values(rank), lists if rank == 1 else None, dst=1)
        if rank == 1:
            equal(torch.stack(lists), torch.stack(of_all()))
        tensor = torch.empty(6)
        dist.scatter(tensor, of_all() if rank == 0 else None, src=0)
        equal(tensor, values(rank))
        part = torch.empty(3)
        dist.reduce_scatter(part, list(values(rank).chunk(2)))
        equal(part, sum(of_all())[3 * rank : 3 * rank + 3])
        part = torch.empty(2 + 2 * rank)
        dist.reduce_scatter(part, list(values(rank).split([2, 4])))
        equal(part, sum(of_all()).split([2, 4])[rank])
        tensor = torch.empty(6)
        dist.all_to_all_single(tensor, values(rank))
        equal(tensor, torch.cat([each[3 * rank : 3 * rank + 3] for each in of_all()]))
        tensor = torch.empty(2 + 2 * rank if rank == 0 else 8)
        take = [2, 2] if rank == 0 else [4, 4]
        tensor = torch.empty(sum(take))
        dist.all_to_all_single(tensor, values(rank), take, [2, 4])
        equal(tensor, torch.cat([each.split([2, 4])[rank] for each in of_all()]))
        outputs = [torch.empty(3) for _ in range(SIZE)]
        dist.all_to_all(outputs, list(values(rank).chunk(2)))
        equal(torch.cat(outputs), torch.cat([each[3 * rank : 3 * rank + 3] for each in of_all()]))
        received = [torch.empty(6), torch.empty(6)]
        works = [dist.isend(values(rank), other, tag=7), dist.isend(values(rank) + 1, other, tag=8)]
        works += [dist.irecv(received[tag - 7], other, tag=tag) for tag in (8, 7)]
        for each in works:
            each.wait()
        equal(received[0], values(other))
        equal(received[1], values(other) + 1)
        if rank == 0:
            dist.send(values(0), 1)
        else:
            assert dist.recv(received[0]) == 0
            equal(received[0], values(0))
        dist.barrier()
        # Tensors with other memory layouts.
        tensor = values(rank).view(2, 3).t()
        dist.all_reduce(tensor)
        equal(tensor, sum(of_all()).view(2, 3).t())
        tensor = torch.empty(3, 2).t()
        dist.broadcast(tensor if rank else values(0).view(2, 3), 0)
        equal(tensor, values(0).view(2, 3)) if rank else None
        with dist._coalescing_manager():
            pair = [values(rank), values(rank) * 2]
            for each in pair:
                dist.all_reduce(each)
        equal(pair[1], sum(of_all()) * 2)
        group = dist.new_group([1, 0])
        tensor = values(rank)
        dist.all_reduce(tensor, group=group)
        equal(tensor, sum(of_all()))
        alone = [dist.new_group([each]) for each in range(SIZE)][rank]
        dist.all_reduce(tensor, group=alone)
        equal(tensor, sum(of_all()))

    on_ranks(SIZE, work)


def test_ranks_of_both_forms_work_together(monkeypatch):
    """They call the same operations of the library for all but lists whose sizes differ."""

    def work(rank):
        monkeypatch.setenv("HCCL_TORCH_FORM", ["native", "python"][rank])
        _module.why_python.cache_clear()
        dist.group.WORLD = dist.new_group(backend="hccl")
        total, moved = values(rank), torch.empty(6)
        dist.all_reduce(total)
        equal(total, sum(of_all()))
        dist.all_reduce(total, OPS.AVG)
        equal(total, sum(of_all()))
        dist.all_to_all_single(moved, values(rank))
        equal(moved, torch.cat([each[3 * rank : 3 * rank + 3] for each in of_all()]))
        lists = [torch.empty(6) for _ in range(SIZE)]
        dist.all_gather(lists, values(rank))
        equal(torch.stack(lists), torch.stack(of_all()))
        dist.gather(values(rank), lists if rank == 1 else None, dst=1)
        equal(lists[0], values(0))
        dist.scatter(moved, of_all() if rank == 0 else None, src=0)
        equal(moved, values(rank))
        part = torch.empty(3)
        dist.reduce_scatter(part, list(values(rank).chunk(2)))
        equal(part, sum(of_all())[3 * rank : 3 * rank + 3])
        odd = torch.ones(2).to(torch.float8_e8m0fnu)
        dist.broadcast(odd, 0)
        dist.send(values(0), 1) if rank == 0 else dist.recv(moved, 0)
        equal(moved, values(0))
        dist.barrier()

    on_ranks(SIZE, work, backend="gloo")


def test_objects():
    def work(rank):
        everything = [None] * SIZE
        dist.all_gather_object(everything, {"rank": rank})
        assert everything == [{"rank": each} for each in range(SIZE)]
        said = [f"from {rank}"]
        dist.broadcast_object_list(said, 1)
        assert said == ["from 1"]
        out = [None]
        dist.scatter_object_list(out, ["a", "b"] if rank == 0 else None, 0)
        assert out == ["ab"[rank]]
        told = [None] * SIZE
        dist.gather_object(rank, told if rank == 0 else None, 0)
        assert rank or told == [0, 1]

    on_ranks(SIZE, work)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def batch(rank):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))


def trained(wrapped, inputs, steps=3):
    """Trains a few steps and returns the losses."""
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        loss = sum(wrapped(each).square().mean() for each in inputs) / len(inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", ["ddp", "ddp_compressed", "fsdp2"])
def test_training_equals_that_of_one_process(kind):
    def work(rank):
        if kind == "fsdp2":
            from torch.distributed.fsdp import fully_shard

            wrapped = fully_shard(model())
        else:
            wrapped = DistributedDataParallel(model())
        if kind == "ddp_compressed":
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

            wrapped.register_comm_hook(None, fp16_compress_hook)
        return trained(wrapped, [batch(rank)])

    mean = [sum(pair) / SIZE for pair in zip(*on_ranks(SIZE, work))]
    expected = trained(model(), [batch(rank) for rank in range(SIZE)])
    assert mean == pytest.approx(expected, rel=1e-2 if "compressed" in kind else 1e-5)


def test_dtensor():
    def work(rank):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        dist.Backend.default_device_backend_map["cpu"] = "hccl"
        mesh = init_device_mesh("cpu", (SIZE,))
        one, two = torch.arange(16.0).view(4, 4), torch.arange(16.0).view(4, 4) + 1
        rows = distribute_tensor(one, mesh, [Shard(0)])
        columns = distribute_tensor(two, mesh, [Shard(1)])
        equal((rows @ distribute_tensor(two, mesh, [Replicate()])).full_tensor(), one @ two)
        equal((rows.redistribute(mesh, [Shard(1)])).full_tensor(), one)
        equal((distribute_tensor(one, mesh, [Shard(1)]) @ distribute_tensor(two, mesh, [Shard(0)])).full_tensor(), one @ two)
        equal(columns.sum().full_tensor(), two.sum())

    on_ranks(SIZE, work)


def test_asynchronous_operations_keep_their_order():
    def work(rank):
        tensor, works = torch.zeros(1000), []
        for step in range(50):
            works.append(dist.all_reduce(tensor, async_op=True))  # 0, then each step doubles
            if step == 0:
                works[0].wait()
                tensor += 1
        dist.all_reduce(tensor, OPS.MAX)  # runs after all of them
        assert tensor[0] == 2.0**49 and all(each.is_completed() for each in works)
        after = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        mine = torch.ones(3)

        def further(future):
            dist.all_reduce(mine)  # a call inside a callback
            return future.value()[0] + mine[0]

        assert after.then(further).wait()[0] == 4

    on_ranks(SIZE, work)


def test_views_of_negative_values():
    def work(rank):
        negative = torch.tensor([1 + 1j * (rank + 1)]).conj().imag  # its memory contains rank + 1
        lists = [torch.zeros(1), torch.zeros(1)]
        dist.all_gather(lists, negative)
        dist.all_reduce(negative, OPS.MAX)
        return [each.item() for each in [*lists, negative]]

    assert on_ranks(SIZE, work) == [[-1.0, -2.0, -1.0]] * SIZE


def test_a_message_is_in_its_tensor_when_it_is_completed_and_is_copied_once():
    def work(rank):
        if rank == 0:
            return dist.send(torch.ones(2), 1)
        strided = torch.zeros(4)[::2]
        message = dist.irecv(strided, 0)
        end = time.monotonic() + TIMEOUT
        while not message.is_completed() and time.monotonic() < end:
            time.sleep(0.001)
        received = strided.tolist()
        strided.fill_(5)
        message.wait()
        return received, strided.tolist()

    assert on_ranks(SIZE, work)[1] == ([1.0, 1.0], [5.0, 5.0])


class Ending:
    """Replaces an operation's mutex. When the operation has just ended, it calls get_future()."""

    def __init__(self, operation):
        self.operation, self.lock, self.futures = operation, threading.Lock(), []

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        if not self.futures:
            self.futures.append(None)
            self.futures.append(self.operation.get_future())


def test_a_future_may_be_asked_for_as_the_operation_ends():
    from hccl.torch import _python_queue

    queue = types.SimpleNamespace(call=lambda run, *_: run())
    operation = _python_queue._Operation(queue, "sum", lambda: None, [torch.ones(2)], 1.0)
    operation._mutex = Ending(operation)
    operation.perform()
    assert operation.is_completed()
    equal(operation._mutex.futures[1].wait()[0], torch.ones(2))


def test_a_killed_rank_is_named():
    def work(rank):
        net = DistributedDataParallel(model())
        net(batch(rank)).sum().backward()
        dist.barrier()
        if rank == 1:
            kill_self()
        with pytest.raises(dist.DistBackendError, match="rank 1.*died"):
            dist.all_reduce(torch.ones(4))
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            dist.all_reduce(torch.ones(4), async_op=True).wait()
        with pytest.raises(RuntimeError, match="rank 1"):
            net(batch(rank)).sum().backward()
        dist.destroy_process_group()
        return "told"

    assert on_ranks(3, work, killed=[1]) == ["told", None, "told"]


def test_limits_and_refusals_are_told_to_all():
    def work(rank):
        group = dist.new_group(timeout=datetime.timedelta(seconds=2))
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match=r"Timed out .*: 1"):
                dist.barrier(group)
        dist.barrier()
        other = dist.new_group()
        with pytest.raises(RuntimeError, match="sparse" if rank else "rank 1.*sparse"):
            dist.all_reduce(torch.eye(2).to_sparse() if rank else torch.eye(2), group=other)

    on_ranks(SIZE, work)


def test_programs_end_with_their_own_codes(tmp_path):
    """Programs keep their own codes also after Ctrl-C, which rank 0 gets while it waits for rank 1."""
    done = run([sys.executable, HERE / "ranks" / "python_ends.py", tmp_path])
    ends = json.loads(done.stdout)
    assert ends == {
        **dict.fromkeys(["sync", "async", "message", "backward"], ["KeyboardInterrupt", "told"]),
        **dict.fromkeys(["nobody_waits", "callback"], [0, 0]),
        "exception": [1, 1],
        "code": [3, 3],
    }, done.stderr


CHOICE = """
import warnings, torch, torch.distributed as dist
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
    dist.new_group()
print([str(each.message) for each in told if "slower" in str(each.message)])
print(type(dist.group.WORLD).__module__)
import hccl.torch
for use in [lambda: hccl.torch.DistributedDataParallel(torch.nn.Linear(2, 2)), lambda: hccl.torch.optim]:
    try:
        use()
    except RuntimeError as error:
        print(error)
tensor = hccl.torch.empty(3, 4)
dist.all_reduce(tensor)
"""


@pytest.mark.parametrize("cmake, reason", [("", "install cmake"), ("cmake", "compiler: g++ -m64")])
def test_without_a_compiled_module_it_says_once_that_it_is_slower(cmake, reason, tmp_path):
    """Uses a copy of the package without a built module, and a PATH without compilers, or a CMake that fails."""
    import hccl

    package = pathlib.Path(hccl.__file__).parent
    for folder, left_out in [("", ["torch"]), ("torch", ["_built", "ready.tar.xz"])]:
        (tmp_path / "hccl" / folder).mkdir()
        for each in (package / folder).iterdir():
            if each.suffix == ".py":
                shutil.copy(each, tmp_path / "hccl" / folder)
            elif each.name not in left_out:
                (tmp_path / "hccl" / folder / each.name).symlink_to(each)
    environment = dict(HCCL_TORCH_FORM="", PATH="/nowhere", PYTHONPATH=str(tmp_path))
    environment.update(XDG_CACHE_HOME=str(tmp_path), CXX="", CMAKE_EXECUTABLE="")
    if cmake:
        program = tmp_path / cmake
        program.write_text('#!/bin/sh\necho "compiler: $CXX"\nexit 1\n')
        program.chmod(0o755)
        environment.update(CMAKE_EXECUTABLE=str(program), CXX=f"{shutil.which('g++')} -m64")
    done = run([sys.executable, "-c", CHOICE], **environment)
    assert done.returncode == 0, done.stderr
    told, form, *_ = done.stdout.splitlines()
    assert told.count("slower") == 1 and reason in told.replace("/usr/bin/", ""), done.stdout
    assert form == "hccl.torch._python"
    for name in ("DistributedDataParallel", "optim"):
        assert f"hccl.torch.{name} needs the compiled backend" in done.stdout
