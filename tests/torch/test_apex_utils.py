"""The smaller parts of apex, compared with their definitions: LARC, fp16_utils, multi_tensor_apply; combined
parameters."""

import numpy
import pytest
import torch

from hccl.torch.npu import _apex, _apex_optimizers, _apex_utils, _optimizers


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_larc_scales_gradients_by_layers():
    weights = [random(3, seed=i).requires_grad_() for i in range(2)]
    wanted = [weight.detach().double().numpy() for weight in weights]
    optimizer = _apex_utils.LARC(torch.optim.SGD(weights, 0.1, weight_decay=0.5), 0.02, clip=True)
    for scale in (1e-3, 10.0):  # the optimizer's rate applies, or LARC's
        for i, weight in enumerate(weights):
            weight.grad = random(3, seed=i + 2) * scale
            gradient = weight.grad.double().numpy()
            norms = numpy.linalg.norm(wanted[i]), numpy.linalg.norm(gradient)
            rate = min(0.1, 0.02 * norms[0] / (norms[1] + 0.5 * norms[0]))
            wanted[i] = wanted[i] - rate * (gradient + 0.5 * wanted[i])
        optimizer.step()
        for weight, each in zip(weights, wanted):
            numpy.testing.assert_allclose(weight.detach().numpy(), each, rtol=1e-5)
    weights[0].grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError):  # LARC must restore SGD's weight decay
        optimizer.step()
    assert optimizer.param_groups[0]["weight_decay"] == 0.5 and optimizer.state_dict()["param_groups"]


def test_fp16_utils():
    utils = _apex_utils.FP16_UTILS
    network = utils["network_to_half"](torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)))
    assert network(torch.rand(1, 1, 5, 5)).dtype == torch.float16
    assert network[1][1].weight.dtype == torch.float32 and network[1][0].weight.dtype == torch.float16
    with pytest.raises(NotImplementedError, match='use apex.amp.initialize with opt_level="O2"'):
        utils["FP16_Optimizer"](None)


def test_operations_over_lists():
    def add(chunk_size, flag, lists, factor):
        for x, y in zip(*lists):
            y += factor * x

    lists = [[torch.ones(2), torch.ones(3)], [torch.zeros(2), torch.zeros(3)]]
    _apex_utils.multi_tensor_applier(add, torch.zeros(1), lists, 2.0)
    assert [y.tolist() for y in lists[1]] == [[2, 2], [2, 2, 2]]
    assert not _apex_utils.multi_tensor_applier.available


@pytest.mark.parametrize("level", ["O0", "O2"])
def test_parameters_of_the_model_in_one_tensor(level):
    """A write to the combined tensors changes the model; after a step they are the same tensors."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = _optimizers.NpuFusedSGD(model.parameters(), 0.1)
    model, optimizer = _apex.initialize(model, optimizer, opt_level=level, loss_scale=1.0)
    for _ in range(2):
        with _apex.scale_loss(model(random(4, 3)).square().sum(), optimizer) as loss:
            loss.backward()
        combined = optimizer.get_model_combined_params()
        optimizer.step()
        optimizer.zero_grad()
    dtypes = [torch.float16, torch.float32] if level == "O2" else [torch.float32]
    assert [each.dtype for each in combined] == dtypes
    assert sum(each.numel() for each in combined) == 3 * 2 + 2 + 2 * 2
    again = optimizer.get_model_combined_params() if level == "O2" else combined
    assert [x.data_ptr() for x in again] == [x.data_ptr() for x in combined]
    for each in combined:
        each.fill_(0.25)
    assert all((parameter == 0.25).all() for parameter in model.parameters())


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("kind", [_optimizers.NpuFusedAdam, torch.optim.Adam])
def test_gradients_of_the_optimizer_in_one_tensor(level, kind):
    """A program clips the gradients in the combined tensors. amp adds the same methods to all optimizers."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = kind(model.parameters(), 0.1)
    model, optimizer = _apex.initialize(model, optimizer, opt_level=level, loss_scale=4.0, combine_grad=True)
    for _ in range(2):
        optimizer.zero_grad()
        with _apex.scale_loss(model(random(4, 3)).square().sum(), optimizer) as loss:
            loss.backward()
        grads = [p.grad for p in _apex.master_params(optimizer)]
        norm = torch.cat([grad.flatten() for grad in grads]).norm()
        combined, masks = optimizer.get_optimizer_combined_grads(), optimizer.get_optimizer_combined_grad_masks()
        assert len(combined) == (2 if level == "O2" else 1) and all(each.dtype == torch.float32 for each in combined)
        torch.testing.assert_close(torch.cat(combined).mul(torch.cat(masks)).norm(), norm)
        torch.testing.assert_close(optimizer.clip_optimizer_grad_norm_fused(norm.item() / 2), norm)
        torch.testing.assert_close(torch.cat(combined).norm(), norm / 2)
        for each in combined:
            each.fill_(0.5)
        assert all((grad == 0.5).all() for grad in grads)
        before = [p.clone() for p in model.parameters()]
        optimizer.step()
        assert all((now < p).all() for now, p in zip(model.parameters(), before))
    values = torch.cat(optimizer.get_optimizer_combined_params())
    assert sorted(values) == sorted(torch.cat([p.detach().flatten() for p in _apex.master_params(optimizer)]))
    if level == "O2":
        with pytest.raises(RuntimeError, match="only be used when opt_level='O1'"):
            optimizer.clip_model_grad_norm_fused(1.0)
    else:
        assert optimizer.clip_model_grad_norm_fused(1.0) > 0


def lamb(p, g, state, step, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, clip=1.0,
         adam_w_mode=True, grad_averaging=True, use_nvlamb=False):
    """apex's formula in float64."""
    g = g / clip + (0 if adam_w_mode else weight_decay * p)
    state["m"] = betas[0] * state["m"] + (1 - betas[0] if grad_averaging else 1) * g
    state["v"] = betas[1] * state["v"] + (1 - betas[1]) * g**2
    first, second = (1 - beta**step if bias_correction else 1 for beta in betas)
    u = state["m"] / first / ((state["v"] / second) ** 0.5 + eps) + (weight_decay * p if adam_w_mode else 0)
    norms = numpy.linalg.norm(p), numpy.linalg.norm(u)
    return p - lr * u * (norms[0] / norms[1] if (weight_decay or use_nvlamb) and min(norms) > 0 else 1)


def novograd(p, g, state, step, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, clip=1.0,
             reg_inside_moment=False, grad_averaging=True, norm_type=2, init_zero=False):
    norm = numpy.abs(g).max() if norm_type == 0 else (g**2).sum() ** 0.5
    old = state["n"] if step > 1 else 0.0 if init_zero else norm
    keep, rest = betas[1], 1 - betas[1]
    state["n"] = keep * old + rest * norm if norm_type == 0 else (keep * old**2 + rest * norm**2) ** 0.5
    first, second = (1 - beta**step if bias_correction else 1 for beta in betas)
    denominator = state["n"] / second**0.5 + eps
    x = g / denominator + weight_decay * p if reg_inside_moment else g
    state["m"] = betas[0] * state["m"] + (1 - betas[0] if grad_averaging else 1) * x
    u = state["m"] / first
    return p - lr * (u if reg_inside_moment else u / denominator + weight_decay * p)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FusedLAMB", {}),
        ("FusedLAMB", {"weight_decay": 0.0, "betas": (0.7, 0.9)}),
        ("FusedLAMB", {"weight_decay": 0.0, "use_nvlamb": True, "bias_correction": False}),
        ("FusedLAMB", {"adam_w_mode": False, "grad_averaging": False, "max_grad_norm": 2.0}),
        ("FusedNovoGrad", {}),
        ("FusedNovoGrad", {"betas": (0.95, 0.98), "weight_decay": 0.01, "init_zero": True}),
        ("FusedNovoGrad", {"weight_decay": 0.1, "reg_inside_moment": True, "grad_averaging": False}),
        ("FusedNovoGrad", {"norm_type": 0, "bias_correction": False, "betas": (0.9, 0.5)}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_optimizers_of_apex(name, options, dtype):
    """Compares with apex's formulas. Another optimizer, which loads the first one's checkpoint, makes half of the
    steps."""
    own, formula = getattr(_apex_optimizers, name), {"FusedLAMB": lamb, "FusedNovoGrad": novograd}[name]
    parameters = [random(*shape, seed=i).to(dtype).requires_grad_() for i, shape in enumerate(((3, 4), (5,), (2,)))]
    values = [p.detach().double().numpy() for p in parameters]
    states = [dict.fromkeys("mvn", 0.0) for _ in values]


    def made():
        return own([{"params": parameters[:1], "lr": 0.05}, {"params": parameters[1:]}], lr=0.02, **options)

    optimizer, limit = made(), options.get("max_grad_norm", 1.0)
    of_formula = {name: value for name, value in options.items() if name != "max_grad_norm"}
    for step in range(1, 7):
        gradients = [random(*p.shape, seed=10 * step + i).to(dtype) for i, p in enumerate(parameters)]
        norm = sum(g.double().square().sum().item() for g in gradients) ** 0.5
        for i, (p, gradient) in enumerate(zip(parameters, gradients)):
            p.grad = gradient
            how = dict(of_formula, lr=0.02 if i else 0.05, clip=max(1.0, norm / limit))
            values[i] = formula(values[i], gradient.double().numpy(), states[i], step, **how)
        if step == 4:
            before, optimizer = optimizer, made()
            optimizer.load_state_dict(before.state_dict())
        optimizer.step()
    bound = 1e-5 if dtype == torch.float32 else 0.02
    for p, value in zip(parameters, values):
        numpy.testing.assert_allclose(p.detach().double().numpy(), value, rtol=bound, atol=bound)
    optimizer.zero_grad()
    assert all(p.grad is None for p in parameters)
    with pytest.raises(RuntimeError, match="does not support the AMSGrad"):
        own(parameters, amsgrad=True)
