"""apex.amp: one scaled loss, a fused optimizer. O0 to O2; 16-bit models keep master weights."""

import contextlib
from typing import Any, Iterator, Optional, Union

import torch

from hccl.torch import optim

_LEVELS = ("O0", "O1", "O2")


class _State:
    """The settings of initialize(), shared by its optimizers."""

    scaler: Optional[optim.GradScaler] = None
    fixed = False


_state = _State()


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    loss_scale: Union[str, float, None] = None,
    combine_grad: Optional[bool] = None,
    combine_ddp: Optional[bool] = None,
    dynamic_init_scale: float = 2.0**16,
    scale_growth_factor: float = 2.0,
    scale_backoff_factor: float = 0.5,
    scale_window: int = 2000,
    **ignored: Any,
) -> Any:
    """Prepares for scale_loss(). O1 only scales the loss and computes in the types of the model,
    because fp16 gains nothing on a CPU. O2 makes models fp16, except batch norms, and needs fused
    optimizers, which keep float32 master weights. combine_grad has no effect: the step reads all
    gradients in place in one pass."""
    if opt_level not in _LEVELS:
        raise RuntimeError(
            f"Unexpected optimization level {opt_level}. Options are 'O0', 'O1', 'O2'."
        )
    if combine_ddp:
        raise RuntimeError(
            'hccl: combine_ddp is not needed: DistributedDataParallel over the backend "hccl" '
            "reduces gradients in place"
        )
    fixed = loss_scale is not None and loss_scale != "dynamic"
    if enabled and opt_level != "O0":
        _state.scaler = optim.GradScaler(
            "cpu",
            dynamic_init_scale if loss_scale in (None, "dynamic") else float(loss_scale),
            scale_growth_factor,
            scale_backoff_factor,
            scale_window,
        )
        _state.fixed = fixed
    if enabled and opt_level == "O2":
        _to_half(models, optimizers)
    return models if optimizers is None else (models, optimizers)


def _to_half(models: Any, optimizers: Any) -> None:
    for optimizer in optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]:
        if optimizer is not None and not isinstance(optimizer, optim.FusedOptimizer):
            raise RuntimeError("hccl: O2 keeps master weights, which needs a fused optimizer")
        if optimizer is not None:
            optimizer.master_weights = True
    for model in models if isinstance(models, (list, tuple)) else [models]:
        for module in model.modules():
            if not isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                for parameter in module.parameters(recurse=False):
                    parameter.data = parameter.data.half()


@contextlib.contextmanager
def scale_loss(loss: torch.Tensor, optimizers: Any, **_: Any) -> Iterator[torch.Tensor]:
    """with amp.scale_loss(loss, optimizer) as scaled: scaled.backward(); then optimizer.step().

    At the end of the block gradients are unscaled. After an overflow the next step does nothing."""
    scaler = _state.scaler
    if scaler is None:
        yield loss
        return
    yield scaler.scale(loss)
    for optimizer in optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]:
        scaler.unscale_(optimizer)
        found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if any(value.item() for value in found.values()):
            _skip_next(optimizer)
    scale = scaler.get_scale()
    scaler.update(scale if _state.fixed else None)


def _skip_next(optimizer: torch.optim.Optimizer) -> None:
    step = optimizer.step

    def skip(*_: Any, **__: Any) -> None:
        print("Gradient overflow. Skipping step")
        optimizer.step = step

    optimizer.step = skip


def master_params(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Returns the parameters that the optimizer steps: master weights if it has them."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield optimizer.state.get(parameter, {}).get("master_param", parameter)


def state_dict() -> dict:
    return {} if _state.scaler is None else _state.scaler.state_dict()


def load_state_dict(state: dict) -> None:
    if _state.scaler is not None and state:
        _state.scaler.load_state_dict(state)
