"""apex's LAMB and NovoGrad, with torch's operations. They compute in float32. States have the types
of their parameters."""

import math
from typing import Any

import torch


class _ByTensors(torch.optim.Optimizer):
    """Steps parameter by parameter."""

    def __init__(self, params: Any, amsgrad: bool, set_grad_none: bool, defaults: dict) -> None:
        if amsgrad:
            raise RuntimeError(f"{type(self).__name__} does not support the AMSGrad variant.")
        self._set_to_none = set_grad_none
        super().__init__(params, defaults)

    def zero_grad(self, set_to_none: Any = None) -> None:
        super().zero_grad(self._set_to_none if set_to_none is None else set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        gradients = [gradient for gradient in gradients if gradient is not None]
        if any(gradient.is_sparse for gradient in gradients):
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
        self._begin(gradients)
        for group in self.param_groups:
            step = group["step"] = group.get("step", 0) + 1
            corrections = [1.0, 1.0]
            if group["bias_correction"]:
                corrections = [1 - beta**step for beta in group["betas"]]
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state.setdefault("exp_avg", torch.zeros_like(p))
                    update = self._update(p.float(), p.grad.float(), state, group, corrections)
                    p.sub_(group["lr"] * update)
        return loss

    def _begin(self, gradients: list) -> None:
        pass

    def _update(self, p: Any, g: Any, state: dict, group: dict, corrections: list) -> Any:
        """Returns the value to subtract from the parameter, without the learning rate."""
        raise NotImplementedError


def _averaged(state: torch.Tensor, beta: float, x: Any) -> torch.Tensor:
    return state.copy_(beta * state.float() + x).float()


def _mean(state: dict, group: dict, x: Any) -> torch.Tensor:
    beta = group["betas"][0]
    return _averaged(state["exp_avg"], beta, (1 - beta if group["grad_averaging"] else 1.0) * x)


class FusedLAMB(_ByTensors):
    """apex's LAMB: clips by the norm of all gradients and corrects biases. Uses the ratio of norms
    only for weights that decay or, with use_nvlamb, for all weights."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        self._decoupled, self._ratio_of_all = adam_w_mode, use_nvlamb
        defaults = dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps)
        defaults |= dict(grad_averaging=grad_averaging, max_grad_norm=max_grad_norm)
        super().__init__(params, amsgrad, set_grad_none, defaults | dict(weight_decay=weight_decay))

    def _begin(self, gradients: list) -> None:
        squares = sum(gradient.float().square().sum().item() for gradient in gradients)
        self._clip = max(1.0, math.sqrt(squares) / self.defaults["max_grad_norm"])

    def _update(self, p: Any, g: Any, state: dict, group: dict, corrections: list) -> Any:
        decay, beta2 = group["weight_decay"], group["betas"][1]
        g = g / self._clip if self._decoupled else g / self._clip + decay * p
        mean = _mean(state, group, g) / corrections[0]
        squares = state.setdefault("exp_avg_sq", torch.zeros_like(state["exp_avg"]))
        square = _averaged(squares, beta2, (1 - beta2) * g * g) / corrections[1]
        update = mean / (square.sqrt() + group["eps"])
        if self._decoupled:
            update += decay * p
        norms = p.norm().item(), update.norm().item()
        if (decay or self._ratio_of_all) and all(norms):
            update *= norms[0] / norms[1]
        return update


class FusedNovoGrad(_ByTensors):
    """apex's NovoGrad. With norm_type 0, uses the largest magnitude as the norm. The state
    "exp_avg_sq" is a number, the average of norms."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        reg_inside_moment: bool = False,
        grad_averaging: bool = True,
        norm_type: int = 2,
        init_zero: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        if norm_type not in (0, 2):
            raise RuntimeError("FusedNovoGrad only support l2/inf norm now.")
        self._decay_inside = reg_inside_moment
        defaults = dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps)
        defaults |= dict(grad_averaging=grad_averaging, norm_type=norm_type, init_zero=init_zero)
        super().__init__(params, amsgrad, set_grad_none, defaults | dict(weight_decay=weight_decay))

    def _update(self, p: Any, g: Any, state: dict, group: dict, corrections: list) -> Any:
        decay, beta2, power = group["weight_decay"], group["betas"][1], group["norm_type"] or 1
        norm = g.norm(2 if group["norm_type"] else math.inf).item()
        before = state.get("exp_avg_sq", 0.0 if group["init_zero"] else norm)
        average = (beta2 * before**power + (1 - beta2) * norm**power) ** (1 / power)
        state["exp_avg_sq"] = average
        denominator = average / math.sqrt(corrections[1]) + group["eps"]
        if self._decay_inside:
            return _mean(state, group, g / denominator + decay * p) / corrections[0]
        return _mean(state, group, g) / corrections[0] / denominator + decay * p


APEXS = {"FusedLAMB": FusedLAMB, "FusedNovoGrad": FusedNovoGrad}
