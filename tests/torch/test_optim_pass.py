"""Unscale, clip, step and zero in one pass; torch's separate calls are the oracle."""

import math

import pytest
import torch
from conftest import on_ranks
from test_optim import give_gradients, parameters, relative

from hccl.torch import optim


def both(steps, ours, theirs, scale=1.0, spoiled=()):
    """Runs ours(optimizer) and theirs(optimizer) with the same gradients; returns both lists of parameters."""
    results = []
    for kind, step in ((optim.FusedAdamW, ours), (torch.optim.AdamW, theirs)):
        them = parameters()
        optimizer = kind(them, lr=0.05)
        for seed in range(1, steps + 1):
            give_gradients(them, seed)
            for parameter in them:
                parameter.grad *= scale
            if seed in spoiled:
                them[5].grad[7, 3] = math.inf if seed % 2 else math.nan
            step(optimizer, them)
        results.append(them)
    return results


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip(norm_type, max_norm):
    norms = ([], [])

    def ours(optimizer, them):
        optimizer.step(max_norm=max_norm, norm_type=norm_type, zero_grad=True)
        norms[0].append(optimizer.grad_norm.item())
        assert all((p.grad == 0).all() for p in them)

    def theirs(optimizer, them):
        some = [p for p in them if p.numel()]  # torch fails on the largest element of an empty tensor
        norms[1].append(torch.nn.utils.clip_grad_norm_(some, max_norm, norm_type).item())
        optimizer.step()

    assert relative(*both(10, ours, theirs)) < 1e-6
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_clip_grad_norm_fused():
    norms = ([], [])

    def ours(optimizer, them):
        norms[0].append(optimizer.clip_grad_norm_fused_(0.5).item())
        assert torch.nn.utils.get_total_norm([p.grad for p in them]) == pytest.approx(0.5, rel=1e-4)
        optimizer.step()

    def theirs(optimizer, them):
        norms[1].append(torch.nn.utils.clip_grad_norm_(them, 0.5).item())
        optimizer.step()

    assert relative(*both(5, ours, theirs)) < 1e-6
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


SCALE = 2.0**12


def one_pass(scaler, optimizer):
    optimizer.step(max_norm=1.0, scaler=scaler, zero_grad=True)


def through_step(scaler, optimizer):
    scaler.step(optimizer, max_norm=1.0)


def through_three_calls(scaler, optimizer):
    scaler.unscale_(optimizer)
    optimizer.clip_grad_norm_fused_(1.0)
    scaler.step(optimizer)


def torchs_clip(scaler, optimizer):
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
    scaler.step(optimizer)


@pytest.mark.parametrize(
    "way, make",
    [
        (one_pass, optim.GradScaler),
        (one_pass, lambda **k: torch.amp.GradScaler("cpu", **k)),
        (through_step, optim.GradScaler),
        (through_three_calls, optim.GradScaler),
        (through_three_calls, lambda **k: optim.GradScaler(deferred=True, **k)),
        (through_three_calls, lambda **k: torch.amp.GradScaler("cpu", **k)),
        (torchs_clip, optim.GradScaler),
    ],
)
def test_scaler(way, make):
    options = {"init_scale": SCALE, "growth_interval": 3}
    own, other = make(**options), torch.amp.GradScaler("cpu", **options)
    scales = ([], [])
    for scaler in (own, other):
        scaler.scale(torch.tensor(1.0))  # creates the scaler's tensors

    def ours(optimizer, them):
        for parameter in them:
            parameter.grad *= own.get_scale()
        way(own, optimizer)
        own.update()
        scales[0].append(own.get_scale())

    def theirs(optimizer, them):
        for parameter in them:
            parameter.grad *= other.get_scale()
        torchs_clip(other, optimizer)
        other.update()
        scales[1].append(other.get_scale())

    assert relative(*both(8, ours, theirs, spoiled=(2, 5))) < 1e-6
    assert scales[0] == scales[1]
    assert len(set(scales[0])) > 2  # the scale grew and shrank


def test_plain_scaler_without_clip():
    own = torch.amp.GradScaler("cpu", init_scale=SCALE)
    own.scale(torch.tensor(1.0))

    def ours(optimizer, them):
        own.step(optimizer)  # torch requires this call for optimizers that unscale by themselves
        own.update()

    results = both(4, ours, lambda o, them: ([p.grad.div_(SCALE) for p in them], o.step()), SCALE)
    assert relative(*results) < 1e-6


def test_two_steps_without_update_are_refused():
    them = parameters()
    scaler = optim.GradScaler()
    scaler.scale(torch.tensor(1.0))
    optimizer = optim.FusedSGD(them, lr=0.1)
    give_gradients(them, 1)
    optimizer.step(scaler=scaler)
    with pytest.raises(RuntimeError, match="since the last update"):
        optimizer.step(scaler=scaler)


def test_norm_of_numbers_whose_squares_overflow():
    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.tensor([3e30, 4e30])
    optimizer = optim.FusedSGD([weight], lr=1.0)
    optimizer.step(max_norm=1.0)
    assert optimizer.grad_norm.item() == pytest.approx(5e30)
    torch.testing.assert_close(weight.detach(), torch.tensor([-0.6, -0.8]))


def test_norm_has_the_same_bits_with_any_number_of_threads():
    norms = set()
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            them = parameters()
            give_gradients(them, 1)
            optimizer = optim.FusedSGD(them)
            norms.add(optimizer._norm(2.0))
        finally:
            torch.set_num_threads(1)
    assert len(norms) == 1


def test_norm_over_ranks():
    """Each rank has one row of a weight; the norm, and the check for infinite or NaN gradients, cover all ranks."""

    def work(rank):
        rows = torch.ones(2, 3)
        row = rows[rank].clone().requires_grad_()
        optimizer = optim.FusedSGD([row], lr=1.0)
        row.grad = torch.full((3,), float(rank + 1))
        group = torch.distributed.group.WORLD
        optimizer.step(max_norm=1.0, process_group=group)
        scaler = optim.GradScaler()
        scaler.scale(torch.tensor(1.0))
        before = row.detach().clone()
        row.grad = torch.tensor([1.0, math.nan if rank == 1 else 1.0, 1.0])
        optimizer.step(scaler=scaler, process_group=group)
        return before.tolist(), torch.equal(row.detach(), before)

    results = on_ranks(2, work)
    norm = math.sqrt(3 * (1 + 4))
    for rank, (row, skipped) in enumerate(results):
        assert row == pytest.approx([1.0 - (rank + 1) / norm] * 3, rel=1e-5)
        assert skipped


def test_dtensors_are_refused_not_read():
    """The elements of a DTensor, such as a parameter of FSDP2, are in another tensor."""

    def work(rank):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (1,))
        weight = torch.nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
        weight.grad = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        optimizer = optim.FusedAdamW([("weight", weight)])
        bert = optim.FusedBertAdam([weight], max_grad_norm=1.0)
        scaler = optim.GradScaler()
        scaler.scale(torch.tensor(1.0))
        refusals = []
        for call in (
            optimizer.step,
            lambda: optimizer.step(max_norm=1.0),
            lambda: optimizer.clip_grad_norm_fused_(1.0),
            lambda: scaler.unscale_(optimizer),
            bert.step,
        ):
            with pytest.raises(RuntimeError) as error:
                call()
            refusals.append(str(error.value))
        plain = torch.ones(4, requires_grad=True)
        plain.grad = torch.ones(4)
        optimizer = optim.FusedAdamW([plain])
        optimizer.step()
        optimizer.state[plain]["exp_avg"] = weight.grad
        for _ in range(2):
            with pytest.raises(RuntimeError) as error:
                optimizer.step()
        refusals.append(str(error.value))
        return refusals, weight.full_tensor().tolist()

    ((refusals, values),) = on_ranks(1, work)
    of_step, *of_norms, of_state = refusals
    assert "parameter 0 of group 0 (weight): it has no memory of its own" in of_step
    assert all("gradient 0 has no memory of its own" in each for each in of_norms), of_norms
    assert "parameter 0 of group 0: its state exp_avg, a DTensor, has no memory" in of_state
    assert values == [1.0] * 4
