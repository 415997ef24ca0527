"""Ascend's names: scripts written for its adapter, each in a separate process."""

import sys

import pytest
from conftest import run

HEAD = "import hccl.torch; hccl.torch.as_npu(); import torch\n"

TRAINING = """
import sys
import torch, torch_npu, torch_npu.optim
from torch_npu.npu.amp import GradScaler, autocast
assert sys.argv[1:] == ["--epochs", "3"]
device = torch.device("npu:0")
torch.npu.set_device(device)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
data = torch.randn(64, 4).npu()
target = data.sum(1, keepdim=True).to("npu", non_blocking=True)
optimizer = torch_npu.optim.NpuFusedSGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
scaler = GradScaler(init_scale=1024.0)
losses = []
for _ in range(40):
    optimizer.zero_grad()
    loss = (model(data) - target).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    optimizer.clip_grad_norm_fused_(5.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert isinstance(data.device, torch.device) and torch.ones(2, device="npu").device.type == "cpu"
print("end", losses[-1] < 0.2 * losses[0])
"""


def check(text, python, **environment):
    done = python(HEAD + text, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_runs_unchanged(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    done = run([sys.executable, "-m", "hccl.torch", script, "--epochs", "3"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end True\n"


def test_without_being_asked_there_are_no_such_modules(python):
    done = python("import hccl.torch.optim, torch\nimport torch_npu")
    assert "No module named 'torch_npu'" in done.stderr
    done = python("import hccl.torch.optim, torch\ntorch.ones(1, device='npu')")
    assert done.returncode != 0


def test_a_real_torch_npu_wins(tmp_path, python):
    (tmp_path / "torch_npu.py").write_text("real = True")
    text = "import torch_npu, apex.amp; print(torch_npu.real, hasattr(torch.Tensor, 'npu'))"
    assert check(text, python, PYTHONPATH=str(tmp_path)) == "True False\n"


def test_a_second_call_does_nothing(python):
    check("before = torch.Tensor.to; hccl.torch.as_npu(); assert torch.Tensor.to is before", python)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_apex(level, python):
    text = f"""
from apex import amp
import apex.optimizers
torch.manual_seed(0)
model = torch.nn.Linear(8, 1).npu()
optimizer = apex.optimizers.NpuFusedSGD(model.parameters(), 0.05, momentum=0.9)
model, optimizer = amp.initialize(
    model, optimizer, opt_level="{level}", loss_scale=128.0, combine_grad=True)
x = torch.randn(64, 8).to(model.weight.dtype)
y = x.sum(1, keepdim=True)
losses = []
for i in range(60):
    optimizer.zero_grad()
    loss = (model(x) - y).float().square().mean()
    if i == 30:
        before = model.weight.detach().clone()
        loss = loss * float("inf")
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    if i == 30:
        assert torch.equal(before, model.weight)
    losses.append(loss.item())
assert {{p.dtype for p in amp.master_params(optimizer)}} == {{torch.float32}}
assert model.weight.dtype == (torch.float16 if "{level}" == "O2" else torch.float32)
print(losses[-1] < 0.01 * losses[0])
"""
    assert check(text, python).splitlines() == ["Gradient overflow. Skipping step", "True"]


def test_combined_tensors(python):
    text = """
import io
from torch_npu.utils import (
    get_part_combined_tensor, is_combined_tensor_valid, npu_combine_tensors)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    parts = [torch.arange(6.0).to(dtype).view(2, 3), torch.full((100000,), 7).to(dtype)]
    combined = npu_combine_tensors(parts)
    assert combined.numel() == 100006 and parts[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    combined.mul_(2)
    assert parts[0][1, 2] == 10 and parts[1][-1] == 14
    file = io.BytesIO()
    torch.save(parts[0], file)
    assert len(file.getvalue()) < 4000  # not the combined memory
    assert get_part_combined_tensor(combined, 3, 3).tolist() == [6, 8, 10]
    assert is_combined_tensor_valid(combined, parts)
    parts[0].data = parts[0].data.clone()
    assert not is_combined_tensor_valid(combined, parts)
assert npu_combine_tensors([]) is None and get_part_combined_tensor(None, 0, 3) is None
assert is_combined_tensor_valid(None, []) and not is_combined_tensor_valid(combined, [None])
for bad in ([None], [torch.ones(2), torch.ones(2).half()], [torch.ones(4, 4).t()]):
    try:
        npu_combine_tensors(bad)
    except RuntimeError:
        continue
    raise AssertionError(bad)
try:
    get_part_combined_tensor(combined, 100000, 7)
except RuntimeError as error:
    print(error)
"""
    assert "are not in a tensor of 100006" in check(text, python)


def test_all_optimizers_have_ascends_arguments(python):
    text = """
import inspect, torch_npu.optim as npu
for name, options in {
    "NpuFusedSGD": dict(lr=0.1, momentum=0.9, dampening=0, weight_decay=0.1, nesterov=True),
    "NpuFusedAdam": dict(betas=(0.9, 0.99), eps=1e-8, weight_decay=0, amsgrad=True),
    "NpuFusedAdamW": dict(lr=1e-3, amsgrad=False),
    "NpuFusedAdamP": dict(delta=0.1, wd_ratio=0.1, nesterov=False),
    "NpuFusedAdadelta": dict(lr=1.0, rho=0.9, eps=1e-6),
    "NpuFusedLamb": dict(adam=False, use_global_grad_norm=True),
    "NpuFusedRMSprop": dict(alpha=0.99, momentum=0.9, centered=True),
    "NpuFusedRMSpropTF": dict(decoupled_decay=False, lr_in_momentum=True),
    "NpuFusedBertAdam": dict(lr=0.1, warmup=0.1, t_total=10, schedule="warmup_cosine", b1=0.9),
}.items():
    weight = torch.ones(3, 4, requires_grad=True)
    optimizer = getattr(npu, name)([weight], **options)
    for _ in range(2):
        (weight * weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert weight.grad is not None and (weight.grad == 0).all()
    assert (weight < 1).all(), name
    # Where Ascend's class silently steps with the old combined gradient:
    weight.grad = None
    before = weight.detach().clone()
    optimizer.step()
    assert torch.equal(weight, before), name
    for bad in (lambda: optimizer.zero_grad(set_to_none=True), lambda: getattr(npu, name)([weight], maximize=True, **options)):
        try:
            bad()
        except (TypeError, ValueError):
            continue
        raise AssertionError(name)
    (weight * weight).sum().backward()
    params, half = optimizer.get_combined_params()
    grads, _ = optimizer.get_combined_grads()
    assert half is None and params.numel() == grads.numel() == 12
    grads.zero_()
    assert (weight.grad == 0).all()
print("all")
"""
    assert check(text, python) == "all\n"


def test_a_fused_optimizer_of_the_program(python):
    """A subclass as described in torch_npu's documentation, compared with torch.optim.SGD; with cases that Ascend's
    base class lacks: late and new gradients, loaded states, added groups."""
    text = """
import copy
import torch_npu, apex.amp
from torch_npu.optim.npu_fused_optim_base import NpuFusedOptimizerBase
from torch_npu.utils import npu_combine_tensors

class Momentum(NpuFusedOptimizerBase):
    def __init__(self, params, lr, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    def _maybe_init_combined_states(self):
        if self.is_states_combined:
            return
        self.combined_param_states_indexed_by_group = []
        for types in self.params_lists_indexed_by_group:
            states = []
            for parameters in types:
                for p in parameters:
                    if "momentum_buffer" not in self.state[p]:
                        self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                states.append(npu_combine_tensors([self.state[p]["momentum_buffer"] for p in parameters]))
            self.combined_param_states_indexed_by_group.append(states)
        self.is_states_combined = True

    def _group_step(self, group_index):
        group = self.param_groups[group_index]
        for x, grad, state in zip(
            self.combined_params_indexed_by_group[group_index],
            self.combined_grads_indexed_by_group[group_index],
            self.combined_param_states_indexed_by_group[group_index],
        ):
            if x is not None:
                state.mul_(group["momentum"]).add_(grad)
                x.add_(state, alpha=-group["lr"])

assert issubclass(torch_npu.optim.NpuFusedSGD, NpuFusedOptimizerBase)
def made(kind):
    torch.manual_seed(0)
    weights = [torch.randn(*shape).to(dtype).requires_grad_() for shape, dtype in (
        ((3, 2), torch.float32), ((0,), torch.float32), ((4,), torch.float32), ((5,), torch.float16),
        ((2,), torch.float32))]
    groups = [{"params": weights[:1]}, {"params": weights[1:4], "lr": 0.01}]
    return weights, kind(groups, lr=0.1, momentum=0.9)

ways = [made(torch.optim.SGD), made(Momentum)]
for step in range(8):
    for place, (weights, optimizer) in enumerate(ways):
        optimizer.zero_grad(set_to_none=False)
        if step == 4:  # as a run that goes on
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer.load_state_dict(saved)
        if step == 5:
            for weight in weights:
                weight.grad = None
        if step == 6:
            optimizer.add_param_group({"params": weights[4:], "lr": 0.02})
        loss = sum((weight.float() ** 2).sum() for weight in (weights if step % 3 else weights[:3]))
        loss.backward()
        if place:
            torch.testing.assert_close(optimizer.clip_grad_norm_fused_(1.5), norm)
            assert len(optimizer.get_combined_grads()) == len(optimizer.get_combined_params()) == 2
        else:
            known = [p for group in optimizer.param_groups for p in group["params"]]
            norm = torch.nn.utils.clip_grad_norm_(known, 1.5)
        assert optimizer.step(lambda: torch.tensor(3.0)).item() == 3
    for one, two in zip(*[weights for weights, _ in ways]):
        torch.testing.assert_close(one, two)
try:
    optimizer.zero_grad(set_to_none=True)
except ValueError as error:
    print(error)
x = torch.ones(2, dtype=torch.float64, requires_grad=True)
x.sum().backward()
base = NpuFusedOptimizerBase([torch.ones(1, requires_grad=True)], {})
for bad, refusal in ((Momentum([x], 0.1), TypeError), (base, NotImplementedError)):
    try:
        bad.step()
    except refusal:
        continue
    raise AssertionError(refusal)
model = torch.nn.Linear(2, 1)
model, optimizer = apex.amp.initialize(model, Momentum(model.parameters(), 0.01), opt_level="O2")
for _ in range(30):
    optimizer.zero_grad()
    loss = (model(torch.ones(4, 2)) - 1).square().mean()
    with apex.amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
assert loss < 0.1, loss
"""
    assert "set_to_none is not supported" in check(text, python)


def test_a_static_scale_never_skips(python):
    text = """
from torch_npu.npu.amp import GradScaler
import torch_npu.optim
weight = torch.ones(2, requires_grad=True)
optimizer = torch_npu.optim.NpuFusedSGD([weight], lr=1.0)
for dynamic in (True, False):
    scaler = GradScaler(init_scale=4.0, dynamic=dynamic)
    scaler.scale(weight.sum() * torch.tensor(float("inf"))).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(weight.isfinite().all().item(), scaler.get_scale())
"""
    lines = check(text, python).splitlines()
    assert lines == ["Gradient overflow. Skipping step", "True 2.0", "False 4.0"]


def test_gradients_are_unscaled_behind_the_step(python):
    """Scripts accumulate gradients or read their norm after the step, so they must be unscaled then."""
    text = """
import torch_npu.optim.npu_fused_optim_base as base, torch_npu.optim.npu_fused_sgd as sgd
from torch_npu.npu.amp import GradScaler
from torch_npu.optim import NpuFusedOptimizerBase, NpuFusedSGD
assert sgd.NpuFusedSGD is NpuFusedSGD and base.NpuFusedOptimizerBase is NpuFusedOptimizerBase
for dynamic in (True, False):
    weights = [torch.ones(3, requires_grad=True) for _ in range(2)]
    pairs = [
        (torch.optim.SGD([weights[0]], lr=0.5), torch.amp.GradScaler("cpu", init_scale=128.0)),
        (NpuFusedSGD([weights[1]], lr=0.5), GradScaler(init_scale=128.0, dynamic=dynamic)),
    ]
    for _ in range(3):
        for weight, (optimizer, scaler) in zip(weights, pairs):
            scaler.scale((weight * weight).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert torch.equal(weights[0].grad, weights[1].grad), weights[1].grad
    assert torch.equal(weights[0], weights[1])
print("same")
"""
    assert check(text, python) == "same\n"
