"""apex.amp: loss scaling, and half models with float32 master weights, by apex's levels.

O0 computes in float32. O1 scales the loss; models compute in float32, because float16 is not faster
on CPUs. With HCCL_HALF=bf16, O1 models use torch's autocast. O2 and O3 make models half: their
forward takes inputs of any floating type and returns float32. O2 keeps batch norms and master
weights in float32.

Levels, properties and error texts follow apex's documentation of amp.
"""

import contextlib
import dataclasses
import functools
import inspect
import types
from typing import Any, Callable, Iterator, Optional, Union

import torch
import torch.distributed as dist

from hccl.torch.npu import _apex_models, _optimizers, _parallel
from hccl.torch.npu._functions import HALF


@dataclasses.dataclass
class Properties:
    """The properties of a level. Arguments of initialize() override them."""

    enabled: bool = True
    opt_level: str = "O1"
    cast_model_type: Optional[torch.dtype] = None
    patch_torch_functions: bool = False
    keep_batchnorm_fp32: Optional[bool] = None
    master_weights: Optional[bool] = None
    loss_scale: Union[str, float] = 1.0


LEVELS = {
    "O0": Properties(True, "O0", torch.float32, False, None, False, 1.0),
    "O1": Properties(True, "O1", None, True, None, None, "dynamic"),
    "O2": Properties(True, "O2", HALF, False, True, True, "dynamic"),
    "O3": Properties(True, "O3", HALF, False, False, False, 1.0),
}


class LossScaler:
    """The scale of one loss. A dynamic scale halves after an overflow, and doubles after
    `scale_window` steps without overflow."""

    def __init__(
        self,
        scale: Union[str, float],
        number: int,
        min_loss_scale: Optional[float] = None,
        max_loss_scale: float = 2.0**24,
        dynamic_init_scale: float = 2.0**16,
        scale_growth_factor: float = 2.0,
        scale_backoff_factor: float = 0.5,
        scale_window: int = 2000,
    ):
        self.dynamic = scale == "dynamic"
        self._number = number
        self._growth, self._backoff = scale_growth_factor, scale_backoff_factor
        self._window = scale_window
        self._min, self._max = min_loss_scale, max_loss_scale
        first = min(max_loss_scale, dynamic_init_scale)
        self._loss_scale = float(first if self.dynamic else scale)
        self._unskipped = 0

    def loss_scale(self) -> float:
        return self._loss_scale

    def update(self, overflow: bool) -> None:
        if not overflow:
            self._unskipped += 1
            if self.dynamic and self._unskipped == self._window:
                self._loss_scale = min(self._max, self._loss_scale * self._growth)
                self._unskipped = 0
            return
        text = "Gradient overflow. Skipping step"
        if self.dynamic:
            self._unskipped = 0
            self._loss_scale = max(self._min or 0.0, self._loss_scale * self._backoff)
            text += f", loss scaler {self._number} reducing loss scale to {self._loss_scale}"
        print(text)


class _State:
    """The settings of initialize()."""

    opt_properties = Properties(enabled=False)
    loss_scalers: list = []


_amp_state = _State()


class _Stash:
    """amp's data about an optimizer."""

    def __init__(self) -> None:
        self.pairs: list = []  # (half parameter of the model, its master in the optimizer)
        self.delayed = False  # gradients are still scaled
        self.skip = False

    all_fp16_params = property(lambda self: [half for half, _ in self.pairs])
    all_fp32_from_fp16_params = property(lambda self: [master for _, master in self.pairs])


def _list(one_or_more: Any) -> list:
    if one_or_more is None:
        return []
    return list(one_or_more) if isinstance(one_or_more, (list, tuple)) else [one_or_more]


_OVERRIDES = [field.name for field in dataclasses.fields(Properties)][2:]
_LIMITS = list(inspect.signature(LossScaler).parameters)[2:]


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    *,
    cast_model_outputs: Optional[torch.dtype] = None,
    num_losses: int = 1,
    combine_ddp: Optional[bool] = None,
    **more: Any,
) -> Any:
    """Prepares models and optimizers, in place, and returns them as they were passed.

    Also takes the fields of Properties and the arguments of LossScaler. combine_ddp replaces
    DistributedDataParallel: scale_loss averages the gradients over the ranks. combine_grad has no
    effect, because steps read all gradients in place in one pass. verbosity has no effect."""
    if not enabled:
        _amp_state.opt_properties = Properties(enabled=False)
        return models if optimizers is None else (models, optimizers)
    if combine_ddp:
        for parameter in (each for model in _list(models) for each in model.parameters()):
            dist.broadcast(parameter.detach(), 0)
    properties = _overridden(opt_level, {name: more.get(name) for name in _OVERRIDES})
    limits = {name: more[name] for name in _LIMITS if name in more}
    scale = properties.loss_scale
    _amp_state.opt_properties = properties
    _amp_state.loss_scalers = [LossScaler(scale, i, **limits) for i in range(num_losses)]
    for model in _list(models):
        _apex_models.cast(model, properties, cast_model_outputs)
    for optimizer in _list(optimizers):
        _prepare(optimizer, bool(properties.master_weights))
        optimizer.combine_ddp = bool(combine_ddp)  # programs set it to False, too
    return models if optimizers is None else (models, optimizers)


def _overridden(opt_level: str, given: dict) -> Properties:
    if opt_level not in LEVELS:
        raise RuntimeError(
            f"Unexpected optimization level {opt_level}. Options are 'O0', 'O1', 'O2', 'O3'. Note "
            "that in `O0`, `O1`, etc., the prefix O is the letter O, not the number zero."
        )
    keep = given["keep_batchnorm_fp32"]
    if isinstance(keep, str):  # from command lines
        if keep not in ("True", "False"):
            raise RuntimeError(
                "keep_batchnorm_fp32 must be a boolean, the string 'True', or the string 'False', "
                f"found keep_batchnorm_fp32={keep}"
            )
        given["keep_batchnorm_fp32"] = keep == "True"
    if given["loss_scale"] not in (None, "dynamic"):
        given["loss_scale"] = float(given["loss_scale"])
    given = {name: value for name, value in given.items() if value is not None}
    for name in ("cast_model_type", "keep_batchnorm_fp32", "master_weights"):
        if opt_level == "O1" and given.get(name):
            raise RuntimeError(
                "With opt_level O1, the model weights themselves should remain FP32, so "
                f"{name} should be None or False, but was {given[name]}"
            )
    return dataclasses.replace(LEVELS[opt_level], **given)


# ---- optimizers ----


def _prepare(optimizer: torch.optim.Optimizer, master_weights: bool) -> None:
    stash = optimizer._amp_stash = _Stash()
    if master_weights:
        _give_masters(optimizer, stash)
    step, zero_grad, add = optimizer.step, optimizer.zero_grad, optimizer.add_param_group

    def with_masters(self: Any, closure: Optional[Callable] = None, **kwargs: Any) -> Any:
        if closure is not None and stash.pairs:
            raise RuntimeError("Currently, Amp does not support closure use with optimizers.")
        skip, stash.skip = stash.skip, False
        result = None if skip else step(closure, **kwargs)
        with torch.no_grad():
            for model, master in stash.pairs:
                model.copy_(master)
                master.grad = None  # the program may zero the model's gradients only
        return result

    def of_both(self: Any, *args: Any, **kwargs: Any) -> None:
        zero_grad(*args, **kwargs)
        for model, _ in stash.pairs:
            model.grad = None

    def with_their_masters(self: Any, group: dict) -> None:
        add(group)
        if master_weights:
            _give_masters(optimizer, stash)

    # Methods, because torch's learning-rate schedulers expect them.
    optimizer.step = types.MethodType(with_masters, optimizer)
    optimizer.zero_grad = types.MethodType(of_both, optimizer)
    optimizer.add_param_group = types.MethodType(with_their_masters, optimizer)
    for name, method in _optimizers.AMPS.items():
        setattr(optimizer, name, types.MethodType(method, optimizer))


def _give_masters(optimizer: torch.optim.Optimizer, stash: _Stash) -> None:
    for group in optimizer.param_groups:
        for i, parameter in enumerate(group["params"]):
            if parameter.dtype == torch.float32 or not parameter.is_floating_point():
                continue
            master = parameter.detach().float().requires_grad_(parameter.requires_grad)
            group["params"][i] = parameter._amp_master = master
            stash.pairs.append((parameter, master))
            if parameter in optimizer.state:
                own = optimizer.state.pop(parameter)
                optimizer.state[master] = _apex_models.converted(own, torch.float32)


# ---- the step ----


@contextlib.contextmanager
def scale_loss(
    loss: torch.Tensor,
    optimizers: Any,
    loss_id: int = 0,
    model: Any = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[torch.Tensor]:
    """with amp.scale_loss(loss, optimizer) as scaled: scaled.backward(); then optimizer.step().

    After the block, gradients are unscaled, and are float32 if there are master weights. After an
    overflow, the next step of these optimizers does nothing. Set delay_unscale if another backward
    follows before the step."""
    if not _amp_state.opt_properties.enabled:
        yield loss
        return
    scaler = _amp_state.loss_scalers[loss_id]
    scale = scaler.loss_scale()
    stashes = [(each, _stash_of(each)) for each in _list(optimizers)]
    for optimizer, stash in stashes:
        grads = _own_gradients(optimizer, stash)
        if stash.skip and grads:  # an earlier loss overflowed: drop its gradients
            torch._foreach_zero_(grads)
        elif not stash.delayed and scale != 1 and grads:  # backward adds scaled gradients to these
            torch._foreach_mul_(grads, scale)
    yield loss.float() * scale
    if delay_unscale:
        for _, stash in stashes:
            stash.delayed = True
        return
    overflow = False
    for optimizer, stash in stashes:
        if optimizer.combine_ddp:
            halves = [p.grad for p, _ in stash.pairs if p.grad is not None]
            _parallel.average(_own_gradients(optimizer, stash) + halves)
        overflow = _unscale(optimizer, stash, 1.0 / scale) or overflow
        stash.delayed = False
    scaler.update(overflow)
    if overflow:
        for _, stash in stashes:
            stash.skip = True


def _stash_of(optimizer: torch.optim.Optimizer) -> _Stash:
    stash = getattr(optimizer, "_amp_stash", None)
    if stash is None:
        raise RuntimeError("scale_loss: this optimizer was not passed to amp.initialize")
    return stash


def _own_gradients(optimizer: torch.optim.Optimizer, stash: _Stash) -> list:
    """Returns the gradients of parameters that have no master."""
    masters = {id(master) for _, master in stash.pairs}
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return [p.grad for p in parameters if p.grad is not None and id(p) not in masters]


@torch.no_grad()
def _unscale(optimizer: torch.optim.Optimizer, stash: _Stash, factor: float) -> bool:
    """Returns whether a gradient was not finite. Moves gradients of the model to the masters."""
    grads = _own_gradients(optimizer, stash)
    moved = []
    for parameter, master in stash.pairs:
        if parameter.grad is not None:
            moved.append((master, parameter.grad.float()))
            parameter.grad = None
    found, inverse = torch.zeros(1), torch.full((1,), factor)
    for each in (grads, [gradient for _, gradient in moved]):
        if each:
            torch._amp_foreach_non_finite_check_and_unscale_(each, found, inverse)
    for master, gradient in moved:
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
    return bool(found.item())


def master_params(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Returns the parameters that the optimizer steps: master weights if it has them."""
    for group in optimizer.param_groups:
        yield from group["params"]


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    with torch.autocast("cpu", enabled=False):
        yield


# ---- wraps functions of programs: they cast their inputs if autocast is on ----


def _casting(function: Callable, dtype_of: Callable) -> Callable:
    @functools.wraps(function)
    def with_casts(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        args, kwargs = _apex_models.converted((args, kwargs), dtype_of((args, kwargs)))
        with disable_casts():
            return function(*args, **kwargs)

    return with_casts


# Decorators. They cast floating arguments to half, to float32, or to the widest of their types.
half_function = functools.partial(_casting, dtype_of=lambda arguments: HALF)
float_function = functools.partial(_casting, dtype_of=lambda arguments: torch.float32)
promote_function = functools.partial(_casting, dtype_of=_apex_models.widest)


def _registering(decorate: Callable) -> Callable:
    def register(module: Any, function_name: str) -> None:
        if not hasattr(module, function_name):
            raise ValueError(f"No function named {function_name} in module {module}.")
        setattr(module, function_name, decorate(getattr(module, function_name)))

    return register


register_half_function = _registering(half_function)
register_float_function = _registering(float_function)
register_promote_function = _registering(promote_function)


def state_dict() -> dict:
    return {
        f"loss_scaler{i}": {"loss_scale": each._loss_scale, "unskipped": each._unskipped}
        for i, each in enumerate(_amp_state.loss_scalers)
    }


def load_state_dict(state: dict) -> None:
    """Prints a warning if the number of losses differs. RuntimeError: a key of `state` does not
    begin with loss_scaler."""
    if len(state) != len(_amp_state.loss_scalers):
        print(
            f"Warning: state_dict contains {len(state)} entries, while "
            f"{len(_amp_state.loss_scalers)} loss_scalers are used"
        )
    for name, values in state.items():
        number = name.removeprefix("loss_scaler")
        if number == name:
            raise RuntimeError(f"amp.load_state_dict: unexpected key {name}")
        if int(number) < len(_amp_state.loss_scalers):
            scaler = _amp_state.loss_scalers[int(number)]
            scaler._loss_scale = float(values["loss_scale"])
            scaler._unskipped = int(values["unskipped"])
