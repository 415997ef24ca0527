"""The optimizers that torch.optim does not have."""

import math
from typing import Any, Callable, Iterable

from hccl.torch.optim._base import FusedOptimizer, check, native
from hccl.torch.optim._torchs import FusedRMSprop


class FusedAdamP(FusedOptimizer):
    """AdamP (Heo et al., 2020): removes the part of updates that only rescales weights."""

    _rule = native.Rule.ADAMP
    _states = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        nesterov: bool = False,
        *,
        master_weights: bool = False,
    ):
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, delta=delta, wd_ratio=wd_ratio,
            nesterov=nesterov
        )
        super().__init__(params, defaults, master_weights)

    def _flags(self, group: dict) -> int:
        return native.NESTEROV if group["nesterov"] else 0


class FusedLamb(FusedOptimizer):
    """LAMB (You et al., 2019) without bias correction. adam: does not use the ratio of norms.
    use_global_grad_norm: divides gradients by the norm over all groups if that norm exceeds 1."""

    _rule = native.Rule.LAMB
    _states = ("exp_avg", "exp_avg_sq")
    _kept = (*FusedOptimizer._kept, "adam", "use_global_grad_norm")
    _unchecked = ("weight_decay",)

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        adam: bool = False,
        use_global_grad_norm: bool = False,
        *,
        master_weights: bool = False,
    ):
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.adam = adam
        self.use_global_grad_norm = use_global_grad_norm
        super().__init__(params, defaults, master_weights)

    def _needs_all_gradients(self) -> bool:
        return self.use_global_grad_norm

    def _factor(self, *arguments: Any) -> Any:
        factor = super()._factor(*arguments)
        if factor is not None and self.use_global_grad_norm:
            factor /= max(1.0, self._norm(2.0)[0] * abs(factor))
        return factor

    def _flags(self, group: dict) -> int:
        return native.NO_TRUST if self.adam else 0


class FusedRMSpropTF(FusedOptimizer):
    """RMSprop as in TensorFlow: eps is inside the root, and the averages of squares start at one.
    decoupled_decay subtracts weight_decay times the parameter, without the learning rate."""

    _rule = native.Rule.RMSPROP_TF
    _state_names = FusedRMSprop._state_names
    _missing = {"momentum": 0, "centered": False}

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-2,
        alpha: float = 0.9,
        eps: float = 1e-10,
        weight_decay: float = 0,
        momentum: float = 0.0,
        centered: bool = False,
        decoupled_decay: bool = False,
        lr_in_momentum: bool = True,
        *,
        master_weights: bool = False,
    ):
        defaults = dict(
            lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
            centered=centered, decoupled_decay=decoupled_decay, lr_in_momentum=lr_in_momentum
        )
        super().__init__(params, defaults, master_weights)

    def _initial_of(self, name: str) -> float:
        return 1.0 if name == "square_avg" else 0.0

    def _flags(self, group: dict) -> int:
        flags = native.DECOUPLED if group["decoupled_decay"] else 0
        return flags | (native.LR_IN_MOMENTUM if group["lr_in_momentum"] else 0)


def _rest(x: float) -> float:
    return max(1.0 - x, 0.0)


# The factors of the learning rate after the warm-up, as functions of the progress x.
SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "warmup_cosine": lambda x, warmup: 0.5 * (1.0 + math.cos(math.pi * x)),
    "warmup_constant": lambda x, warmup: 1.0,
    "warmup_linear": lambda x, warmup: max((x - 1.0) / (warmup - 1.0), 0.0),
    "warmup_poly": lambda x, warmup: _rest(x) ** 0.5,
}


class FusedBertAdam(FusedOptimizer):
    """BERT's Adam: no bias correction, decoupled decay, and a schedule of its own. If max_grad_norm
    is positive, the gradients of each group are clipped to that norm.

    The schedule at step/t_total multiplies lr. If t_total is -1, lr is constant.
    """

    _rule = native.Rule.BERT_ADAM
    _clips: dict = {}  # for each group whose gradients are clipped: the factor of this step
    _states = ("exp_avg", "exp_avg_sq")
    _unchecked = ("weight_decay",)

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        warmup: float = -1,
        t_total: int = -1,
        schedule: str = "warmup_linear",
        b1: float = 0.9,
        b2: float = 0.999,
        e: float = 1e-6,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
        *,
        master_weights: bool = False,
    ):
        if schedule not in SCHEDULES:
            raise ValueError(f"Invalid schedule parameter: {schedule}")
        if not (0.0 <= warmup < 1.0 or warmup == -1):
            raise ValueError(f"Invalid warmup: {warmup} - should be in [0.0, 1.0[ or -1")
        check("b1", b1, below=1.0)
        check("b2", b2, below=1.0)
        check("e", e)
        defaults = dict(
            lr=lr, schedule=schedule, warmup=warmup, t_total=t_total, b1=b1, b2=b2, e=e,
            weight_decay=weight_decay, max_grad_norm=max_grad_norm
        )
        super().__init__(params, defaults, master_weights)

    def _needs_all_gradients(self) -> bool:
        return any(group["max_grad_norm"] > 0 for group in self.param_groups)

    def _factor(self, *arguments: Any) -> Any:
        factor = super()._factor(*arguments)
        self._clips = {}
        if factor is None:
            return None
        for group in self.param_groups:
            gradients = [p.grad for p in group["params"] if p.grad is not None]
            if group["max_grad_norm"] > 0 and gradients:
                norm = math.sqrt(native.norms(gradients)[0]) * abs(factor)
                self._clips[id(group)] = min(1.0, group["max_grad_norm"] / (norm + 1e-6))
        return factor

    def get_lr(self) -> list:
        """Returns the next step's learning rate of each parameter that has a gradient; [0] before
        the first step."""
        rates = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if not self.state[parameter]:
                        return [0]
                    rates.append(self._rate(group, self.state[parameter]["step"].item()))
        return rates

    @staticmethod
    def _rate(group: dict, done: float) -> float:
        if group["t_total"] == -1:
            return float(group["lr"])
        x = done / group["t_total"]
        if x < group["warmup"]:
            return group["lr"] * x / group["warmup"]
        return group["lr"] * SCHEDULES[group["schedule"]](x, group["warmup"])

    def _numbers(self, group: dict, step: float) -> Any:
        return native.Numbers(
            lr=self._rate(group, step - 1),
            beta1=group["b1"],
            beta2=group["b2"],
            eps=group["e"],
            weight_decay=group["weight_decay"],
            factor=self._clips.get(id(group), 1.0),
        )
