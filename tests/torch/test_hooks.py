"""Callbacks of futures that issue operations and wait for them, like torch's DDP hooks."""

import contextlib
import math
import time
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from conftest import on_ranks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook, quantization_hooks
from torch.nn.parallel import DistributedDataParallel


def summed(tensor, **options):
    return dist.all_reduce(tensor, async_op=True, **options).get_future()


def test_a_callback_waits_for_the_future_of_another_operation():
    def work(rank):
        def again(future):
            return summed(future.value()[0]).wait()[0]

        chain = summed(torch.ones(3)).then(again).then(lambda f: summed(f.value()).wait()[0])
        return chain.wait().tolist()

    assert on_ranks(2, work) == 2 * [[8.0] * 3]


def test_a_callback_calls_operations_that_wait():
    def work(rank):
        def callback(future):
            (tensor,) = future.value()
            dist.all_reduce(tensor)
            dist.barrier()
            parts = [torch.zeros(1), torch.zeros(1)]
            dist.all_gather(parts, torch.full((1,), float(rank)))
            inner = summed(torch.ones(1)).then(lambda f: summed(f.value()[0]).wait()[0])
            return torch.cat([tensor, *parts, inner.wait()])

        return summed(torch.ones(1)).then(callback).wait().tolist()

    assert on_ranks(2, work) == 2 * [[4.0, 0.0, 1.0, 4.0]]


def test_a_callback_waits_for_what_was_issued_before_it_ran():
    def work(rank):
        first = dist.all_reduce(torch.ones(100_000), async_op=True)
        others = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(3)]

        def callback(future):
            others[1].wait()
            return others[2].get_future().wait()[0]

        return first.get_future().then(callback).wait().item()

    assert on_ranks(2, work) == [2.0, 2.0]


def test_operations_of_callbacks_have_one_place_on_all_ranks():
    # One rank issues as many operations as possible, while the other rank has waited for the earlier callbacks.
    def work(rank):
        def numbered(i):
            def callback(future):
                return summed(future.value()[0] + i).wait()[0] + summed(torch.ones(1)).wait()[0]

            return callback

        answers = []
        for i in range(60):
            answers.append(summed(torch.ones(1)).then(numbered(i)))
            if rank == i // 20:
                answers[-1].wait()
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(20)]
        time.sleep(0.2 * rank)
        answers += [work.get_future().then(numbered(60 + i)) for i, work in enumerate(works)]
        return [answer.wait().item() for answer in answers]

    assert on_ranks(2, work) == 2 * [[2.0 * (2 + i) + 2 for i in range(80)]]


def test_other_threads_run_while_a_callback_waits():
    def work(rank):
        def callback(future):
            if rank == 1:
                dist.recv(torch.zeros(1), 0)
            return summed(torch.ones(1)).wait()[0]  # rank 0 waits here until its main thread sends

        if rank == 1:  # waits for rank 0's callback, which then runs on rank 0's worker
            dist.recv(torch.zeros(1), 0)
        answer = summed(torch.ones(1)).then(callback)
        if rank == 0:
            dist.send(torch.ones(1), 1)
            time.sleep(0.5)
            dist.send(torch.ones(1), 1)
        return answer.wait().item()

    assert on_ranks(2, work) == [2.0, 2.0]


def test_a_message_s_callback_waits_for_messages():
    def work(rank):
        def answer(future):
            dist.send(future.value()[0] + 1, 1, tag=1)
            last = dist.irecv(torch.zeros(100_000), 1, tag=2)
            last.wait()
            return last.get_future().then(lambda f: f.value()[0][0].item()).wait()

        if rank == 0:
            return dist.irecv(torch.zeros(100_000), 1).get_future().then(answer).wait()
        dist.send(torch.full((100_000,), 5.0), 0)
        dist.recv(into := torch.zeros(100_000), 0, tag=1)
        dist.send(into + 1, 0, tag=2)

    assert on_ranks(2, work) == [7.0, None]


def test_a_failure_in_a_callback_reaches_its_future():
    def work(rank):
        started = dist.all_reduce(torch.ones(1), async_op=True)
        answer = started.get_future().then(lambda f: summed(torch.ones(1 + rank)).wait())
        with pytest.raises(RuntimeError, match="all_?reduce"):
            answer.wait()
        dist.destroy_process_group()

    on_ranks(2, work)


def trained(hook, bucket_mb):
    """Returns work for a rank, which trains a few steps with the hook and returns the final loss and the
    parameters."""

    def work(rank):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(20, 40), *(torch.nn.Linear(40, 40) for _ in range(4))]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(40, 10))
        parallel = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
        with contextlib.ExitStack() as stack:
            hook(parallel, stack)
            optimizer = torch.optim.SGD(parallel.parameters(), 0.05)
            torch.manual_seed(1 + rank)
            for _ in range(8):
                optimizer.zero_grad()
                loss = (parallel(torch.randn(16, 20)) - 1).pow(2).mean()
                loss.backward()
                optimizer.step()
        return loss.item(), torch.nn.utils.parameters_to_vector(model.parameters()).tolist()

    return work


def power_sgd(parallel, _):
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1
    )
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def batched_power_sgd(parallel, stack):
    # torch 2.13's function orthogonalizes batches of matrices, but the hook passes a single matrix.
    orthogonalize = powerSGD_hook._orthogonalize

    def batch(matrix, epsilon=0):
        orthogonalize(matrix.unsqueeze(0), epsilon)

    stack.enter_context(mock.patch.object(powerSGD_hook, "_orthogonalize", batch))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.batched_powerSGD_hook)


def quantized(parallel, stack):
    # torch's hook expects that all_gather's future holds one tensor, as with NCCL. With Gloo and hccl it holds a
    # tensor for each rank.
    all_gather = dist.all_gather

    class Stacked:
        def __init__(self, work):
            self.work = work

        def get_future(self):
            return self.work.get_future().then(lambda f: [torch.stack(f.value())])

    def stacked(*arguments, **options):
        return Stacked(all_gather(*arguments, **options))

    stack.enter_context(mock.patch.object(dist, "all_gather", stacked))
    parallel.register_comm_hook(dist.group.WORLD, quantization_hooks.quantization_pertensor_hook)


@pytest.mark.parametrize("hook", [power_sgd, batched_power_sgd, quantized])
def test_hooks_of_torch_train_as_over_gloo(hook):
    ours = on_ranks(2, trained(hook, bucket_mb=25))
    gloo = on_ranks(2, trained(hook, bucket_mb=25), backend="gloo")
    assert ours[0][1] == ours[1][1]
    torch.testing.assert_close(ours, gloo)


@pytest.mark.parametrize("hook", [power_sgd, batched_power_sgd, quantized])
def test_hooks_of_torch_with_several_buckets(hook):
    # Over Gloo the buckets' operations may run in different orders on the ranks.
    (loss, parameters), (_, others) = on_ranks(2, trained(hook, bucket_mb=0.005))
    assert parameters == others
    assert math.isfinite(sum(parameters)) and loss < 1
