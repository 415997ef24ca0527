"""Ascend's names for scripts that were written for its PyTorch adapter: torch_npu and apex.

    python -m hccl.torch script.py        or        hccl.torch.as_npu()

    make these modules importable, with the parts that are useful on a CPU, and make "npu" mean the
    CPU. An installed torch_npu or apex takes precedence. The modules exist only in this process.
"""

import importlib.util
import sys
import types

_NAMES = ("torch_npu", "apex", "torchair")


def as_npu() -> None:
    """Makes torch_npu and apex importable, unless they are installed, and makes "npu" mean the CPU.

    A second call does nothing."""
    from multiprocessing import spawn

    from hccl.torch.npu import (
        _checkpoints,
        _compile,
        _devices,
        _groups,
        _modules,
        _operators,
        _transfer,
    )

    real = [name for name in _NAMES if name not in sys.modules and _is_installed(name)]
    made = {}
    for path, contents in _modules.contents().items():
        top = path.split(".")[0]
        if top not in real and not _is_real(sys.modules.get(top)):
            made[path] = _module(path, contents)
    for path, module in made.items():
        sys.modules[path] = module
        if path.startswith("torch_npu.npu"):  # import torch.npu
            sys.modules[path.replace("torch_npu", "torch", 1)] = module
        parent, _, name = path.rpartition(".")
        if parent and not hasattr(made[parent], name):
            setattr(made[parent], name, module)
    if "torch_npu" in made:
        _devices.install(made["torch_npu.npu"])
        for part in (_operators, _checkpoints, _groups, _compile):
            part.install()
        if not any(isinstance(finder, _transfer.Importer) for finder in sys.meta_path):
            sys.meta_path.append(_transfer.Importer())
            prepare = spawn.get_preparation_data
            spawn.get_preparation_data = lambda name: {**prepare(name), "hccl": _Spawned()}


class _Spawned:
    """New processes of multiprocessing unpickle this object before they import the script."""

    def __reduce__(self) -> tuple:
        return as_npu, ()


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _is_real(module: object) -> bool:
    return module is not None and not getattr(module, "__hccl__", False)


def _module(path: str, contents: dict) -> types.ModuleType:
    module = types.ModuleType(path, f"hccl.torch.npu's {path}: Ascend's names on the CPU.")
    module.__path__ = []  # a package: it may have submodules
    module.__spec__ = importlib.util.spec_from_loader(path, loader=None, is_package=True)
    module.__dict__.update(contents, __hccl__=True)
    return module
