"""CombinedGradients with overlap_forward: the next forward begins while gradients are in flight."""

import copy

import hccl.torch
import hccl.torch._forward
import hccl.torch.optim as optim
import pytest
import torch
import torch.distributed as dist
from conftest import kill_self, on_ranks

LEARNING = 3


class Net(torch.nn.Module):
    """The attention reads its out_proj without calling that module. The head shares the embedding's weights. The second
    branch is used only in some iterations."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(11, 8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)])
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, tokens, both=True):
        x = self.embedding(tokens)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = sum(torch.tanh(branch(x)) for branch in (self.branches if both else self.branches[:1]))
        return self.norm(x) @ self.embedding.weight.T


def tokens(rank, iteration):
    numbers = torch.Generator().manual_seed(100 * rank + iteration)
    return torch.randint(0, 11, (3, 5), generator=numbers)


@pytest.fixture(autouse=True)
def learns_fast(monkeypatch):
    monkeypatch.setattr(hccl.torch._forward, "_LEARNING", LEARNING)


@pytest.fixture
def in_messages(monkeypatch):
    """Replaces the planner: in_messages(make) cuts the gradients into make(number of elements)."""
    plain = hccl.torch._forward.ForwardOverlap._set_messages

    def use(make):
        def changed(self, planned):
            assert min(planned)[0] == 0
            plain(self, make(sum(view.numel() for view in self._views)))

        monkeypatch.setattr(hccl.torch._forward.ForwardOverlap, "_set_messages", changed)

    return use


def small_chunks(elements):
    return [(max(0, end - 50), end) for end in range(elements, 0, -50)]


def train(rank, overlap, visit):
    model, other = Net(), torch.nn.Linear(2, 2)
    optimizer = optim.FusedAdamW([*model.parameters()], lr=0.01)
    optimizer.add_param_group({"params": [*other.parameters()], "lr": 0.1})
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    combined = hccl.torch.CombinedGradients(model, overlap_forward=optimizer if overlap else None)
    for iteration in range(9):
        optimizer.zero_grad(set_to_none=iteration % 2 == 0)
        if iteration == 5:
            with combined.no_sync():
                model(tokens(rank, 20)).square().mean().backward()
        loss = model(tokens(rank, iteration), iteration % 3 != 1).square().mean()
        (loss + other(torch.ones(2)).sum()).backward()
        optimizer.step()
        schedule.step()
        visit(iteration, model, optimizer, combined)
    combined.synchronize()
    return model


def test_weights_are_bit_by_bit_those_of_the_plain_order(in_messages):
    def work(rank):
        results = []
        for way in ("plain", "planned", "chunks"):
            if way == "chunks":
                in_messages(small_chunks)
            seen = []

            def visit(iteration, model, optimizer, combined, way=way, seen=seen):
                if iteration == 4:
                    seen.append(model(tokens(9, 9)).detach())  # as in an evaluation
                if iteration == 6:
                    seen += copy.deepcopy([*model.state_dict().values()])
                if iteration == 7:
                    states = optimizer.state_dict()["state"].values()
                    seen += [t.clone() for state in states for t in state.values()]
                if iteration == 8 and way != "plain":
                    assert all(p.grad is None for p in model.parameters())
                    combined.synchronize()
                    copy.deepcopy(model)(tokens(9, 9))

            model = train(rank, way != "plain", visit)
            results.append([*seen, *(p.detach().clone() for p in model.parameters())])
        assert len(results[0]) > 20
        for plain, planned, chunks in zip(*results, strict=True):
            assert torch.equal(plain, planned)
            assert torch.equal(plain, chunks)
        return [weight.tolist() for weight in results[2][-5:]]

    first, second = on_ranks(2, work)
    assert first == second


def two_layers():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = optim.FusedSGD(model.parameters(), lr=0.1)
    return model, optimizer, hccl.torch.CombinedGradients(model, overlap_forward=optimizer)


def second_layer_first(elements):
    return [(0, elements // 2), (elements // 2, elements)]


def test_forward_runs_before_backward_of_another_rank_ends_and_names_one_that_dies(in_messages):
    in_messages(second_layer_first)

    def work(rank):
        store = dist.distributed_c10d._get_default_store()
        model, optimizer, combined = two_layers()

        def step(between_the_messages):
            hidden = model[0](torch.ones(4))
            if rank == 1:
                hidden.register_hook(between_the_messages)
            model[1](hidden).sum().backward()
            optimizer.step()

        for _ in range(LEARNING + 1):
            model(torch.ones(4)).sum().backward()
            optimizer.step()
        combined.synchronize()
        before = model[1].weight.detach().clone()
        step(lambda _: store.wait(["forward has run"]))
        if rank == 0:
            model[1](torch.ones(4))
            assert not torch.equal(model[1].weight, before)
            store.set("forward has run", "yes")
        model(torch.ones(4))
        step(lambda _: kill_self())
        for read in (lambda: model(torch.ones(4)), combined.synchronize, model.state_dict):
            with pytest.raises(dist.DistBackendError, match="rank 1.*died"):
                read()
        dist.destroy_process_group()
        return True

    assert on_ranks(2, work, killed=[1])[0]


def test_what_needs_all_gradients_asks_for_synchronize():
    def work(rank):
        model, optimizer, combined = two_layers()
        for _ in range(LEARNING + 2):
            x = torch.full((4,), 1.0 + rank)
            model(x).sum().backward()
            with pytest.raises(RuntimeError, match=r"call synchronize\(\)"):
                optimizer.step(max_norm=0.5)
            with pytest.raises(RuntimeError, match="backward ran twice before step"):
                model(x).sum().backward()
            optimizer.zero_grad()
            combined.synchronize()
            assert torch.equal(model[1].bias.grad, torch.ones(4))
            assert torch.equal(model[0].weight.grad[:, 0], model[1].weight.sum(0) * 1.5)
            optimizer.step(max_norm=0.5)
            assert optimizer.grad_norm > 0.5
            optimizer.zero_grad()
        with pytest.raises(ValueError, match="no segments"):
            combined.register_segment_hook(print)
        combined.remove()
        bert = optim.FusedBertAdam(model.parameters(), lr=0.1)
        partial = optim.FusedSGD(model[0].parameters(), lr=0.1)
        for wrong, text in (
            (torch.optim.SGD(model.parameters(), lr=0.1), "hccl.torch.optim"),
            (bert, "norm of all gradients"),
            (partial, r"1\.bias is not a parameter of the optimizer"),
        ):
            with pytest.raises((TypeError, ValueError), match=text):
                hccl.torch.CombinedGradients(model, overlap_forward=wrong)

    on_ranks(2, work)
