"""Horovod's elastic training with PyTorch, in a world that loses ranks."""

from __future__ import annotations

import copy
from typing import Any

from hccl import _world
from hccl._horovod import absent
from hccl.errors import HcclError
from hccl.horovod import elastic
from hccl.horovod.elastic import ObjectState, State
from hccl.horovod.torch import _objects

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]

run = elastic.runner(HcclError, go_on=_world.join_living)
ElasticSampler = absent(
    "ElasticSampler", "use torch's DistributedSampler, and make it again in a reset callback"
)


class TorchState(ObjectState):
    """A state whose attributes are models, optimizers, schedulers and Python objects. restore()
    changes objects with a state_dict in place."""

    def __init__(self, model: Any = None, optimizer: Any = None, **objects: Any) -> None:
        self._modules: dict[str, Any] = {}
        self._states: dict[str, Any] = {}
        given = {"model": model, "optimizer": optimizer, **objects}
        for name, value in given.items():
            if hasattr(value, "load_state_dict"):
                self._modules[name] = None
                setattr(self, name, value)
        rest = {name: value for name, value in given.items() if name not in self._modules}
        super().__init__(_objects.broadcast_object, lambda: 0, **rest)

    def __setattr__(self, name: str, value: Any) -> None:
        """A new model or optimizer in the place of an old one counts as committed."""
        super().__setattr__(name, value)
        if name not in self.__dict__.get("_modules", {}):
            return
        if hasattr(value, "load_state_dict"):
            self._modules[name] = value
            self._states[name] = copy.deepcopy(value.state_dict())
        else:  # from now on a Python object
            del self._modules[name], self._states[name]
            self._names.append(name)
            self._saved[name] = copy.deepcopy(value)

    def _save_modules(self) -> None:
        self._states = {n: copy.deepcopy(m.state_dict()) for n, m in self._modules.items()}

    def save(self) -> None:
        self._save_modules()
        super().save()

    def restore(self) -> None:
        for name, module in self._modules.items():
            module.load_state_dict(copy.deepcopy(self._states[name]))
        super().restore()

    def sync(self) -> None:
        for module in self._modules.values():
            state = module.state_dict()
            if hasattr(module, "param_groups"):
                _objects.broadcast_optimizer_state(module, 0)
            elif hasattr(module, "parameters"):
                _objects.broadcast_parameters(state, 0)
            else:
                module.load_state_dict(_objects.broadcast_object(state))
        super().sync()
