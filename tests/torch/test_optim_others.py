"""The optimizers that torch lacks, compared with their formulas in float64."""

import copy
import math
import pickle

import pytest
import torch
from test_optim import parameters, relative, run, same_bits, tensors

from hccl.torch import optim

SHAPES = [(3,), (17, 5), (64,), (1,), (130, 67), (20000,), (4, 3, 3, 3)]


class Formula:
    """The trajectory of a parameter; update(g) is the optimizer's formula, and t counts its steps from 1."""

    def __init__(self, p, **options):
        self.p, self.t, self.v, self.m = p.clone(), 0, torch.zeros_like(p), torch.zeros_like(p)
        self.buffer, self.mean = torch.zeros_like(p), torch.zeros_like(p)
        self.__dict__.update(options)

    def step(self, g):
        self.t += 1
        self.update(g)

    def moments(self, g, b1, b2):
        self.m = b1 * self.m + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * g * g


class Lamb(Formula):
    lr, betas, eps, weight_decay, adam = 1e-3, (0.9, 0.999), 1e-6, 0, False

    def update(self, g):
        self.moments(g, *self.betas)
        u = self.m / (self.v.sqrt() + self.eps) + self.weight_decay * self.p
        p_norm, u_norm = self.p.norm().clamp(0, 10), u.norm()
        trust = 1.0 if self.adam or p_norm == 0 or u_norm == 0 else p_norm / u_norm
        self.p = self.p - self.lr * trust * u


class AdamP(Formula):
    lr, betas, eps, weight_decay = 1e-3, (0.9, 0.999), 1e-8, 0
    delta, wd_ratio, nesterov = 0.1, 0.1, False

    def update(self, g):
        b1, b2 = self.betas
        self.moments(g, b1, b2)
        top = b1 * self.m + (1 - b1) * g if self.nesterov else self.m
        u = top / (self.v.sqrt() / math.sqrt(1 - b2**self.t) + self.eps)
        ratio = 1.0
        if self.p.dim() > 1:
            for view in ((self.p.shape[0], -1), (1, -1)):
                p, gv, uv = self.p.reshape(view), g.reshape(view), u.reshape(view)
                p_norm = p.norm(dim=1, keepdim=True) + self.eps
                cosine = (gv * p).sum(1).abs() / (gv.norm(dim=1) + self.eps) / p_norm.squeeze(1)
                if cosine.max() < self.delta / math.sqrt(p.shape[1]):
                    unit = p / p_norm
                    u = (uv - unit * (unit * uv).sum(1, keepdim=True)).reshape(u.shape)
                    ratio = self.wd_ratio
                    break
        p = self.p * (1 - self.lr * self.weight_decay * ratio) if self.weight_decay else self.p
        self.p = p - self.lr / (1 - b1**self.t) * u


class RMSpropTF(Formula):
    lr, alpha, eps, weight_decay, momentum = 1e-2, 0.9, 1e-10, 0, 0.0
    centered, decoupled_decay, lr_in_momentum = False, False, True

    def update(self, g):
        if self.t == 1:
            self.v = torch.ones_like(self.p)
        if self.weight_decay and self.decoupled_decay:
            self.p = self.p * (1 - self.weight_decay)
        elif self.weight_decay:
            g = g + self.weight_decay * self.p
        self.v = self.v + (1 - self.alpha) * (g * g - self.v)
        square = self.v
        if self.centered:
            self.mean = self.mean + (1 - self.alpha) * (g - self.mean)
            square = square - self.mean**2
        u = g / (square + self.eps).sqrt()
        if self.momentum and self.lr_in_momentum:
            self.buffer = self.momentum * self.buffer + self.lr * u
            self.p = self.p - self.buffer
        elif self.momentum:
            self.buffer = self.momentum * self.buffer + u
            self.p = self.p - self.lr * self.buffer
        else:
            self.p = self.p - self.lr * u


class BertAdam(Formula):
    lr, warmup, t_total, schedule = 1e-3, -1, -1, "warmup_linear"
    b1, b2, e, weight_decay, max_grad_norm = 0.9, 0.999, 1e-6, 0.01, 1.0

    def rate(self):
        if self.t_total == -1:
            return self.lr
        x = (self.t - 1) / self.t_total
        if x < self.warmup:
            return self.lr * x / self.warmup
        return (
            self.lr
            * {
                "warmup_cosine": 0.5 * (1 + math.cos(math.pi * x)),
                "warmup_constant": 1.0,
                "warmup_linear": max((x - 1) / (self.warmup - 1), 0),
                "warmup_poly": max(1 - x, 0) ** 0.5,
            }[self.schedule]
        )

    def update(self, g):
        self.moments(g, self.b1, self.b2)
        u = self.m / (self.v.sqrt() + self.e) + self.weight_decay * self.p
        self.p = self.p - self.rate() * u


CASES = [
    (Lamb, {"lr": 0.02}),
    (Lamb, {"lr": 0.02, "weight_decay": 0.1, "betas": (0.7, 0.9)}),
    (Lamb, {"lr": 0.02, "adam": True}),
    (AdamP, {"lr": 0.02}),
    (AdamP, {"lr": 0.02, "weight_decay": 0.1, "delta": 0.6, "nesterov": True}),
    (AdamP, {"lr": 0.02, "weight_decay": 0.1, "delta": 3.0, "wd_ratio": 0.5}),
    (RMSpropTF, {"lr": 0.02}),
    (RMSpropTF, {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.01}),
    (RMSpropTF, {"lr": 0.02, "momentum": 0.9, "lr_in_momentum": False, "centered": True}),
    (RMSpropTF, {"weight_decay": 0.01, "decoupled_decay": True}),
    (BertAdam, {"lr": 0.02}),
    (BertAdam, {"lr": 0.02, "warmup": 0.3, "t_total": 25, "max_grad_norm": -1}),
    *(
        (BertAdam, {"lr": 0.02, "warmup": 0.1, "t_total": 15, "schedule": f"warmup_{name}"})
        for name in ("cosine", "constant", "linear", "poly")
    ),
]
each_case = pytest.mark.parametrize(
    "formula, options", CASES, ids=lambda x: getattr(x, "__name__", "")
)


def expected(formula, options, steps, dtype):
    them = [formula(p.double(), **options) for p in tensors(0, dtype, SHAPES)]
    for seed in range(1, steps + 1):
        gradients = [g.double() for g in tensors(seed, shapes=SHAPES)]
        limit = getattr(formula, "max_grad_norm", None) and options.get("max_grad_norm", 1.0)
        if limit and limit > 0:
            norm = math.sqrt(sum((g * g).sum().item() for g in gradients))
            gradients = [g * min(1, limit / (norm + 1e-6)) for g in gradients]
        for one, gradient in zip(them, gradients):
            one.step(gradient)
    return [one.p for one in them]


def make(formula, options, dtype=torch.float32):
    them = parameters(dtype, SHAPES)
    return getattr(optim, f"Fused{formula.__name__}")(them, **options), them


@each_case
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_follows_the_formula(formula, options, dtype, limit):
    optimizer, them = make(formula, options, dtype)
    run(optimizer, them, 20)
    assert relative(them, expected(formula, options, 20, dtype)) < limit


@each_case
def test_goes_on_from_a_checkpoint(formula, options, tmp_path):
    straight, there = make(formula, options)
    run(straight, there, 8)
    begun, them = make(formula, options)
    run(begun, them, 5)
    torch.save(begun.state_dict(), tmp_path / "checkpoint")
    loaded, _ = make(formula, options)
    loaded = type(loaded)(them, **options)
    loaded.load_state_dict(torch.load(tmp_path / "checkpoint"))
    run(loaded, them, 3, 6)
    assert same_bits(them, there)


@each_case
def test_bits_do_not_depend_on_threads(formula, options):
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            optimizer, them = make(formula, options)
            results.append(run(optimizer, them, 3))
        finally:
            torch.set_num_threads(1)
    assert all(same_bits(results[0], other) for other in results[1:])


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_lamb_divides_by_the_global_norm_if_it_exceeds_one(size):
    gradient = torch.tensor([3.0, 4.0]) * size
    results = []
    for options, given in (
        ({"use_global_grad_norm": True}, gradient),
        ({}, gradient / max(1.0, 5.0 * size)),
    ):
        weight = torch.ones(2, requires_grad=True)
        weight.grad = given.clone()
        optim.FusedLamb([weight], **options).step()
        results.append(weight.detach())
    torch.testing.assert_close(*results)


def test_adamp_takes_rows_or_says_that_it_cannot():
    weight = torch.zeros(4, 6).t().requires_grad_()
    weight.grad = torch.ones(6, 4)
    with pytest.raises(RuntimeError, match="parameter 0 of group 0: its rows are not contiguous"):
        optim.FusedAdamP([weight]).step()


@pytest.mark.parametrize(
    "options", [{"schedule": "warmup"}, {"warmup": 1.5}, {"b1": 1.0}, {"lr": -1}]
)
def test_bert_adam_checks_its_arguments(options):
    with pytest.raises(ValueError, match="Invalid"):
        optim.FusedBertAdam(parameters(), **options)


@pytest.mark.parametrize("options", [{"lr": -1}, {"betas": (0.9, 1.0)}, {"delta": -0.1}])
def test_adamp_checks_its_arguments(options):
    with pytest.raises(ValueError, match="Invalid"):
        optim.FusedAdamP(parameters(), **options)


CLASSES = [
    ("FusedSGD", {"momentum": 0.9}),
    ("FusedAdamW", {"master_weights": True}),
    ("FusedLamb", {"adam": True, "use_global_grad_norm": True}),
    ("FusedBertAdam", {"max_grad_norm": 0.5}),
]


def test_copies_go_their_own_way():
    optimizer, them = make(Lamb, {})
    run(optimizer, them, 2)
    twin, those = copy.deepcopy((optimizer, them))
    run(optimizer, them, 1, 3)
    run(twin, those, 1, 3)
    assert same_bits(them, those)


@pytest.mark.parametrize("way", ["pickle", "save", "deepcopy"])
@pytest.mark.parametrize("kind, options", CLASSES)
@pytest.mark.parametrize("scheduled", [True, False])
def test_copies_with_a_scheduler_and_hooks(kind, options, way, scheduled, tmp_path):
    """Schedulers replace the optimizer's step(). Copies have their own step()."""
    them = parameters(torch.bfloat16, SHAPES[:3])
    optimizer = getattr(optim, kind)(them, lr=0.1, **options)
    if scheduled:
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        optimizer.register_step_pre_hook(lambda *_: None)
    run(optimizer, them, 2)
    if scheduled:
        schedule.step()
    if way == "pickle":
        twin, those = pickle.loads(pickle.dumps((optimizer, them)))
    elif way == "save":
        torch.save((optimizer, them), tmp_path / "saved")
        twin, those = torch.load(tmp_path / "saved", weights_only=False)
    else:
        twin, those = copy.deepcopy((optimizer, them))
    before = [p.detach().clone() for p in them]
    run(twin, those, 1, 3)
    assert same_bits(them, before)
    run(optimizer, them, 1, 3)
    assert same_bits(them, those) and not same_bits(them, before)
