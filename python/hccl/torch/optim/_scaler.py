"""A GradScaler that lets the step of a fused optimizer unscale the gradients."""

from typing import Any, Optional

import torch
from torch.amp.grad_scaler import OptState

from hccl.torch.optim._base import FusedOptimizer, native


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler on the CPU, for fused and other optimizers.

    With a fused optimizer, step() reads the gradients once for the overflow check, and unscales
    them in the pass of the step. `scaler.step(optimizer, max_norm=1.0, zero_grad=True)` also clips
    and zeroes in that pass.

    deferred: for a fused optimizer, unscale_() only reads the gradients. The step unscales them,
    and also clips them if optimizer.clip_grad_norm_fused_() was called. Do not read gradients
    before the step, because they are still scaled.
    """

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        deferred: bool = False,
    ):
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
        self.deferred = deferred

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._enabled or not isinstance(optimizer, FusedOptimizer):
            return super().unscale_(optimizer)
        self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        factor = 1.0 / self._get_scale_async().double().item()
        norm = optimizer._norm(2.0)
        optimizer._record(self, norm)
        if self.deferred:
            optimizer._pending = (factor, norm)
        else:
            native.scale(optimizer.gradients(), factor)
        state["stage"] = OptState.UNSCALED
        return None

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        *args: Any,
        max_norm: Optional[float] = None,
        zero_grad: bool = False,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(optimizer, FusedOptimizer):
            if max_norm is not None or zero_grad:
                raise ValueError("hccl: max_norm and zero_grad need a fused optimizer")
            return super().step(optimizer, *args, **kwargs)
        if self._enabled:
            self._check_scale_growth_tracker("step")
            kwargs["scaler"] = self
        return optimizer.step(*args, max_norm=max_norm, zero_grad=zero_grad, **kwargs)
