"""Gradients that are combined without DDP, and optimizers that step each segment once it is reduced."""

import copy

import hccl.torch
import hccl.torch.optim as optim
import pytest
import torch
import torch.distributed as dist
from conftest import on_ranks
from hccl.split.api import set_split_strategy_by_idx
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Net(torch.nn.Module):
    """The second branch is used in some iterations only."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(144, 7), torch.nn.Linear(144, 7)])

    def forward(self, x, both=True):
        x = torch.tanh(self.first(x)).flatten(1)
        return sum(branch(x) for branch in (self.branches if both else self.branches[:1]))


def batch(rank, iteration, dtype=torch.float32):
    numbers = torch.Generator().manual_seed(100 * rank + iteration)
    return torch.randn(8, 1, 8, 8, generator=numbers).to(dtype)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_combined_gradients_are_those_of_gloo(dtype, to_none):
    def work(rank):
        gloo = dist.new_group(backend="gloo")
        ours, theirs = Net(seed=rank).to(dtype), Net().to(dtype)  # all ranks get rank 0's weights
        combined = hccl.torch.CombinedGradients(ours)
        theirs = DistributedDataParallel(theirs, process_group=gloo, find_unused_parameters=True)
        for iteration in range(4):
            x = batch(rank, iteration, dtype)
            for model in (ours, theirs):
                model.zero_grad(set_to_none=to_none)
                model(x, iteration != 1).square().mean().backward()
            assert sum(p.grad is None for p in ours.parameters()) == 0
            for own, other in zip(ours.parameters(), theirs.parameters()):
                expected = torch.zeros_like(own) if other.grad is None else other.grad
                torch.testing.assert_close(own.grad, expected)
        assert combined.gradients[0] == "branches.1.bias"
        places = [p.grad.data_ptr() for p in reversed(list(ours.parameters()))]
        sizes = [p.nbytes for p in reversed(list(ours.parameters()))]
        assert [b - a for a, b in zip(places, places[1:])] == sizes[:-1]  # the gradients are one block

    on_ranks(2, work)


def test_no_sync_adds_up_and_remove_ends_it():
    def work(rank):
        model = Net()
        combined = hccl.torch.CombinedGradients(model)
        with combined.no_sync():
            model(batch(rank, 0)).sum().backward()
            alone = model.first.weight.grad.clone()
        model(batch(rank, 1)).sum().backward()
        both = model.first.weight.grad.clone()
        combined.remove()
        model.zero_grad()
        model(batch(rank, 1)).sum().backward()
        return [each.tolist() for each in (alone, both, model.first.weight.grad)]

    answers = [[torch.tensor(each) for each in answer] for answer in on_ranks(2, work)]
    (first0, both0, last0), (first1, both1, last1) = answers
    assert torch.equal(both0, both1)
    torch.testing.assert_close(both0, (first0 + first1 + last0 + last1) / 2)
    assert not torch.equal(last0, last1)


def combine(model):
    return model, hccl.torch.CombinedGradients(model)


def wrap(model):
    model = hccl.torch.DistributedDataParallel(model)
    return model, model


@pytest.mark.parametrize("make", [combine, wrap])
def test_segments_are_stepped_as_they_come(make):
    """The weights have the same bits as after one step that follows backward."""

    def work(rank):
        set_split_strategy_by_idx([1, 3, 5])
        results = []
        for by_segment in (False, True):
            model, gradients = make(Net())
            optimizer = optim.FusedAdamW(model.parameters(), lr=0.01)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            calls = []
            if by_segment:

                def step(parameters, optimizer=optimizer, calls=calls):
                    optimizer.step_segment(parameters)
                    calls.append(len(parameters))

                gradients.register_segment_hook(step)
            for iteration in range(6):
                optimizer.zero_grad()
                calls.clear()
                model(batch(rank, iteration)).square().mean().backward()
                optimizer.step()
                schedule.step()
            assert calls == ([2, 2, 2] if by_segment else [])
            assert {state["step"].item() for state in optimizer.state.values()} == {6}
            results.append([p.detach().clone() for p in model.parameters()])
        for plain, segmented in zip(*results):
            assert torch.equal(plain, segmented)
        return [weight.tolist() for weight in results[0]]

    first, second = on_ranks(2, work)
    assert first == second


def test_what_a_model_has_besides_is_stepped_with_the_rest():
    def work(rank):
        model, other = Net(), torch.nn.Linear(2, 2)
        weights = [model.first.weight.detach().clone(), other.weight.detach().clone()]
        optimizer = optim.FusedSGD([*model.parameters(), *other.parameters()], lr=1.0)
        hccl.torch.CombinedGradients(model).register_segment_hook(optimizer.step_segment)
        (model(batch(rank, 0)).sum() + other(torch.ones(2)).sum()).backward()
        assert torch.equal(other.weight, weights[1])
        optimizer.step()
        for weight, before in zip((model.first.weight, other.weight), weights):
            torch.testing.assert_close(weight.detach(), before - weight.grad)

    on_ranks(2, work)


def test_what_comes_too_late_is_refused():
    def work(rank):
        model = Net()
        optimizer = optim.FusedSGD(model.parameters(), lr=0.1)
        hccl.torch.CombinedGradients(model).register_segment_hook(optimizer.step_segment)
        model(batch(rank, 0)).sum().backward()
        with pytest.raises(RuntimeError, match="max_norm and scaler come too late"):
            optimizer.step(max_norm=1.0)
        model(batch(rank, 1)).sum().backward()
        with pytest.raises(RuntimeError, match="backward ran twice before step"):
            optimizer.step_segment(model.parameters())
        optimizer.step()
        bert = optim.FusedBertAdam(model.parameters(), lr=0.1)
        with pytest.raises(RuntimeError, match="before the norm of all gradients is known"):
            bert.step_segment(model.parameters())

    on_ranks(2, work)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_with_a_head_behind_them(reentrant):
    def work(rank):
        torch.manual_seed(0)
        model = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        other = copy.deepcopy(model)
        hccl.torch.CombinedGradients(model)
        hidden = torch.full((2, 4), rank + 1.0, requires_grad=True)
        ours = theirs = hidden
        for mine, plain in zip(model[:2], other[:2]):
            ours = checkpoint(mine, ours, use_reentrant=reentrant)
            theirs = plain(theirs)
        model[2](ours).sum().backward()
        other[2](theirs).sum().backward()
        for mine, plain in zip(model.parameters(), other.parameters()):
            dist.all_reduce(plain.grad, dist.ReduceOp.AVG)
            torch.testing.assert_close(mine.grad, plain.grad)

    on_ranks(2, work)


def test_passes_without_an_end_are_refused():
    def work(rank):
        model = torch.nn.Linear(4, 4)
        combined = hccl.torch.CombinedGradients(model)
        output = checkpoint(model, torch.ones(2, 4, requires_grad=True), use_reentrant=True)
        with pytest.raises(RuntimeError, match="use use_reentrant=False"):
            output.sum().backward()
        model(torch.ones(2, 4)).sum().backward()  # no segment has begun
        combined.remove()

        def fail(gradient):
            raise ValueError("in a hook")

        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        combined = hccl.torch.CombinedGradients(model)
        handle = model[0].weight.register_hook(fail)
        with pytest.raises(ValueError, match="in a hook"):
            model(torch.ones(2, 4)).sum().backward()
        handle.remove()
        with pytest.raises(RuntimeError, match=r"gradient of 1\..* was ready already: an error ended"):
            model(torch.ones(2, 4)).sum().backward()

    on_ranks(2, work)


def test_gradients_that_cannot_be_combined_are_named():
    def work(rank):
        with pytest.raises(TypeError, match=r"0\.bias is of .*64, 1\.bias of .*32"):
            hccl.torch.CombinedGradients(
                torch.nn.Sequential(torch.nn.Linear(2, 2).double(), torch.nn.Linear(2, 2))
            )
        embedding = torch.nn.Embedding(4, 4, sparse=True)
        hccl.torch.CombinedGradients(embedding)
        with pytest.raises(RuntimeError, match="the gradient of weight is sparse"):
            embedding(torch.tensor([1])).sum().backward()

    on_ranks(2, work)
