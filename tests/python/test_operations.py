"""Non-blocking operations, messages, groups, abort and limits: the behaviour that users rely on, and refused calls.
ranks/operations.py compares the results."""

import gc
import multiprocessing
import os
import threading
import time
import weakref

import hccl
import numpy as np
import pytest
from conftest import on_threads


class Watched(np.ndarray):
    """An array that weak references can follow."""


def watched(count):
    return np.zeros(count, np.float32).view(Watched)


def test_an_exchange_of_counts_begins_after_the_checks():
    def work(comm):
        array, good = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        if comm.rank == 0:
            for wrong in ((array, [1, 2]), (array[::2], [1, 1]), (array, [2, 2], None, np.zeros(4))):
                with pytest.raises(ValueError):
                    comm.alltoallv(*wrong)
        comm.alltoallv(array, [2, 2], out=good)
        if comm.rank == 0:
            with pytest.raises(ValueError, match="out: has 3 elements, not 4"):
                comm.alltoallv(array, [2, 2], out=good[:3])
        else:
            with pytest.raises(hccl.HcclError, match="alltoallv: out: has 3 elements"):
                comm.alltoallv(array, [2, 2])
        return good.tolist()

    assert on_threads(2, work) == [[0, 1, 0, 1], [2, 3, 2, 3]]


# ---- handles ----


def test_a_handle_is_done_when_all_ranks_have_called():
    begun = threading.Event()

    def work(comm):
        if comm.rank == 1:
            assert begun.wait(60)
        handle = comm.iallreduce(np.ones(1000, np.int32))
        if comm.rank == 0:
            assert not handle.done()
            assert repr(handle) == "<hccl.Handle iallreduce: under way>"
            before = time.monotonic()
            with pytest.raises(TimeoutError, match="iallreduce: not done after 0.05 s"):
                handle.wait(timeout=0.05)
            assert 0.05 <= time.monotonic() - before
            with pytest.raises(TimeoutError):
                handle.wait(timeout=0)
            begun.set()
        result = handle.wait()
        assert handle.done() and repr(handle) == "<hccl.Handle iallreduce: done>"
        assert handle.wait() is result is handle.wait(timeout=0)  # wait() may be called again
        return result

    for result in on_threads(2, work):
        np.testing.assert_array_equal(result, np.full(1000, 2))


def test_the_library_keeps_arrays_only_while_it_needs_them():
    begun = threading.Event()

    def work(comm):
        if comm.rank == 1:
            assert begun.wait(60)
            comm.recv(np.empty(1_000_000, np.float32), 0)
            comm.allreduce(np.ones(1000, np.float32))
            comm.barrier()
            return
        message, array = watched(1_000_000), watched(1000)
        alive = [weakref.ref(message), weakref.ref(array)]
        comm.isend(message, 1)  # no variable keeps its handle
        handle = comm.iallreduce(array)
        del message, array
        gc.collect()
        assert all(each() is not None for each in alive)
        begun.set()
        comm.barrier()
        assert (handle.wait() == 1).all()
        del handle
        comm.destroy()
        gc.collect()
        assert [each() for each in alive] == [None, None]

    on_threads(2, work)


def test_a_failure_is_raised_by_every_wait():
    def work(comm):
        handle = comm.iallreduce(np.zeros(10 + comm.rank, np.float32))
        later = comm.ibarrier()
        for _ in range(2):
            with pytest.raises(hccl.HcclError, match="10.*11|11.*10") as caught:
                handle.wait()
            assert caught.value.code == 1
        assert handle.done()
        with pytest.raises(hccl.HcclError):
            later.wait()
        return True

    assert on_threads(2, work) == [True] * 2


def test_wrong_arguments_are_refused_before_anything_begins(alone):
    good = np.zeros(4, np.float32)
    for call in [alone.iallreduce, alone.ibroadcast, alone.iallgather, lambda a: alone.isend(a, 0)]:
        with pytest.raises(ValueError, match="^array: is not contiguous"):
            call(np.zeros((4, 4))[:, ::2])
        with pytest.raises(TypeError, match="^array: the element type complex128"):
            call(np.zeros(3, complex))
    with pytest.raises(ValueError, match="^out: has 3 elements, not 4"):
        alone.iallgather(good, out=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="^out: is of bool, array of uint8"):
        alone.iallreduce(np.zeros(4, np.uint8), "lor", out=np.zeros(4, bool))
    with pytest.raises(ValueError, match='^op: bool cannot be reduced by "sum"'):
        alone.iallreduce(np.zeros(4, bool))
    with pytest.raises(TypeError, match="^op: expected a str such as 'sum', not int"):
        alone.allreduce(good, 3)
    for wrong in ["2", None]:
        with pytest.raises(TypeError, match="^postscale: expected a number, not"):
            alone.allreduce(good, postscale=wrong)
    with pytest.raises(ValueError, match="^prescale: is inf, not finite"):
        alone.allreduce(good, prescale=float("inf"))
    with pytest.raises(hccl.HcclError, match="fp32 cannot be reduced by band"):
        alone.allreduce(good, "band")
    with pytest.raises(ValueError, match="^tag: is 2147483648, not"):
        alone.isend(good, 0, tag=1 << 31)
    with pytest.raises(TypeError, match="^tag: expected an int, not str"):
        alone.irecv(good, 0, tag="a")
    with pytest.raises(hccl.HcclError, match="dest"):
        alone.isend(good, 1)
    with pytest.raises(ValueError, match="^send_counts: has 2 numbers, there are 1 ranks"):
        alone.alltoallv(good, [2, 2])
    with pytest.raises(TypeError, match="^send_counts: expected ints, one a rank, not int"):
        alone.alltoallv(good, 4)
    with pytest.raises(ValueError, match="^src: is -1; any rank is hccl.ANY_RANK"):
        alone.recv(good, -1)
    with pytest.raises(ValueError, match="^send_counts: add up to 3 elements, array has 4"):
        alone.alltoallv(good, [3], [3])
    with pytest.raises(ValueError, match="^out: has 4 elements, not 5"):
        alone.alltoallv(good, [4], [5], np.zeros(4, np.float32))
    handle = alone.ibarrier()
    for wrong in [-1, float("nan")]:
        with pytest.raises(ValueError, match="^timeout: is"):
            handle.wait(timeout=wrong)
    with pytest.raises(ValueError, match="^source: only messages that are received have one"):
        handle.source
    handle.wait()


# ---- messages ----


def test_threads_of_a_rank_exchange_messages_at_once():
    tags = range(4)

    def work(comm):
        peer, failures = 1 - comm.rank, []

        def talk(tag):
            try:
                for i in range(50):
                    sent = comm.isend(np.array([tag, i]), peer, tag)
                    assert comm.recv(np.empty(2, int), peer, tag).tolist() == [tag, i]
                    sent.wait()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=talk, args=(tag,)) for tag in tags]
        for thread in threads:
            thread.start()
        total = comm.allreduce(np.ones(100_000))  # a collective at the same time
        for thread in threads:
            thread.join(60)
        assert not failures and (total == 2).all()

    on_threads(2, work)


def test_a_message_of_another_length_fails_on_its_receiver_only():
    def work(comm):
        if comm.rank == 0:
            comm.isend(np.zeros(3, np.int8), 1)
        else:
            with pytest.raises(hccl.HcclError, match="has 3 bytes, its receive has 5"):
                comm.recv(np.zeros(5, np.int8), 0)
        return comm.allreduce(np.ones(1))[0]  # the communicator can still be used

    assert on_threads(2, work) == [2, 2]


def test_an_unknown_source_is_refused(alone):
    handle = alone.irecv(np.zeros(1), hccl.ANY_RANK, tag=5)
    with pytest.raises(ValueError, match="^handle: is not done yet"):
        handle.source
    alone.send(np.array([3.0]), 0, tag=5)
    assert handle.wait()[0] == 3 and handle.source == 0


# ---- groups ----


def test_a_group_runs_all_of_its_collectives_or_none():
    def work(comm):
        first, second = np.ones(4), np.ones(4)
        with pytest.raises(hccl.HcclError, match="root is 9"):
            with comm.group():
                comm.allreduce(first)
                comm.broadcast(second, root=9)
        with pytest.raises(RuntimeError, match="enough"):
            with comm.group():
                comm.allreduce(first)
                raise RuntimeError("enough")
        assert (first == 1).all()
        with comm.group():
            pass
        return comm.allreduce(first)[0]

    assert on_threads(2, work) == [2, 2]


def test_messages_of_other_threads_are_not_of_the_group(alone):
    array = np.zeros(3)

    def other():
        alone.send(np.full(3, 8.0), 0, tag=1)
        alone.recv(array, 0, tag=2)  # it waits, although a group is open
        array.flags.writeable = False

    thread = threading.Thread(target=other)
    with alone.group():
        thread.start()
        first = alone.recv(np.zeros(3), 0, tag=1)
        time.sleep(0.1)
        assert array.flags.writeable  # the call has not returned
        alone.send(np.full(3, 9.0), 0, tag=2)
    thread.join(60)
    assert (first == 8).all() and (array == 9).all() and not array.flags.writeable


def test_what_a_group_refuses(alone):
    array = np.ones(2)
    with alone.group():
        with pytest.raises(ValueError, match="^the group: has only blocking operations"):
            alone.iallreduce(array)
        with pytest.raises(ValueError, match="^the group: is inside another one"):
            with alone.group():
                pass
        with pytest.raises(ValueError, match="^split: is not possible inside a group"):
            alone.split(0)
        with pytest.raises(ValueError, match="^recv_counts: is needed inside a group"):
            alone.alltoallv(array, [2])
    with alone.igroup() as handle:
        with pytest.raises(ValueError, match="^the group: of igroup.. has only collectives"):
            alone.recv(array, 0)
        with pytest.raises(RuntimeError, match="igroup begins at the end of the `with` block"):
            handle.wait()
        assert repr(handle) == "<hccl.Handle igroup: not begun>"
    handle.wait()


def test_a_communicator_that_ends_in_its_group(alone):
    sub = alone.split(0)
    with pytest.raises(hccl.HcclError, match="was destroyed"):
        with sub.group():
            sub.destroy()


# ---- the end ----


def test_any_text_may_be_a_reason(alone):
    sub = alone.split(0)
    sub.abort("a byte that is no text: \udcff")
    with pytest.raises(hccl.HcclError, match=r"a byte that is no text: .udcff"):
        sub.allreduce(np.ones(1))
    sub.destroy()



@pytest.mark.parametrize("wait", ["collective", "handle", "message", "join of a part"])
def test_abort_ends_what_other_ranks_wait_for(wait):
    waiting = threading.Event()

    def work(comm):
        array = np.zeros(10)
        comm.barrier()
        if comm.rank == 0:
            waiting.wait(60)
            time.sleep(0.1)
            comm.abort("no more data")
            return None
        handle = comm.iallreduce(array) if wait == "handle" else None
        waiting.set()
        with pytest.raises(hccl.HcclError, match="rank 0 aborted .*no more data") as caught:
            if wait == "collective":
                comm.allreduce(array)
            elif wait == "handle":
                handle.wait(timeout=60)
            elif wait == "message":
                comm.recv(array, 0)
            else:
                comm.split(0)
        assert caught.value.code == 7
        with pytest.raises(hccl.HcclError, match="no more data"):
            comm.barrier()
        return "ended"

    assert on_threads(2, work)[1] == "ended"


def test_an_exception_in_the_with_block_ends_what_is_under_way():
    info = hccl.root_info()
    texts = []

    def other():
        with hccl.Communicator.from_root_info(info, 2, 1) as comm:
            try:
                comm.recv(np.zeros(1), 0)
            except hccl.HcclError as error:
                texts.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(KeyError, match="weights"):
        with hccl.Communicator.from_root_info(info, 2, 0) as comm:
            comm.iallreduce(np.zeros(1))
            raise KeyError("weights")
    thread.join(60)
    assert len(texts) == 1 and "left by KeyError: 'weights'" in texts[0]


def test_a_limit_on_collectives():
    over = threading.Event()

    def work(comm):
        assert comm.timeout is None or comm.timeout > 1
        comm.timeout = 0.2
        assert comm.timeout == 0.2
        comm.barrier()
        if comm.rank == 1:
            assert over.wait(60)
        with pytest.raises(hccl.HcclError) as caught:
            comm.allreduce(np.zeros(5))
        over.set()
        for wrong in [0, -1, float("nan")]:
            with pytest.raises(ValueError, match="^timeout: is"):
                comm.timeout = wrong
        return caught.value.code

    assert on_threads(2, work)[0] == 9


def test_a_closed_communicator_is_refused_by_name():
    comm = hccl.Communicator.from_root_info(hccl.root_info(), 1, 0)
    part = comm.split(0)
    never = comm.irecv(np.zeros(1), 0)
    comm.destroy()
    comm.destroy()
    with pytest.raises(hccl.HcclError) as caught:
        never.wait(timeout=60)
    assert caught.value.code == 7
    array = np.zeros(2)
    for one in [comm, part]:
        assert "not usable any more" in repr(one)
        for call in [
            lambda: one.allreduce(array),
            lambda: one.iallreduce(array),
            lambda: one.isend(array, 0),
            lambda: one.split(0),
            lambda: one.abort(),
            lambda: one.timeout,
        ]:
            with pytest.raises(hccl.HcclError, match=f"communicator {one.name} was destroyed"):
                call()


def in_child(work):
    """Runs work() in a fork of this process, and returns the text of its exception."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        text = "nothing"
        try:
            work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(into, text.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_a_fork_is_refused_and_harmless():
    with hccl.Communicator.from_root_info(hccl.root_info(), 1, 0) as comm:
        array = hccl.empty(3)
        array[:] = 5
        handle = comm.irecv(np.zeros(1), 0, tag=1)
        comm.allreduce(array)  # starts a thread, which the child does not have
        for call in [
            lambda: comm.allreduce(array),
            lambda: comm.iallreduce(array),
            lambda: comm.isend(array, 0),
            lambda: comm.split(0),
            lambda: comm.abort(),
            lambda: handle.wait(),
            lambda: handle.done(),
        ]:
            text = in_child(call)
            assert text.startswith("HcclError: ") and "fork" in text, text
        assert in_child(comm.destroy) == "nothing"
        assert (array == 5).all()
        comm.send(np.ones(1), 0, tag=1)
        assert handle.wait()[0] == 1
        assert comm.allreduce(array)[0] == 5


def test_forked_workers_have_their_own_memory_and_may_join():
    inherited = hccl.empty(1000)
    inherited[:] = 7

    def work(info, rank, results):
        seen = inherited[-1]
        inherited[:] = 99  # a worker changes its own copy in place
        own = hccl.empty(1000)
        own[:] = 10 * (rank + 1)
        with hccl.Communicator.from_root_info(info, 2, rank) as comm:
            comm.allreduce(own)
        results.put((seen, set(inherited), set(own)))

    fork = multiprocessing.get_context("fork")
    with hccl.Communicator.from_root_info(hccl.root_info(), 1, 0) as comm:
        for _ in range(2):
            info, results = hccl.root_info(), fork.Queue()
            workers = [fork.Process(target=work, args=(info, rank, results)) for rank in range(2)]
            for worker in workers:
                worker.start()
            for _ in workers:
                assert results.get(timeout=60) == (7, {99}, {30})
            for worker in workers:  # workers end like Python's own processes
                worker.join(60)
                assert worker.exitcode == 0
            assert set(inherited) == {7}
            assert set(comm.allreduce(inherited)) == {7}
