"""The errors that users see when something fails, and how groups end."""

import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from conftest import TIMEOUT, in_both_forms, kill_self, on_ranks
from torch.nn.parallel import DistributedDataParallel
from waits import until_it_sleeps

LIMIT = datetime.timedelta(seconds=3)  # of an operation, and of the joining of a new group


def failure_of(operation):
    """Returns the text of the DistBackendError that the operation raises."""
    with pytest.raises(dist.DistBackendError) as caught:
        operation()
    return str(caught.value)


def meeting(ranks):
    """Returns a barrier for forked ranks that does not use the library."""
    return processes.get_context("fork").Barrier(ranks)


def test_a_rank_killed_in_ddp_backward():
    def work(rank):
        model = DistributedDataParallel(torch.nn.Linear(100, 100))
        model(torch.ones(2, 100)).sum().backward()
        dist.barrier()
        if rank == 1:
            model.module.weight.register_hook(lambda _: kill_self())
        loss = model(torch.ones(2, 100)).sum()
        text = failure_of(loss.backward)
        dist.destroy_process_group()
        return text

    results = on_ranks(4, work, killed=[1])
    for rank in [0, 2, 3]:
        assert "rank 1" in results[rank] and "died" in results[rank], results[rank]


def test_calls_that_differ_have_both_in_the_text():
    def shapes(rank):
        return dist.all_reduce(torch.ones(3 + rank))

    def types(rank):
        return dist.all_reduce(torch.ones(4, dtype=[torch.float32, torch.int32][rank]))

    def operations(rank):
        tensor = torch.ones(4)
        return dist.all_reduce(tensor) if rank == 0 else dist.broadcast(tensor, 0)

    def reductions(rank):
        op = [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank]
        return dist.all_reduce(torch.ones(4), op=op)

    def roots(rank):
        return dist.broadcast(torch.ones(4), rank)

    def work(rank):
        texts = []
        for differ in [shapes, types, operations, reductions, roots]:
            group = dist.new_group()
            outer, dist.group.WORLD = dist.group.WORLD, group
            texts.append(failure_of(lambda differ=differ: differ(rank)))
            dist.group.WORLD = outer
        return texts

    words = [
        ("count 3,", "count 4,"),
        ("fp32", "int32"),
        ("all_?reduce", "broadcast"),
        ("sum", "max"),
        ("root 0", "root 1"),
    ]
    for texts in on_ranks(2, work):
        for text, pair in zip(texts, words):
            for word in pair:
                assert re.search(word, text), text


def test_a_rank_that_skips_an_operation_is_named():
    over = meeting(2)

    def work(rank):
        begin = time.monotonic()
        text = failure_of(lambda: dist.all_reduce(torch.ones(4))) if rank == 0 else ""
        seconds = time.monotonic() - begin
        over.wait(TIMEOUT)
        dist.destroy_process_group()
        return text, seconds

    text, seconds = on_ranks(2, work, timeout=LIMIT)[0]
    assert re.search(" Timed out ", text) and "rank 1" in text
    assert seconds > 0.9 * LIMIT.total_seconds()


def test_limits_of_operations_and_groups():
    over = meeting(2)

    def work(rank):
        group = dist.new_group(timeout=LIMIT)
        text = failure_of(lambda: dist.barrier(group)) if rank == 0 else ""
        over.wait(TIMEOUT)
        return text

    assert " Timed out " in on_ranks(2, work)[0]


def test_a_limit_that_is_set_later():
    over = meeting(2)

    def work(rank):
        group = dist.new_group()  # its timeout is half an hour
        for each in (None, group):
            dist.distributed_c10d._set_pg_timeout(LIMIT, each)
        text = failure_of(lambda: dist.barrier(group)) if rank == 0 else ""
        over.wait(TIMEOUT)
        whole = failure_of(lambda: dist.barrier()) if rank == 0 else ""
        over.wait(TIMEOUT)
        dist.destroy_process_group()
        return text, whole

    assert all(" Timed out " in text for text in on_ranks(2, work)[0])


def test_abort_ends_an_operation_on_all_ranks():
    def work(rank):
        group = dist.distributed_c10d._get_default_group()
        if rank == 0:
            threading.Timer(0.3, group.abort).start()
            return failure_of(lambda: dist.all_reduce(torch.ones(4)))
        return failure_of(lambda: dist.recv(torch.ones(4), 2))

    def ended(rank):
        result = work(rank) if rank < 2 else failure_of(lambda: dist.recv(torch.ones(1), 0))
        dist.destroy_process_group()
        return result

    for text in on_ranks(3, ended):
        assert "abort" in text, text


@pytest.mark.parametrize("what", ["group", "world"])
def test_first_messages_do_not_need_a_rank_that_has_gone(what):
    """Messages open connections between the ranks that are still there. A message to a rank that has left fails at
    once, long before the group's timeout of half an hour."""
    gone, heard = meeting(3), meeting(3)

    def work(rank):
        group = dist.new_group() if what == "group" else None
        dist.barrier(group)
        text = ""
        if rank == 2:
            dist.destroy_process_group(group)
        gone.wait(TIMEOUT)
        if rank < 2:
            message, number = [dist.send, dist.recv][rank], torch.full((1,), float(5 + rank))
            message(number, 1 - rank, group=group)
            assert number == 5
            text = failure_of(lambda: message(number, 2, group=group))
        heard.wait(TIMEOUT)
        if dist.is_initialized():
            dist.destroy_process_group()
        return text

    for text in on_ranks(3, work)[:2]:
        assert re.search("rank 2 has (left|destroyed)", text), text


@pytest.mark.parametrize("first", [0, 1])
def test_groups_end_in_any_order(first):
    def work(rank):
        groups = [dist.new_group() for _ in range(3)]
        for group in groups:
            dist.all_reduce(torch.ones(4), group=group, async_op=True)
        if rank != first:
            time.sleep(0.3)
        order = groups if rank == first else reversed(groups)
        for group in order:
            dist.destroy_process_group(group)
        dist.destroy_process_group()
        with pytest.raises(ValueError, match="not been initialized"):
            dist.all_reduce(torch.ones(4))

    on_ranks(2, work)


def test_init_again_after_the_end():
    def work(rank):
        dist.destroy_process_group()
        for attempt in range(3):
            store = dist.FileStore(f"/tmp/hccl-again-{os.getppid()}-{attempt}", 2)
            dist.init_process_group("hccl", store=store, rank=rank, world_size=2)
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            assert tensor == 2
            dist.barrier()
            dist.destroy_process_group()

    on_ranks(2, work)


def test_a_forked_child_is_refused():
    def work(rank):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(torch.ones(1))
                text = "no error"
            except RuntimeError as error:
                text = str(error)
            os.write(writer, text.encode()[:4000])
            dist.destroy_process_group()  # does not affect the parent's group
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        dist.barrier()  # the parent's group is unharmed
        return os.read(reader, 4000).decode()

    for text in on_ranks(2, work):
        assert "made before a fork" in text, text


@pytest.mark.parametrize(
    "ending",
    [
        "",  # the program destroys nothing
        "sys.exit(3)",
        "raise KeyError('the users own')",
        "del group; gc.collect()",
    ],
)
def test_the_end_of_the_interpreter(ending, tmp_path):
    program = f"""
import gc, sys, torch, torch.distributed as dist
store = dist.FileStore("{tmp_path}/store", 2)
dist.init_process_group("hccl", store=store, rank=int(sys.argv[1]), world_size=2)
group = dist.new_group()
work = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
dist.barrier()
{ending}
"""
    ranks = [
        subprocess.Popen([sys.executable, "-c", program, str(rank)], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    expected = 3 if "exit" in ending else 1 if "raise" in ending else 0
    for rank in ranks:
        _, errors = rank.communicate(timeout=60)
        assert rank.returncode == expected, errors.decode()


def test_the_words_that_users_of_gloo_look_for():
    def work(rank):
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        one, two = torch.ones(1), torch.ones(2)
        options = dist.BroadcastOptions()
        options.rootRank = 7
        at_0, elsewhere, from_elsewhere = (
            dist.GatherOptions(),
            dist.GatherOptions(),
            dist.ScatterOptions(),
        )
        at_0.rootRank = 0
        elsewhere.rootRank = from_elsewhere.rootRank = 1 - rank
        for match, call in [
            ("invalid root rank: 7", lambda: backend.broadcast([one], options)),
            ("requires non-empty tensor list", lambda: backend.allreduce([])),
            ("invalid tensor size", lambda: backend.allreduce([one, two])),
            ("requires a single-element tensor list", lambda: backend.reduce([one, one])),
            ("must all have the same type", lambda: backend.allreduce_coalesced([one, one.int()])),
            ("unsupported layout", lambda: backend.allreduce_coalesced([one.to_sparse()])),
            (
                "invalid size of output tensor at index 0",
                lambda: backend.allgather_coalesced([[two], [one]], [one]),
            ),
            ("requires a single-element input", lambda: backend.gather([], [one, one], at_0)),
            (
                "requires empty output on non-root",
                lambda: backend.gather([[one]], [one], elsewhere),
            ),
            (
                "requires empty input on non-root",
                lambda: backend.scatter([one], [[one]], from_elsewhere),
            ),
            ("invalid output tensor list", lambda: backend.allgather([[one]], [one])),
            ("does not match world size", lambda: backend.alltoall([one], [one, one])),
            ("world_size times input", lambda: backend._allgather_base(one, one)),
            ("Tag must be nonnegative", lambda: backend.send([one], 0, -1)),
            ("only supports CPU tensors", lambda: backend.allreduce([one.to("meta")])),
        ]:
            with pytest.raises(RuntimeError, match=match):
                call()

    on_ranks(2, work)


def test_a_call_that_one_rank_refuses_is_told_to_the_others():
    """The refused call counts in the order of calls: the operations that were issued before it succeed."""
    truth = torch.ones(4, dtype=torch.bool)
    all_know = meeting(3)

    def work(rank):
        earlier = torch.ones(1000)
        works = [dist.all_reduce(earlier, async_op=True) for _ in range(3)]
        if rank == 0:
            with pytest.raises(RuntimeError, match="Number of tensor splits"):
                dist.all_to_all_single(torch.ones(4), torch.ones(4), [4], [4])
            heard = None
        else:
            heard = failure_of(lambda: dist.all_reduce(truth, async_op=True).wait())
        for each in works:
            each.wait()
        assert earlier[0] == 27
        return heard

    def ended(rank):
        heard = work(rank)
        all_know.wait(TIMEOUT)
        text = failure_of(dist.barrier)  # the group has failed on all ranks
        assert "was refused" in text, text
        dist.destroy_process_group()
        return heard

    results = on_ranks(3, ended)
    for text in results[1:]:
        for words in ["allreduce", "rank 0 was refused: ProcessGroupHccl::alltoall_base: Number of tensor splits"]:
            assert words in text, text


def test_a_call_that_all_ranks_refuse_does_no_harm():
    def work(rank):
        for _ in range(3):
            with pytest.raises(RuntimeError, match="integral dtype"):
                dist.all_reduce(torch.ones(4, dtype=torch.bool), op=dist.ReduceOp.AVG)
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        return tensor[0].item()

    assert on_ranks(2, work) == [2, 2]


JOINS = """
import sys, torch, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=False)
print("waiting", flush=True)
dist.init_process_group("hccl", store=store, rank=int(sys.argv[1]), world_size=2)
"""


def test_ctrl_c_ends_the_wait_for_a_rank_that_does_not_come():
    jobs = []
    for rank in range(2):  # each rank alone: one waits for the root, the other is the root
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        job = subprocess.Popen(
            [sys.executable, "-c", JOINS, str(rank), str(store.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        jobs.append((job, store))
    try:
        for job, store in jobs:
            assert job.stdout.readline() == "waiting\n"
        time.sleep(0.5)  # until both ranks wait
        for job, store in jobs:
            job.send_signal(signal.SIGINT)
        for job, store in jobs:
            _, errors = job.communicate(timeout=TIMEOUT)
            assert job.returncode != 0 and "KeyboardInterrupt" in errors, errors
    finally:
        for job, store in jobs:
            job.kill()


MEETS = """
import datetime, sys, time, torch, torch.distributed as dist
rank, seconds, late = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
time.sleep(late)
store, limit = dist.FileStore(sys.argv[4], 2), datetime.timedelta(seconds=seconds)
dist.init_process_group("hccl", store=store, rank=rank, world_size=2, timeout=limit)
tensor = torch.ones(1)
dist.all_reduce(tensor)
print("sum", tensor.item())
dist.destroy_process_group()
"""


def meet(folder, *ranks):
    """Runs ranks, each given by its number, its timeout and the seconds it comes late. They share a new store."""
    store = folder / f"store {len(list(folder.iterdir()))}"
    command, pipe = [sys.executable, "-c", MEETS], subprocess.PIPE
    environment = {**os.environ, "HCCL_CONNECT_TIMEOUT": "4"}  # not the limit for late ranks
    jobs = [
        subprocess.Popen(
            [*command, *map(str, rank), str(store)], stdout=pipe, stderr=pipe, text=True, env=environment
        )
        for rank in ranks
    ]
    return [job.communicate(timeout=TIMEOUT) for job in jobs]


@in_both_forms
def test_the_timeout_of_the_group_limits_the_wait_for_late_ranks(tmp_path):
    for output, errors in meet(tmp_path, (0, 60, 0), (1, 60, 7)):
        assert "sum 2.0" in output, errors
    for rank, other in [(0, 1), (1, 0)]:
        ((_, errors),) = meet(tmp_path, (rank, 1, 0))
        assert f"absent after 1 s, the timeout of the process group: rank {other} of 2" in errors, errors


@in_both_forms
def test_a_rank_beyond_the_world_is_refused(tmp_path):
    ((_, errors),) = meet(tmp_path, (2, 60, 0))
    assert "hccl: rank 2 of 2 ranks" in errors, errors


WAITS = """
import os, signal, sys, torch, torch.distributed as dist
what, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("hccl", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
loss = model(torch.ones(1, 10)).sum()
if what == "handler":
    signal.signal(signal.SIGINT, lambda *_: print("handled", flush=True))
    dist.new_group()
print("waiting", flush=True)
if rank == 1:
    sys.stdin.readline()
try:
    if what == "backward" and rank == 0:
        loss.backward()
    else:
        dist.all_reduce(torch.ones(4))
    print("reduced")
except dist.DistBackendError as error:
    print(error)
    raise
"""


def test_ctrl_c_ends_waits(tmp_path):
    """Ctrl-C also ends waits in PyTorch's own code. If the user's handler does not raise, the wait continues."""
    jobs = {}
    for what in ["all_reduce", "backward", "handler"]:
        (tmp_path / what).mkdir()
        for rank in range(2):
            jobs[what, rank] = subprocess.Popen(
                [sys.executable, "-c", WAITS, what, str(rank), tmp_path / what],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                # A shell that runs tests in the background makes them and their children ignore Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
    try:
        for job in jobs.values():
            assert job.stdout.readline() == "waiting\n"
        for what in ["all_reduce", "backward", "handler"]:
            until_it_sleeps(jobs[what, 0].pid)
        for what in ["all_reduce", "backward", "handler"]:
            jobs[what, 0].send_signal(signal.SIGINT)
        for what in ["all_reduce", "backward"]:
            output, errors = jobs[what, 0].communicate(timeout=TIMEOUT)
            assert jobs[what, 0].returncode != 0 and "KeyboardInterrupt" in errors, errors
            output, errors = jobs[what, 1].communicate("go on\n", timeout=TIMEOUT)
            assert "interrupted (Ctrl-C)" in output, output + errors
        jobs["handler", 1].communicate("go on\n", timeout=TIMEOUT)
        output, errors = jobs["handler", 0].communicate(timeout=TIMEOUT)
        assert "handled" in output and "reduced" in output, output + errors
    finally:
        for job in jobs.values():
            job.kill()
