"""The optimizers of torch.optim, with the same arguments, states and trajectories."""

from typing import Iterable, Union

import torch

from hccl.torch.optim._base import FusedOptimizer, native

Lr = Union[float, torch.Tensor]
# Other keys of groups of torch's optimizers, which have no effect here.
_TORCHS = {"foreach": None, "differentiable": False}


class FusedSGD(FusedOptimizer):
    """torch.optim.SGD."""

    _rule = native.Rule.SGD
    _counts_steps = False
    _missing = {"nesterov": False, "maximize": False}

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
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = dict(
            lr=lr, momentum=momentum, dampening=dampening, fused=None, weight_decay=weight_decay,
            nesterov=nesterov, maximize=maximize, **_TORCHS
        )
        super().__init__(params, defaults, master_weights)

    def _state_names(self, group: dict) -> tuple:
        return ("momentum_buffer",) if group["momentum"] != 0 else (None,)

    def _flags(self, group: dict) -> int:
        return native.NESTEROV if group["nesterov"] else 0


class FusedAdam(FusedOptimizer):
    """torch.optim.Adam."""

    _rule = native.Rule.ADAM
    _decoupled = False
    _missing = {"amsgrad": False, "maximize": False}

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
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=None, amsgrad=amsgrad,
            maximize=maximize, capturable=False, decoupled_weight_decay=self._decoupled, **_TORCHS
        )
        super().__init__(params, defaults, master_weights)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = self._decoupled

    def _state_names(self, group: dict) -> tuple:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None)

    def _flags(self, group: dict) -> int:
        return native.DECOUPLED if self._decoupled else 0


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
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        defaults = dict(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=False,
            **_TORCHS
        )
        super().__init__(params, defaults, master_weights)


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
        defaults = dict(
            lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
            centered=centered, maximize=maximize, capturable=False, **_TORCHS
        )
        super().__init__(params, defaults, master_weights)

    def _state_names(self, group: dict) -> tuple:
        return (
            "square_avg",
            "momentum_buffer" if group["momentum"] > 0 else None,
            "grad_avg" if group["centered"] else None,
        )
