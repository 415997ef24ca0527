"""The optimizers that torch.optim has, too: the same arguments, states and trajectories."""

from typing import Any, Iterable, Union

import torch

from hccl.torch.optim._base import FusedOptimizer, check, check_betas, native

Lr = Union[float, torch.Tensor]
# What torch's optimizers keep in a group besides; they mean nothing here.
_TORCHS = {"foreach": None, "differentiable": False}


def _sign(group: dict) -> float:
    return -1.0 if group.get("maximize") else 1.0


class FusedSGD(FusedOptimizer):
    """torch.optim.SGD."""

    _rule = native.Rule.SGD
    _counts_steps = False

    def __init__(
        self,
        params: Iterable,
        lr: Lr = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        master_weights: bool = False,
    ):
        check("learning rate", lr)
        check("momentum value", momentum)
        check("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = dict(
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            fused=None,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
            **_TORCHS,
        )
        super().__init__(params, defaults, master_weights)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("nesterov", False)
            group.setdefault("maximize", False)

    def _state_names(self, group: dict) -> tuple:
        return ("momentum_buffer",) if group["momentum"] != 0 else (None,)

    def _numbers(self, group: dict, step: float) -> Any:
        return native.Numbers(
            lr=float(group["lr"]),
            momentum=group["momentum"],
            dampening=group["dampening"],
            weight_decay=group["weight_decay"],
            factor=_sign(group),
            flags=native.NESTEROV if group["nesterov"] else 0,
        )


class FusedAdam(FusedOptimizer):
    """torch.optim.Adam."""

    _rule = native.Rule.ADAM
    _decoupled = False

    def __init__(
        self,
        params: Iterable,
        lr: Lr = 1e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        master_weights: bool = False,
    ):
        check("learning rate", lr)
        check("epsilon value", eps)
        check_betas(betas)
        check("weight_decay value", weight_decay)
        defaults = dict(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            fused=None,
            amsgrad=amsgrad,
            maximize=maximize,
            capturable=False,
            decoupled_weight_decay=self._decoupled,
            **_TORCHS,
        )
        super().__init__(params, defaults, master_weights)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("amsgrad", False)
            group.setdefault("maximize", False)
            group["decoupled_weight_decay"] = self._decoupled

    def _state_names(self, group: dict) -> tuple:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None)

    def _numbers(self, group: dict, step: float) -> Any:
        beta1, beta2 = group["betas"]
        return native.Numbers(
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            factor=_sign(group),
            flags=native.DECOUPLED if self._decoupled else 0,
        )


class FusedAdamW(FusedAdam):
    """torch.optim.AdamW."""

    _decoupled = True

    def __init__(
        self,
        params: Iterable,
        lr: Lr = 1e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        master_weights: bool = False,
    ):
        super().__init__(
            *(params, lr, betas, eps, weight_decay, amsgrad),
            maximize=maximize,
            master_weights=master_weights,
        )


class FusedAdadelta(FusedOptimizer):
    """torch.optim.Adadelta."""

    _rule = native.Rule.ADADELTA
    _states = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Iterable,
        lr: Lr = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        master_weights: bool = False,
    ):
        check("learning rate", lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check("epsilon value", eps)
        check("weight_decay value", weight_decay)
        defaults = dict(
            lr=lr,
            rho=rho,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            capturable=False,
            **_TORCHS,
        )
        super().__init__(params, defaults, master_weights)

    def _numbers(self, group: dict, step: float) -> Any:
        return native.Numbers(
            lr=float(group["lr"]),
            beta2=group["rho"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            factor=_sign(group),
        )


class FusedRMSprop(FusedOptimizer):
    """torch.optim.RMSprop."""

    _rule = native.Rule.RMSPROP

    def __init__(
        self,
        params: Iterable,
        lr: Lr = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
        master_weights: bool = False,
    ):
        check("learning rate", lr)
        check("epsilon value", eps)
        check("momentum value", momentum)
        check("weight_decay value", weight_decay)
        check("alpha value", alpha)
        defaults = dict(
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
            capturable=False,
            **_TORCHS,
        )
        super().__init__(params, defaults, master_weights)

    def _state_names(self, group: dict) -> tuple:
        return (
            "square_avg",
            "momentum_buffer" if group["momentum"] > 0 else None,
            "grad_avg" if group["centered"] else None,
        )

    def _numbers(self, group: dict, step: float) -> Any:
        return native.Numbers(
            lr=float(group["lr"]),
            beta2=group["alpha"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            factor=_sign(group),
        )
