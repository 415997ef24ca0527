"""DistributedDataParallel with the fusion planner: its sums, its segments and its refusals."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess

import hccl.torch
import pytest
import torch
import torch.distributed as dist
from conftest import kill_self, on_ranks
from hccl.split.api import set_split_strategy_by_idx, set_split_strategy_by_size
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

BUILD = pathlib.Path(os.environ.get("HCCL_BUILD_DIR", "build/dev"))


class Branches(torch.nn.Module):
    """The second branch is used in some iterations only."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(20, 30)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(30, 7), torch.nn.Linear(30, 7)])

    def forward(self, x, both=True):
        x = torch.tanh(self.first(x))
        return sum(branch(x) for branch in (self.branches if both else self.branches[:1]))


def gradients(model):
    return [parameter.grad for parameter in model.parameters()]


def batch(rank, iteration):
    return torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * rank + iteration))


CASES = {
    "plain": {},
    "copied": {"gradient_as_bucket_view": False},
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
}


@pytest.mark.parametrize("fresh, dtype", [(True, torch.float32), (False, torch.float64)])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_gloo(case, fresh, dtype):
    """fresh: zero_grad(set_to_none=True), so that each step makes new gradients."""

    def work(rank):
        gloo = dist.new_group(backend="gloo")
        ours = hccl.torch.DistributedDataParallel(Branches().to(dtype), **CASES[case])
        theirs = DistributedDataParallel(Branches().to(dtype), process_group=gloo, **CASES[case])
        for iteration in range(25):  # two windows of the automatic plan
            both = case != "unused" or iteration % 3 != rank
            accumulate = iteration % 5 == 4 and case != "static"
            for model in (ours, theirs):
                model.zero_grad(set_to_none=fresh)
                with model.no_sync() if accumulate else contextlib.nullcontext():
                    model(batch(rank, iteration).to(dtype), both).square().mean().backward()
                if accumulate:
                    model(batch(rank, -iteration).to(dtype), both).square().mean().backward()
            for mine, other in zip(gradients(ours), gradients(theirs)):
                torch.testing.assert_close(mine, other)

    on_ranks(2, work)


def test_gradients_lie_one_behind_the_other_in_shared_memory():
    from test_memory import is_shared

    def work(rank):
        model = hccl.torch.DistributedDataParallel(Branches())
        for iteration in range(4):
            model.zero_grad(set_to_none=False)
            model(batch(rank, iteration)).sum().backward()
        by_name = {name: p.grad for name, p in model.module.named_parameters()}
        in_order = [by_name[name] for name in model.gradients]
        assert all(is_shared(gradient) for gradient in in_order)
        return [g.data_ptr() for g in in_order], [g.nbytes for g in in_order]

    for begins, sizes in on_ranks(2, work):
        assert [b + s for b, s in zip(begins, sizes)][:-1] == begins[1:]


def four_layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(10, 10, bias=False) for _ in range(4)])


def trained(model, iterations=3):
    for _ in range(iterations):
        model(torch.ones(2, 10)).sum().backward()
    return model


def test_strategies_that_the_program_sets():
    def work(rank):
        set_split_strategy_by_size([25, 75], "percentages")
        set_split_strategy_by_idx([0, 1, 3], "indices")
        found = {}
        models = [  # two models at the same time
            hccl.torch.DistributedDataParallel(four_layers(), split_group=group)
            for group in ("percentages", "indices")
        ]
        for name, model in zip(("percentages", "indices"), models):
            found[name] = trained(model).segments
        return found, model.gradients

    for found, names in on_ranks(2, work):
        assert found == {"percentages": [0, 3], "indices": [0, 1, 3]}
        assert names == ["3.weight", "2.weight", "1.weight", "0.weight"]


def test_a_strategy_that_does_not_fit():
    def work(rank):
        set_split_strategy_by_idx([0, 9])
        with pytest.raises(dist.DistBackendError, match="9"):
            trained(hccl.torch.DistributedDataParallel(four_layers()))

    on_ranks(2, work)


@pytest.mark.parametrize("split", ["", "auto", "trace", "default"])
def test_hccl_plan_reads_the_traces(split, tmp_path, monkeypatch):
    monkeypatch.setenv("HCCL_SPLIT", split)

    def work(rank):
        torch.manual_seed(0)
        network = torch.nn.Sequential(*[torch.nn.Linear(200, 200) for _ in range(6)])
        model = hccl.torch.DistributedDataParallel(network)
        first = []
        for _ in range(40):
            model.zero_grad(set_to_none=False)
            model(torch.ones(4, 200)).sum().backward()
            first = first or model.segments
        assert split in ("", "auto") or model.segments == first
        model.write_trace(tmp_path / f"{rank}.pb")
        model.write_trace(tmp_path / f"{rank}.pb.json")
        sizes = {name: p.nbytes for name, p in network.named_parameters()}
        return model.segments, [sizes[name] for name in model.gradients], model.trace_text()

    answers = on_ranks(2, work)
    assert answers[0][:2] == answers[1][:2]
    segments, sizes, timeline = answers[0]
    points = [line.split()[1] for line in timeline.splitlines()]
    assert points[0] == "fp_start" and {"bp_end", "allreduce1_start"} < set(points)
    tool = shutil.which("hccl-plan") or next(BUILD.rglob("hccl-plan"))
    report = tmp_path / "plan.json"
    traces = [tmp_path / "0.pb", tmp_path / "1.pb"]
    subprocess.run([tool, *traces, "--json", report], check=True, stdout=subprocess.DEVNULL)
    plan = json.loads(report.read_text())
    assert plan["traced_ranks"] == 2 and plan["iterations"] >= 30
    assert [gradient["bytes"] for gradient in plan["gradients"]] == sizes
    assert plan["today"]["last_indices"] == segments
    iterations = json.loads((tmp_path / "0.pb.json").read_text())["iterations"]
    behind = {iteration["behind_backward"] for iteration in iterations[1:9]}
    assert behind == ({False} if split == "default" else {False, True})  # also run after backward, to be measured alone


def test_the_segment_hook():
    def work(rank):
        set_split_strategy_by_idx([1, 3])
        model = hccl.torch.DistributedDataParallel(four_layers())
        seen = []
        model.register_segment_hook(
            lambda parameters: seen.append([(p, p.grad.clone()) for p in parameters])
        )
        model(torch.full((2, 10), 1.0 + rank)).sum().backward()
        assert sum(map(len, seen)) == 4  # one segment until there is a plan
        for _ in range(3):
            seen.clear()
            model.zero_grad(set_to_none=False)
            model(torch.full((2, 10), 1.0 + rank)).sum().backward()
        assert [len(each) for each in seen] == [2, 2]
        for parameter, gradient in seen[0] + seen[1]:
            assert torch.equal(parameter.grad, gradient)
        return [gradient.tolist() for each in seen for _, gradient in each]

    first, second = on_ranks(2, work)
    assert first == second


def sparse():
    return torch.nn.Sequential(torch.nn.Embedding(4, 4, sparse=True), torch.nn.Linear(4, 4))


def mixed():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).double())


def frozen():
    return torch.nn.Linear(4, 4).requires_grad_(False)


@pytest.mark.parametrize(
    "make, options, word",
    [
        (sparse, {}, "gradient of 0 is sparse"),
        (mixed, {}, "1.weight is of torch.float64, 0.weight of torch.float32"),
        (frozen, {}, "no parameter needs a gradient"),
        (four_layers, {"bucket_cap_mb": 25}, "bucket_cap_mb"),
        (four_layers, {"bucket_cap_mb_list": [1, 2]}, "bucket_cap_mb_list"),
        (four_layers, {"split_group": ""}, "group"),
    ],
)
def test_what_a_plan_cannot_do(make, options, word):
    def work(rank):
        with pytest.raises((TypeError, ValueError), match=word):
            hccl.torch.DistributedDataParallel(make(), **options)

    on_ranks(1, work)


def test_what_a_planned_model_refuses():
    def work(rank):
        model = hccl.torch.DistributedDataParallel(four_layers())
        with pytest.raises(TypeError, match="communication hook"):
            model.register_comm_hook(None, lambda state, bucket: None)
        with pytest.raises(TypeError, match="Join"), Join([model]):
            pass
        with pytest.raises(RuntimeError, match="no trace yet"):
            model.trace_text()

    on_ranks(2, work)


def test_a_rank_that_dies_in_backward():
    def work(rank):
        model = hccl.torch.DistributedDataParallel(four_layers())
        trained(model)
        if rank == 1:
            model.module[0].weight.register_hook(lambda gradient: kill_self())
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            trained(model, 1)
        os._exit(0) if rank == 1 else None
        del model
        dist.destroy_process_group()
        return "named"

    assert on_ranks(2, work, killed=[1])[0] == "named"


@pytest.mark.parametrize("ranks", [1, 3])
def test_other_numbers_of_ranks(ranks):
    def work(rank):
        model = trained(hccl.torch.DistributedDataParallel(four_layers()), 0)
        for _ in range(4):
            model.zero_grad()
            model(torch.full((1, 10), float(rank))).sum().backward()
        return gradients(model)[0][0, 0].item()

    found = on_ranks(ranks, work)
    weights = four_layers()
    weights(torch.full((1, 10), (ranks - 1) / 2)).sum().backward()
    expected = weights[0].weight.grad[0, 0].item()
    assert found == pytest.approx([expected] * ranks)
