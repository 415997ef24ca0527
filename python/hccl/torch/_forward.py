"""Runs the next forward pass during the reductions of the last backward pass. The newest gradients
are reduced first."""

import copy
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from hccl.torch.optim import FusedOptimizer

_LEARNING = 20  # iterations in the plain order: two windows of the automatic plan


class _Hook:
    """A module's hook. In a deep or pickled copy of the module it does nothing."""

    def __init__(self, action: Callable[[Any], None] | None = None) -> None:
        self._action = action

    def __call__(self, module: torch.nn.Module, *_: Any) -> None:
        if self._action is not None:
            self._action(module)

    def __reduce__(self) -> tuple[type, tuple]:
        return _Hook, ()


class ForwardOverlap:
    """Manages gradients in flight, from backward until the step of their weights. The step runs on
    the main thread, when forward or another reader needs the weights."""

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: FusedOptimizer,
        parameters: Sequence[torch.nn.Parameter],
        views: Sequence[torch.Tensor],
        plan: Any,
    ) -> None:
        _check(optimizer, parameters, plan.gradients)
        self._module, self._optimizer, self._plan = module, optimizer, plan
        self._parameters, self._views, self._names = parameters, views, plan.gradients
        self._called: set[torch.nn.Module] = set()  # modules whose forward ran while learning
        self._learnt = 0  # number of iterations while learning
        # While learning there is one message, which is reduced when backward ends.
        self._complete: list[list[int]] = [list(range(len(parameters)))]  # gradients, by message
        self._parts: list[set[int]] = []  # for each message: gradients with a part in it
        self._in: list[list[int]] = []  # messages with a part of each gradient
        self._missing: list[int] = []  # gradients of each message that are not ready
        self._needs: dict[torch.nn.Module, int] = {}  # the last message that its forward waits for
        self._at_step = 0  # the last message that step() waits for
        self._landed = 0  # number of messages for which the program has waited
        self._in_flight = False
        self._numbers: list[dict] | None = None  # the optimizer's numbers at step()
        self._handles = list(self._watch())
        self._end = weakref.finalize(self, plan.end)  # other ranks may wait for messages in flight

    def _watch(self) -> Iterator[Any]:
        land = _Hook(lambda _: self.synchronize())
        for module in self._module.modules():
            yield module.register_forward_pre_hook(_Hook(self._before_forward), prepend=True)
            yield module.register_state_dict_pre_hook(land)
            yield module.register_load_state_dict_pre_hook(land)
        yield self._optimizer.register_state_dict_pre_hook(land)
        yield self._optimizer.register_load_state_dict_pre_hook(land)
        yield self._optimizer.register_step_pre_hook(self._before_step)

    def remove(self) -> None:
        self.synchronize()
        for handle in self._handles:
            handle.remove()
        self._end.detach()

    # ---- Backward. ----

    def begin_backward(self) -> None:
        if self._in_flight and self._numbers is None:
            raise RuntimeError(
                "hccl: backward ran twice before step(): accumulate gradients in no_sync()"
            )
        self.synchronize()
        if self._learnt == _LEARNING and not self._parts:
            self._set_messages(self._plan.plan_newest_first())
        self._missing = [len(parts) for parts in self._parts]

    def ready(self, number: int) -> None:
        self._parameters[number].grad = None  # the plan owns this memory now
        if not self._parts:
            self._plan.ready(number)
            return
        for message in self._in[number]:
            self._missing[message] -= 1
            if self._missing[message] == 0:
                self._plan.ready(message)

    def end_backward(self) -> None:
        if self._parts:
            self._plan.end_backward()
        else:
            self._plan.finish()
            self._learnt += 1
            if self._learnt < _LEARNING:
                self._plan.mark_forward()
        self._landed, self._in_flight = 0, True

    def _set_messages(self, messages: Sequence[tuple[int, int]]) -> None:
        """Sets the messages: ranges of the concatenation of all gradients, in the order of
        reduction."""
        sizes = [view.numel() for view in self._views]
        begin = list(itertools.accumulate(sizes, initial=0))
        self._parts = [
            {i for i, size in enumerate(sizes) if begin[i] < end and begin[i] + size > start}
            for start, end in messages
        ]
        self._in = [
            [message for message, parts in enumerate(self._parts) if i in parts]
            for i in range(len(sizes))
        ]
        last = [own[-1] if own else len(messages) - 1 for own in self._in]
        self._complete = [[] for _ in messages]
        for i, message in enumerate(last):
            self._complete[message].append(i)
        self._at_step = -1
        self._find_needs(dict(zip(self._parameters, last)))
        block = self._views[0].new_empty(0).set_(self._views[0].untyped_storage())
        start = self._views[0].storage_offset()
        parts = [block[start + first : start + end] for first, end in messages]
        self._plan.set_messages(parts, [self._title(each) for each in self._parts])

    def _title(self, parts: set[int]) -> str:
        first, last = self._names[min(parts)], self._names[max(parts)]
        return first if first == last else f"{first} to {last}"

    # ---- The waits of modules. ----

    def _find_needs(self, last: dict[torch.nn.Parameter, int]) -> None:
        """Finds the last message that each module's forward waits for: the last with the module's
        own parameters. If a module's forward is never called (as for MultiheadAttention's
        out_proj), the enclosing module reads the parameters, so the enclosing module waits."""
        modules = dict(self._module.named_modules(remove_duplicate=False))
        for name, module in modules.items():
            own = [last[p] for p in module.parameters(recurse=False) if p in last]
            if not own:
                continue
            self._need(module, max(own))
            while modules[name] not in self._called and name:
                name = name.rpartition(".")[0]
                self._need(modules[name], max(own))
            if modules[name] not in self._called:
                self._at_step = max(self._at_step, max(own))

    def _need(self, module: torch.nn.Module, message: int) -> None:
        self._needs[module] = max(message, self._needs.get(module, -1))

    def _before_forward(self, module: torch.nn.Module) -> None:
        if self._numbers is not None:
            self._land(self._needs.get(module, -1))
        elif not self._parts and torch.is_grad_enabled():
            self._called.add(module)

    def _before_step(self, optimizer: Any, arguments: tuple, options: dict[str, Any]) -> None:
        if not self._in_flight or self._numbers is not None:  # nothing is in flight
            return
        scaled = getattr(optimizer, "grad_scale", None), optimizer._pending
        given = *arguments[1:], *(options.get(name) for name in ("closure", "max_norm", "scaler"))
        if any(each is not None for each in (*scaled, *given)):
            raise RuntimeError(
                "hccl: closures, clipping and scalers need all gradients before the step: "
                "call synchronize() of CombinedGradients first"
            )
        self._numbers = [
            {key: copy.copy(value) for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        self._land(self._at_step)

    def _land(self, upto: int) -> None:
        """Waits for the messages up to this one, and steps the parameters that each of them
        completes."""
        while self._landed <= upto:
            if self._parts:
                self._plan.wait_message(self._landed)
            done = self._complete[self._landed]
            self._landed += 1
            if self._numbers is not None:
                gradients = {self._parameters[i]: self._views[i] for i in done}
                self._optimizer._step_late(gradients, self._numbers)
        if self._landed == len(self._complete):
            self._in_flight, self._numbers = False, None

    def synchronize(self) -> None:
        if not self._in_flight:
            return
        steps = self._numbers is not None
        self._land(len(self._complete) - 1)
        for parameter, view in zip(self._parameters, self._views) if not steps else ():
            parameter.grad = view


def _check(
    optimizer: FusedOptimizer, parameters: Sequence[torch.nn.Parameter], names: Sequence[str]
) -> None:
    if not isinstance(optimizer, FusedOptimizer):
        raise TypeError("hccl: overlap_forward is not an optimizer of hccl.torch.optim")
    if optimizer._needs_all_gradients():
        raise TypeError(f"hccl: {type(optimizer).__name__} needs the norm of all gradients")
    own = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for parameter, name in zip(parameters, names):
        if parameter not in own:
            raise ValueError(f"hccl: {name} is not a parameter of the optimizer")
